// Runs plans on a device: upload, expand, forward, sample; and reads logits for `eval` on the same path.
//
// The stream is in order, so one arena and one results buffer serve all steps and all graphs. Steps in which every row
// decodes replay a graph, captured when its bucket comes up first; others are enqueued op by op. A bucket is a number of
// rows: on a GPU, where capturing takes long and a padded row costs little, few of them; on the CPU every number.
import { PAGE_TOKENS } from "../kv/format.ts";
import { TAG_LAYOUT as T } from "../kv/tag-layout.ts";
import type { Model } from "../model/load-model.ts";
import type { StepBatch } from "../model/step.ts";
import type { Arena, Graph, Tensor } from "../native/addon.ts";
import type { OpDevice } from "../native/device.ts";
import { loadAddon } from "../native/load.ts";
import { PLAN_LAYOUT as L, type PlanLimits, PlanWriter, packLimits, planCapacity } from "./plan.ts";
import type { KvFaults, Runner } from "./runner.ts";
import { TagTables, verdictWords } from "./tag-tables.ts";

/** Beyond what the model's own tensors take: alignment. */
const ARENA_SLACK = 1 << 20;

interface StepSize {
  tokens: number;
  rows: number;
  samples: number;
}

/** Rows of the graphs on a GPU; from the last one on, multiples of 64. */
const GPU_BUCKETS = [1, 2, 4, 8, 16, 24, 32, 48, 64];

interface Flight {
  ticket: number;
  /** Of the download of the KV cache's counters. */
  kvStats: number;
}

interface SlotState {
  page_table: Tensor;
  history: Tensor;
  params: Tensor;
  bias_ids: Tensor;
  bias_values: Tensor;
}

export class ModelRunner implements Runner {
  readonly limits: PlanLimits;
  readonly depth: number;
  readonly device: OpDevice;
  readonly model: Model;
  /** Called where the GPU's work of a step begins and ends on the stream: `edgewise bench gpu --engine` marks the times. */
  onStep: ((point: "begin" | "end") => void) | null = null;
  readonly #validate: (plan: Int32Array) => void;
  readonly #plan: Tensor;
  readonly #state: SlotState;
  /** Null: pages are not checked, and nothing is allocated or launched for it. */
  readonly tags: TagTables | null;
  // [ verdicts, when pages are checked | results ], so that one download fetches both.
  readonly #results: Tensor;
  readonly #verdictWords: number;
  #verdicts: Int32Array | null = null;
  readonly #arena: Arena;
  readonly #graphs = new Map<number, Graph>();
  readonly #flights: Flight[] = [];
  readonly #kvFaults: KvFaults = { saturated: 0, nan: 0 };

