// The sampler against an independent one in float64, and what it promises beyond single answers.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import type { SamplingParams } from "../../gpu-node/contract/engine.ts";
import { type OpDevice, openDevice } from "../../gpu-node/native/device.ts";
import { availableIsas, hasCuda } from "./harness.ts";
import { Random } from "./random.ts";
import { adjusted, GREEDY, paramsRecord, RECORD, readParams, type Sampled, sampleRow } from "./sampling.ts";

interface Row {
  logits: ArrayLike<number>;
  params?: Partial<SamplingParams>;
  history?: number[];
  promptLength?: number;
  position?: number;
  void?: boolean;
}

interface Answer extends Omit<Sampled, "kept"> {
  slot: number;
  position: number;
  epoch: number;
  /** The history at `position` afterwards. */
  written: number;
}

const MAX_LENGTH = 40;
const MAX_BIAS = 8;

const devices = [
  openDevice({ backend: "reference", threads: 1 }),
  ...(hasCuda() ? [openDevice({ backend: "cuda" })] : []),
  ...availableIsas().map((isa) => openDevice({ backend: "cpu", isa, threads: 2 })),
];
after(() => {
  for (const device of devices) device.dispose();
});

function run(device: OpDevice, rows: Row[]): Answer[] {
  const vocab = rows[0].logits.length;
  const slots = rows.length + 1;
  const slotOf = (i: number) => rows.length - i; // not the row's own index
  const logits = new Float32Array(rows.length * vocab);
  const table = new Int32Array(rows.length * 4);
  const params = new Int32Array(slots * 16);
  const biasIds = new Int32Array(slots * MAX_BIAS).fill(1 << 29);
  const biasValues = new Float32Array(slots * MAX_BIAS);
  const history = new Int32Array(slots * MAX_LENGTH).fill(-5);
  rows.forEach((row, i) => {
    const slot = slotOf(i);
    const full = { ...GREEDY, ...row.params };
    const past = row.history ?? [];
    logits.set(row.logits, i * vocab);
    table.set([row.void ? -1 : slot, row.position ?? past.length, 100 + i, row.promptLength ?? 0], i * 4);
    params.set(paramsRecord(full), slot * 16);
    full.logitBias.forEach(([id, value], b) => {
      biasIds[slot * MAX_BIAS + b] = id;
      biasValues[slot * MAX_BIAS + b] = value;
    });
    history.set(past, slot * MAX_LENGTH);
  });
  const past = device.fromHost("i32", [slots, MAX_LENGTH], history);
  const out = device.alloc("i32", [rows.length, RECORD]);
  device.ops.sample({
    logits: device.fromHost("f32", [rows.length, vocab], logits),
    rows: device.fromHost("i32", [rows.length, 4], table),
    params: device.fromHost("i32", [slots, 16], params),
    bias_ids: device.fromHost("i32", [slots, MAX_BIAS], biasIds),
    bias_values: device.fromHost("f32", [slots, MAX_BIAS], biasValues),
    history: past,
    out,
  });
  const words = new Int32Array(device.read(out));
  const after = new Int32Array(device.read(past));
  return rows.map((row, i) => {
    const record = words.subarray(i * RECORD, (i + 1) * RECORD);
    const real = new Float32Array(words.buffer, i * RECORD * 4, RECORD);
    const position = row.position ?? row.history?.length ?? 0;
    return {
      slot: record[0],
      position: record[1],
      token: record[2],
      epoch: record[3],
      logprob: real[4],
      top: Array.from({ length: record[5] }, (_, t) => [record[8 + 2 * t], real[9 + 2 * t]]),
      status: record[6],
      written: after[slotOf(i) * MAX_LENGTH + position],
    };
  });
}

