import { normal, type OpCase, type OpCases, type OracleInput, values } from "./harness.ts";

// transformers 5.18: DeepseekV3TopkRouter (sigmoid) and Qwen3MoeTopKRouter (softmax), in float64.
function oracle({ tensors: { logits, bias, ids }, numbers }: OracleInput) {
  const [tokens, experts] = logits.shape;
  const k = ids.shape[1];
  const chosen: number[] = [];
  const weights: number[] = [];
  for (let t = 0; t < tokens; t++) {
    const row = logits.data.subarray(t * experts, (t + 1) * experts);
    const scores = numbers.scoring === 1 ? row.map((v) => 1 / (1 + Math.exp(-v))) : softmax(row);
    const choice = Array.from(scores, (s, e) => Math.fround(Math.fround(s) + (bias?.data[e] ?? 0)));
    const masked = keepGroups(choice, numbers.groups, numbers.top_groups);
    const best = ranked(masked).slice(0, k);
    const sum = best.reduce((total, e) => total + scores[e], numbers.scoring === 1 ? 1e-20 : 0);
    const nan = row.some(Number.isNaN);
    chosen.push(...(nan ? Array.from({ length: k }, (_, j) => j) : best));
    weights.push(
      ...best.map((e) => (nan ? Number.NaN : (scores[e] / (numbers.normalize ? sum : 1)) * numbers.scale)),
    );
  }
  return { ids: chosen, weights };
}

function softmax(row: Float64Array): Float64Array {
  const highest = row.reduce((a, b) => Math.max(a, b));
  const exps = row.map((v) => Math.exp(v - highest));
  const sum = exps.reduce((a, b) => a + b);
  return exps.map((v) => v / sum);
}

function ranked(list: readonly number[]): number[] {
  return list.map((_, i) => i).sort((a, b) => list[b] - list[a] || a - b);
}

function keepGroups(choice: readonly number[], groups: number, top: number): number[] {
  if (groups === 1) return [...choice];
  const size = choice.length / groups;
  const scores = Array.from({ length: groups }, (_, g) => {
    const members = choice.slice(g * size, (g + 1) * size).sort((a, b) => b - a);
    return Math.fround(members[0] + (members[1] ?? 0));
  });
  const kept = new Set(ranked(scores).slice(0, top));
  return choice.map((value, e) => (kept.has(Math.floor(e / size)) ? value : Number.NEGATIVE_INFINITY));
}

interface Router {
  scoring: 0 | 1;
  groups?: number;
  top?: number;
  normalize?: 0 | 1;
  scale?: number;
  bias?: number;
}

function route(tokens: number, experts: number, k: number, r: Router): OpCase {
  const { groups = 1, top = 1, normalize = 1, scale = 1 } = r;
  const kind = r.scoring ? "sigmoid" : "softmax";
  return {
    name: `${tokens} tokens, ${k} of ${experts}, ${kind}, ${top}/${groups} groups, normalize ${normalize}${r.bias ? ", bias" : ""}`,
    args: {
      logits: { dtype: "f32", shape: [tokens, experts], fill: normal(2), pad: tokens % 3 },
      bias: r.bias ? { dtype: "f32", shape: [experts], fill: normal(r.bias) } : null,
      ids: { dtype: "i32", shape: [tokens, k] },
      weights: { dtype: "f32", shape: [tokens, k] },
      scoring: r.scoring,
      groups,
      top_groups: top,
      normalize,
      scale,
    },
    tolerance: { abs: 1e-7, rel: 2e-6 },
  };
}

/** Logits that are given; by default sigmoid with four groups of which two stay. */
function given(
  name: string,
  logits: number[],
  k: number,
  bias: number[] | null,
  r: Router = { scoring: 1 },
): OpCase {
  const base = route(1, logits.length, k, r);
  return {
    ...base,
    name,
    args: {
      ...base.args,
      logits: { dtype: "f32", shape: [1, logits.length], fill: values(logits) },
      bias: bias && { dtype: "f32", shape: [logits.length], fill: values(bias) },
    },
  };
}

export default {
  op: "moe_route",
  oracle,
  cases: [
    route(7, 24, 4, { scoring: 1, bias: 0.1, scale: 2.5 }),
    route(5, 128, 8, { scoring: 0 }),
    route(5, 60, 6, { scoring: 0, normalize: 0 }),
    route(300, 24, 4, { scoring: 1, bias: 0.1, scale: 2.827 }),
    route(9, 256, 8, { scoring: 1, groups: 8, top: 4, bias: 0.2, scale: 2.5 }),
    route(4, 30, 5, { scoring: 1, groups: 5, top: 2, normalize: 0, bias: 0.3 }),
    route(3, 12, 6, { scoring: 0, groups: 3, top: 2 }),
    route(6, 7, 7, { scoring: 1, normalize: 0 }),
    route(2, 1, 1, { scoring: 0 }),
    route(0, 8, 2, { scoring: 1 }),
    route(3, 384, 8, { scoring: 1, bias: 0.1, scale: 2.827 }),
    route(3, 700, 40, { scoring: 0, groups: 35, top: 9, bias: 0.01 }),
    given("equal choices: the lower index first", [1, 2, 2, 2, 1, 2], 3, null),
    given("equal choices over groups", [1, 1, 1, 1, 1, 1, 1, 1], 3, null, { scoring: 1, groups: 4, top: 2 }),
    given("saturated scores are equal choices", [60, 50, 70, 40], 2, null),
    given("the bias chooses and does not weigh", [3, 2, 1, 0], 2, [0, 0, 0, 5]),
    given("a negative bias never lets a masked group in", [2, 2, 1, 1], 2, [-9, -9, -20, -20], {
      scoring: 1,
      groups: 2,
      top: 1,
    }),
    given("a NaN logit gives NaN weights", [3, Number.NaN, 1, 0], 2, null),
    given("infinite logits", [Number.NEGATIVE_INFINITY, 1, Number.NEGATIVE_INFINITY, 0], 2, null, {
      scoring: 0,
    }),
  ],
  bad: [
    {
      name: "more experts than there are",
      args: { ids: { dtype: "i32", shape: [7, 25] }, weights: { dtype: "f32", shape: [7, 25] } },
      error: /^ids: asks for 25 experts per token, 24 can be chosen$/,
    },
    {
      name: "groups that do not divide",
      args: { groups: 5, top_groups: 2 },
      error: /^groups: must divide the 24 experts, is 5$/,
    },
    {
      name: "more top groups than groups",
      args: { groups: 4, top_groups: 5 },
      error: /^top_groups: must be an integer from 1 to 4/,
    },
    {
      name: "groups of one expert",
      args: { groups: 24, top_groups: 8 },
      error: /^groups: needs at least two experts per group$/,
    },
    {
      name: "more than the kept groups hold",
      args: { groups: 12, top_groups: 1 },
      error: /^ids: asks for 4 experts per token, 2 can be chosen$/,
    },
    { name: "an unknown scoring", args: { scoring: 2 }, error: /^scoring: must be an integer from 0 to 1/ },
    {
      name: "weights of another shape",
      args: { weights: { dtype: "f32", shape: [7, 3] } },
      error: /^weights: must be f32\[7, 4\]/,
    },
  ],
} satisfies OpCases;
