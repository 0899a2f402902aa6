// The bounds that an honest implementation keeps to the goldens, and two backends to each other.
import type { LogitMetrics } from "../gpu-node/eval/metrics.ts";

export type Figures = Pick<LogitMetrics, "max_abs" | "mean_kl" | "median_kl" | "p90_kl" | "top1_agreement">;

interface Bound {
  figure: string;
  value: number;
  limit: number;
  /** The value must be at least the limit, not at most. */
  least?: boolean;
}

/** Against golden logits. In MoE models near-ties of the routing flip, so the mean is held for dense ones alone. */
export function goldenBounds(report: Figures, precision: "f32" | "bf16", dense: boolean): Bound[] {
  const { max_abs, mean_kl, median_kl, p90_kl, top1_agreement } = report;
  if (precision === "f32") return [{ figure: "max_abs", value: max_abs, limit: 2e-5 }];
  return [
    { figure: "median_kl", value: median_kl, limit: 1.5e-4 },
    { figure: "p90_kl", value: p90_kl, limit: 2e-3 },
    { figure: "top1_agreement", value: top1_agreement, limit: 0.92, least: true },
    ...(dense ? [{ figure: "mean_kl", value: mean_kl, limit: 1.5e-4 }] : []),
  ];
}

/** Between two backends with the same FP8 KV format. */
export function backendBounds({ median_kl, top1_agreement }: Figures): Bound[] {
  return [
    { figure: "median_kl", value: median_kl, limit: 5e-4 },
    { figure: "top1_agreement", value: top1_agreement, limit: 0.85, least: true },
  ];
}

/** One text per bound that does not hold; NaN holds none. */
export function violations(bounds: Bound[]): string[] {
  return bounds
    .filter(({ value, limit, least }) => !(least ? value >= limit : value <= limit))
    .map(({ figure, value, limit, least }) => `${figure} ${value} ${least ? "<" : ">"} ${limit}`);
}

/** Largest share of an upper bound that a figure takes up. */
export function worstShare(bounds: Bound[]): number {
  return Math.max(...bounds.filter(({ least }) => !least).map(({ value, limit }) => value / limit));
}