/** Every backend's answers, each held to the oracle; returns those of the last one. */
function check(rows: Row[], what = ""): Answer[] {
  let answers: Answer[] = [];
  for (const device of devices) {
    answers = run(device, rows);
    answers.forEach((got, i) => {
      const row = rows[i];
      const where = `${device.backend} ${device.isa}, row ${i} ${what}`;
      const full = { ...GREEDY, ...row.params };
      const params = readParams(paramsRecord(full), full.logitBias);
      const past = row.history ?? [];
      const wanted = sampleRow(
        Float64Array.from(row.logits, Math.fround),
        params,
        past,
        row.position ?? past.length,
        row.promptLength ?? 0,
      );
      assert.equal(got.status, wanted.status, where);
      assert.equal(got.token, wanted.token, where);
      assert.equal(got.epoch, 100 + i, where);
      assert.equal(got.written, wanted.status === 1 ? wanted.token : -5, `${where}: history`);
      assert.ok(Math.abs(got.logprob - wanted.logprob) < 1e-4, `${where}: logprob ${got.logprob}`);
      assert.deepEqual(
        got.top.map(([id]) => id),
        wanted.top.map(([id]) => id),
        where,
      );
      got.top.forEach(([, p], t) => {
        assert.ok(Math.abs(p - wanted.top[t][1]) < 1e-4, where);
      });
    });
  }
  return answers;
}

function normals(count: number, seed: number, deviation = 3): Float32Array {
  const random = new Random(seed);
  return Float32Array.from({ length: count }, () => deviation * random.normal());
}

test("random parameters give the oracle's tokens, log probabilities and alternatives", () => {
  const random = new Random(11);
  for (const vocab of [1, 2, 17, 300, 4096]) {
    const rows = Array.from({ length: 60 }, (_, i): Row => {
      const pick = (n: number) => Math.floor(n * random.next());
      const length = pick(30);
      const past = Array.from({ length }, () => pick(Math.min(vocab, 9)));
      return {
        logits: normals(vocab, 100 * vocab + i),
        history: past,
        promptLength: pick(length + 1),
        params: {
          temperature: [0, 0.3, 1, 1, 5][pick(5)],
          topK: [0, 0, 1, 3, 40, 1e6][pick(6)],
          topP: [1, 1, 0.9, 0.5, 1e-6][pick(5)],
          minP: [0, 0, 0.05, 0.5, 1][pick(5)],
          repetitionPenalty: [1, 1, 1.3, 0.7][pick(4)],
          presencePenalty: [0, 0, 1.5][pick(3)],
          frequencyPenalty: [0, 0, 0.5, -0.5][pick(4)],
          logitBias: Array.from({ length: pick(3) }, () => [pick(vocab), 10 * random.normal()]),
          topLogprobs: pick(22) - 1,
          seedLow: pick(2 ** 32) | 0,
          seedHigh: pick(2 ** 32) | 0,
        },
      };
    });
    check(rows, `vocab ${vocab}`);
  }
});

test("wide nuclei, large k and thousands of equal logits are cut where the oracle cuts them", () => {
  const vocab = 9001;
  const equal = new Float32Array(vocab).fill(-2);
  const levels = Float32Array.from({ length: vocab }, (_, i) => (i % 3 === 0 ? 1 : i % 3 === 1 ? 0.5 : -1));
  const params: Partial<SamplingParams>[] = [
    { topK: 3000 },
    { topP: 0.4 },
    { topK: 4000, topP: 0.7, minP: 1e-4 },
    { topK: 5 },
    { temperature: 40, topP: 0.95 },
    { temperature: 0 },
    { topP: 0.999, minP: 0.5 },
  ];
  for (const logits of [equal, levels, normals(vocab, 3), normals(vocab, 4, 0.01)]) {
    check(
      params.map(
        (p, i): Row => ({ logits, params: { temperature: 1, topLogprobs: 20, seedLow: 7 * i, ...p } }),
      ),
    );
  }
});

test("greedy takes the lowest id among equals", () => {
  const [a] = check([{ logits: [1, 7, 7, 3, 7] }]);
  assert.equal(a.token, 1);
});