  /** Allocates the KV pools of `model` and all state; dispose() also disposes the device. */
  constructor(device: OpDevice, model: Model, limits: PlanLimits, depth: number, integrity = false) {
    this.device = device;
    this.model = model;
    this.limits = limits;
    this.depth = depth;
    const packed = packLimits(limits);
    const addon = loadAddon();
    this.#validate = (plan) => addon.validatePlan(plan, packed);
    model.allocKv(limits.pages);
    const { slots } = limits;
    this.#plan = device.alloc("i32", [planCapacity(limits)]);
    this.#state = {
      page_table: device.alloc("i32", [slots, limits.maxPages]),
      history: device.alloc("i32", [slots, limits.maxLen]),
      params: device.alloc("i32", [slots, L.param_count]),
      bias_ids: device.alloc("i32", [slots, L.max_bias]),
      bias_values: device.alloc("f32", [slots, L.max_bias]),
    };
    this.#verdictWords = integrity ? verdictWords(limits) : 0;
    this.#results = device.alloc("i32", [this.#verdictWords + limits.maxRows * L.result_stride]);
    const verdicts = () =>
      this.#results.slice(0, 0, this.#verdictWords).reshape([limits.maxRows, T.verdict_words]);
    this.tags = integrity ? new TagTables(device, limits, verdicts()) : null;
    const { maxTokens: tokens, maxRows: rows } = limits;
    this.#arena = device.arena(this.#arenaBytes({ tokens, rows, samples: rows }));
  }

  /** Runs a step of void rows, eager and as a graph: code and weights are touched, the pool is not. */
  warmUp(): void {
    const writer = new PlanWriter(this.limits);
    for (const tokens of [Math.min(this.limits.maxTokens, PAGE_TOKENS), 1]) {
      writer.begin(0);
      writer.row(-1, tokens, 0, true, 0, 0);
      if (tokens > 1) writer.endExtend();
      this.wait(this.submit(writer.finish()));
    }
  }

  submit(plan: Int32Array, tags: Int32Array | null = null): number {
    this.#validate(plan);
    const { device } = this;
    this.tags?.upload(tags);
    const size = { tokens: plan[L.h_tokens], rows: plan[L.h_rows], samples: Math.max(1, plan[L.h_samples]) };
    device.upload(this.#plan, plan);
    device.useArena(this.#arena);
    this.onStep?.("begin");
    if (plan[L.h_extend_rows] === 0) this.#decodeGraph(this.#bucket(size.rows)).replay();
    else this.#enqueue(size, this.#reach(plan));
    this.onStep?.("end");
    const kvStats = device.download(this.model.kv[0].stats);
    // Enqueued here, the next step's results come after these have left.
    const ticket = device.download(this.#resultsOf(0, size.samples));
    this.#flights.push({ ticket, kvStats });
    return ticket;
  }

  wait(ticket: number): Int32Array {
    const flight = this.#flights.shift();
    if (flight?.ticket !== ticket) throw new Error(`runner: step ${ticket} is not the oldest in flight`);
    try {
      const all = new Int32Array(this.device.receive(ticket));
      this.#countKvFaults(this.device.receive(flight.kvStats));
      this.#verdicts = this.tags ? all.subarray(0, this.#verdictWords) : null;
      return all.subarray(this.#verdictWords);
    } catch (error) {
      // The downloads of a step that failed were skipped.
      this.#countKvFaults(this.device.read(this.model.kv[0].stats));
      throw error;
    }
  }

  verdicts(): Int32Array | null {
    return this.#verdicts;
  }

  // From word `begin` to the end of `samples` records.
  #resultsOf(begin: number, samples: number): Tensor {
    return this.#results.slice(0, begin, this.#verdictWords + samples * L.result_stride);
  }

  misdirect(slot: number, logical: number, page: number): void {
    const entry = this.#state.page_table.slice(0, slot, slot + 1).slice(1, logical, logical + 1);
    this.device.upload(entry, Int32Array.of(page));
  }

  kvFaults(): KvFaults {
    return this.#kvFaults;
  }

  // The device counts modulo 2^32; a step adds less than that.
  #countKvFaults(stats: ArrayBuffer): void {
    const totals = this.#kvFaults;
    const [saturated, nan] = new Uint32Array(stats);
    totals.saturated += (saturated - totals.saturated) >>> 0;
    totals.nan += (nan - totals.nan) >>> 0;
  }

  dispose(): void {
    for (const graph of this.#graphs.values()) graph.dispose();
    this.device.dispose();
  }

  /**
   * Computes `tokens` as one sequence, `chunk` at a time, through the paged path of every other step, and hands out the
   * logits of each chunk: f32 [count, vocab] of the tokens from `first` on. The runner must have nothing else to do.
   */
  evaluate(
    tokens: Int32Array,
    chunk: number,
    visit: (first: number, count: number, logits: Float32Array) => void,
  ): void {
    const { device, limits } = this;
    const pages = Math.ceil(tokens.length / PAGE_TOKENS);
    if (tokens.length > limits.maxLen || pages >= limits.pages || chunk > limits.maxTokens) {
      throw new RangeError(
        `eval: ${tokens.length} tokens in chunks of ${chunk} exceed what the runner was made for`,
      );
    }
    const largest = Math.min(chunk, tokens.length);
    const arena = device.arena(this.#arenaBytes({ tokens: largest, rows: 1, samples: largest }));
    const writer = new PlanWriter(limits);
    for (let first = 0; first < tokens.length; first += chunk) {
      const count = Math.min(chunk, tokens.length - first);
      writer.begin(first + 1);
      if (first === 0) {
        writer.release(0);
        writer.pages(
          0,
          Int32Array.from({ length: pages }, (_, i) => i + 1),
          0,
          pages,
        );
        writer.history(0, tokens, 0, tokens.length);
      }
      writer.row(0, count, first, false, 1, 0);
      writer.endExtend();
      const plan = writer.finish(L.flag_all_logits);
      this.#validate(plan);
      device.upload(this.#plan, plan);
      device.useArena(arena);
      arena.reset();
      const { batch } = this.#expand({ tokens: count, rows: 1, samples: count }, this.#reach(plan));
      visit(first, count, new Float32Array(device.read(this.model.forward(batch))));
    }
  }

  #bucket(rows: number): number {
    if (this.device.backend !== "cuda") return rows;
    const bucket = GPU_BUCKETS.find((size) => size >= rows) ?? Math.ceil(rows / 64) * 64;
    return Math.min(bucket, this.limits.maxRows);
  }

  #decodeGraph(rows: number): Graph {
    let graph = this.#graphs.get(rows);
    if (!graph) {
      // Constant for all replays: the longest context that there can be.
      const reach = { maxKvLen: this.limits.maxLen, maxNewTokens: 1 };
      graph = this.device.capture(() => this.#enqueue({ tokens: rows, rows, samples: rows }, reach));
      this.#graphs.set(rows, graph);
    }
    return graph;
  }

  #enqueue(size: StepSize, reach: { maxKvLen: number; maxNewTokens: number }): void {
    this.#arena.reset();
    const { batch, sampleRows } = this.#expand(size, reach);
    this.tags?.check(this.#plan, batch);
    const logits = this.model.forward(batch);
    this.tags?.written(batch);
    const { params, bias_ids, bias_values, history } = this.#state;
    this.device.ops.sample({
      logits,
      rows: sampleRows,
      params,
      bias_ids,
      bias_values,
      history,
      out: this.#resultsOf(this.#verdictWords, size.samples).reshape([size.samples, L.result_stride]),
    });
  }

  #expand({ tokens, rows, samples }: StepSize, reach: { maxKvLen: number; maxNewTokens: number }) {
    const { device } = this;
    const batch: StepBatch = {
      tokens,
      rows,
      samples,
      tokenIds: device.temp("i32", [tokens]),
      positions: device.temp("i32", [tokens]),
      writeSlots: device.temp("i32", [tokens]),
      rowStart: device.temp("i32", [rows + 1]),
      kvLen: device.temp("i32", [rows]),
      rowSlot: device.temp("i32", [rows]),
      pageTable: this.#state.page_table,
      logitRows: device.temp("i32", [samples]),
      ...reach,
    };
    const sampleRows = device.temp("i32", [samples, L.sample_stride]);
    device.ops.plan_expand({
      plan: this.#plan,
      ...this.#state,
      token_ids: batch.tokenIds,
      positions: batch.positions,
      write_slots: batch.writeSlots,
      row_slot: batch.rowSlot,
      row_start: batch.rowStart,
      kv_len: batch.kvLen,
      logit_rows: batch.logitRows,
      sample_rows: sampleRows,
    });
    return { batch, sampleRows };
  }

  // Longest context and most new tokens of the plan's rows.
  #reach(plan: Int32Array): { maxKvLen: number; maxNewTokens: number } {
    let maxKvLen = 1;
    let maxNewTokens = 1;
    for (let at = plan[L.h_rows_offset]; at < plan.length; at += L.row_stride) {
      maxNewTokens = Math.max(maxNewTokens, plan[at + L.row_new]);
      maxKvLen = Math.max(maxKvLen, plan[at + L.row_past] + plan[at + L.row_new]);
    }
    return { maxKvLen, maxNewTokens };
  }

  #arenaBytes(size: StepSize): number {
    const expanded = 4 * (3 * size.tokens + 3 * (size.rows + 1) + 5 * size.samples);
    return this.model.arenaBytes(size) + expanded + ARENA_SLACK;
  }
}
