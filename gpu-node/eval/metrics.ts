// How far logits are from golden ones.

/** KL divergences in nats, golden to ours, over positions; differences over all logits. */
export interface LogitMetrics {
  mean_kl: number;
  median_kl: number;
  p90_kl: number;
  max_kl: number;
  max_abs: number;
  mean_abs: number;
  /** Share of positions whose likeliest token is the same. */
  top1_agreement: number;
}

/**
 * golden and ours: [positions * vocab], row by row.
 * @throws RangeError when our logits hold a NaN or an infinity, stating the position
 */
export function compareLogits(golden: Float32Array, ours: Float32Array, vocab: number): LogitMetrics {
  const positions = golden.length / vocab;
  const divergences: number[] = [];
  let agreed = 0;
  let maxAbs = 0;
  let sumAbs = 0;
  for (let t = 0; t < positions; t++) {
    const want = golden.subarray(t * vocab, (t + 1) * vocab);
    const got = ours.subarray(t * vocab, (t + 1) * vocab);
    for (let i = 0; i < vocab; i++) {
      const difference = Math.abs(want[i] - got[i]);
      if (!Number.isFinite(got[i]))
        throw new RangeError(`the logit of token ${i} at position ${t} is ${got[i]}`);
      maxAbs = Math.max(maxAbs, difference);
      sumAbs += difference;
    }
    divergences.push(divergence(want, got));
    if (argmax(want) === argmax(got)) agreed++;
  }
  divergences.sort((a, b) => a - b);
  return {
    mean_kl: divergences.reduce((a, b) => a + b, 0) / positions,
    median_kl: quantile(divergences, 0.5),
    p90_kl: quantile(divergences, 0.9),
    max_kl: divergences[positions - 1],
    max_abs: maxAbs,
    mean_abs: sumAbs / golden.length,
    top1_agreement: agreed / positions,
  };
}

/** KL(softmax(p) || softmax(q)) in nats; never below 0, as rounding could make it. */
function divergence(p: Float32Array, q: Float32Array): number {
  const logP = logSumExp(p);
  const logQ = logSumExp(q);
  let sum = 0;
  for (let i = 0; i < p.length; i++) sum += Math.exp(p[i] - logP) * (p[i] - logP - (q[i] - logQ));
  return Math.max(0, sum);
}

function logSumExp(values: Float32Array): number {
  const top = values.reduce((a, b) => Math.max(a, b), Number.NEGATIVE_INFINITY);
  let sum = 0;
  for (const value of values) sum += Math.exp(value - top);
  return top + Math.log(sum);
}

/** Index of the largest value, the lowest among equals. */
export function argmax(values: Float32Array): number {
  let best = 0;
  for (let i = 1; i < values.length; i++) if (values[i] > values[best]) best = i;
  return best;
}

/** Of sorted values, with linear interpolation between neighbours. */
function quantile(sorted: number[], share: number): number {
  const at = (sorted.length - 1) * share;
  const low = Math.floor(at);
  const high = Math.min(low + 1, sorted.length - 1);
  return sorted[low] + (sorted[high] - sorted[low]) * (at - low);
}