test("top-k keeps exactly k, the lower ids among equals", () => {
  const seen = new Set<number>();
  for (let seed = 0; seed < 60; seed++) {
    const params = { temperature: 1, topK: 3, seedLow: seed };
    seen.add(check([{ logits: [5, 4, 4, 4, 4, 1], params }])[0].token);
  }
  assert.deepEqual([...seen].sort(), [0, 1, 2]);
});

test("top-p keeps the token that crosses the mass, and one when it is tiny", () => {
  const logits = [0.5, 0.3, 0.2].map(Math.log);
  const draws = (topP: number) => {
    const seen = new Set<number>();
    for (let seed = 0; seed < 80; seed++) {
      seen.add(check([{ logits, params: { temperature: 1, topP, seedLow: seed } }])[0].token);
    }
    return [...seen].sort();
  };
  assert.deepEqual(draws(0.6), [0, 1]);
  assert.deepEqual(draws(0.49), [0]);
  assert.deepEqual(draws(1e-9), [0]);
  assert.deepEqual(draws(0.81), [0, 1, 2]);
});

test("min-p keeps what is at least that share of the most likely", () => {
  const logits = [0.5, 0.26, 0.24].map(Math.log);
  const seen = new Set<number>();
  for (let seed = 0; seed < 80; seed++) {
    seen.add(check([{ logits, params: { temperature: 1, minP: 0.5, seedLow: seed } }])[0].token);
  }
  assert.deepEqual([...seen].sort(), [0, 1]);
});

test("a logit of -inf is never drawn, whatever bias, temperature and seed", () => {
  const logits = normals(300, 5).map((v, i) => (i % 3 === 0 ? v : -Infinity));
  const rows = Array.from(
    { length: 200 },
    (_, i): Row => ({
      logits,
      params: { temperature: i % 2 ? 1 : 1e30, seedLow: i, logitBias: [[1, 100]], topLogprobs: 20 },
    }),
  );
  for (const answer of check(rows)) {
    assert.equal(answer.token % 3, 0);
    assert.ok(answer.top.every(([, p]) => Number.isFinite(p)));
  }
});

test("huge and tiny temperatures, biases and penalties stay finite", () => {
  const logits = normals(300, 6);
  const params: Partial<SamplingParams>[] = [
    { temperature: 3.4e38 },
    { temperature: Infinity },
    { temperature: 1e-45 },
    { temperature: 1, logitBias: [[3, 3.4e38]] },
    { temperature: 1, logitBias: [[3, -3.4e38]] },
    { temperature: 1, repetitionPenalty: 1e-38 },
    { temperature: 1, repetitionPenalty: 3e38, presencePenalty: 3e38, frequencyPenalty: 3e38 },
  ];
  const rows = params.map((p): Row => ({ logits, params: p, history: [1, 2, 3], promptLength: 1 }));
  for (const answer of run(devices[devices.length - 1], rows)) {
    assert.equal(answer.status, 1);
    assert.ok(answer.token >= 0 && answer.token < 300);
  }
  check(rows.slice(2, 5));
});

test("NaN, +inf and nothing but -inf give status 2, no token and no history", () => {
  const spoiled = (value: number, at: number) => normals(300, 7).map((v, i) => (i === at ? value : v));
  const rows: Row[] = [
    { logits: spoiled(Number.NaN, 0), params: { topLogprobs: 5 } },
    { logits: spoiled(Number.NaN, 299), params: { temperature: 1 } },
    { logits: spoiled(Infinity, 150) },
    { logits: new Float32Array(300).fill(-Infinity), params: { temperature: 1 } },
    { logits: normals(300, 8) },
  ];
  const answers = check(rows);
  assert.deepEqual(
    answers.map((a) => a.status),
    [2, 2, 2, 2, 1],
  );
});

test("a void row has status 0 and no token", () => {
  for (const device of devices) {
    const [a, b] = run(device, [{ logits: [1, 2], void: true }, { logits: [1, 2] }]);
    assert.deepEqual([a.slot, a.status, a.token, a.epoch, a.written], [-1, 0, -1, 100, -5]);
    assert.deepEqual([b.status, b.token], [1, 1]);
  }
});

test("a row draws the same alone, in any batch and with any number of threads", () => {
  const rows = Array.from(
    { length: 33 },
    (_, i): Row => ({
      logits: normals(1000, 40 + i),
      history: [i, 3, 3],
      promptLength: 1,
      params: {
        temperature: 1.5,
        topP: i % 2 ? 0.9 : 1,
        topK: i % 3 ? 50 : 0,
        presencePenalty: 1,
        topLogprobs: 3,
        seedLow: i,
      },
    }),
  );
  for (const threads of [1, 3]) {
    const device = openDevice({ backend: "cpu", threads });
    const together = run(device, rows);
    rows.forEach((row, i) => {
      const [alone] = run(device, [row]);
      assert.deepEqual({ ...alone, slot: 0, epoch: 0 }, { ...together[i], slot: 0, epoch: 0 });
    });
    device.dispose();
  }
});

test("draws over many seeds and over many positions follow the distribution (chi-square)", () => {
  const vocab = 20;
  const logits = normals(vocab, 9, 1);
  const params = { temperature: 0.8, topP: 0.95 };
  const y = adjusted(Float64Array.from(logits), { ...GREEDY, ...params }, [], 0);
  const { kept } = sampleRow(y, { ...GREEDY, ...params }, [], 0, 0);
  const weight = kept.map((id) => Math.exp(y[id] / 0.8));
  const total = weight.reduce((a, b) => a + b, 0);
  const device = devices[devices.length - 1];
  for (const by of ["seed", "position"] as const) {
    const draws = 8000;
    const counts = new Map<number, number>();
    for (let first = 0; first < draws; first += 400) {
      const rows = Array.from(
        { length: 400 },
        (_, i): Row => ({
          logits,
          params: { ...params, seedLow: by === "seed" ? first + i : 77, seedHigh: by === "seed" ? 3 : first },
          position: by === "seed" ? 0 : i % MAX_LENGTH,
        }),
      );
      if (by === "position")
        for (const [i, row] of rows.entries())
          row.params = { ...row.params, seedLow: Math.floor(i / MAX_LENGTH) };
      for (const { token } of run(device, rows)) counts.set(token, (counts.get(token) ?? 0) + 1);
    }
    assert.deepEqual(
      [...counts.keys()].sort((a, b) => a - b),
      kept,
    );
    const chi = kept.reduce((sum, id, i) => {
      const expected = (draws * weight[i]) / total;
      return sum + (counts.get(id)! - expected) ** 2 / expected;
    }, 0);
    // Mean k, deviation sqrt(2 k) for k degrees of freedom.
    const k = kept.length - 1;
    assert.ok(chi < k + 4 * Math.sqrt(2 * k), `by ${by}: chi-square ${chi} of ${k} degrees`);
  }
});

test("indices out of range fail the kernel, naming the op", () => {
  const bad: [Row, RegExp][] = [
    [{ logits: [1, 2], position: MAX_LENGTH }, /^Error: sample: position 40/],
    [{ logits: [1, 2], position: -1 }, /^Error: sample: position -1/],
    [{ logits: [1, 2], promptLength: 5 }, /^Error: sample: prompt length 5/],
    [{ logits: [1, 2], params: { logitBias: [[2, 1]] } }, /^Error: sample: biased token 2/],
    [
      { logits: [1, 2], params: { presencePenalty: 1 }, history: [2] },
      /^Error: sample: token of the history 2/,
    ],
    [{ logits: [1, 2], params: { topLogprobs: 21 } }, /^Error: sample: top_logprobs 21/],
  ];
  for (const device of devices) {
    // CUDA says which index, and not of what.
    for (const [row, error] of bad) {
      const [index] = error.source.match(/-?\d+$/) ?? [];
      const wanted = device.backend === "cuda" ? new RegExp(`sample: index out of range: ${index}$`) : error;
      assert.throws(() => run(device, [row]), wanted);
    }
  }
});
