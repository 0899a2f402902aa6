// One step as a model sees it: which tokens, where they go, what they may read. All tensors are i32 on the device.
import type { Tensor } from "../native/addon.ts";

/**
 *   tokens   [ row 0's new tokens | row 1's | ... ]            T in all, rows back to back
 *   rowStart [ 0, n0, n0 + n1, ... ]                           R + 1
 *   a row's context:  [ past: in the pool | new: this step's ]
 *                       0 .. kvLen - n      kvLen - n .. kvLen
 */
export interface StepBatch {
  /** T, R and S; padding included. */
  readonly tokens: number;
  readonly rows: number;
  readonly samples: number;
  /** [T] */
  readonly tokenIds: Tensor;
  /** [T] position of each token in its sequence */
  readonly positions: Tensor;
  /** [T] page * 64 + offset where the token's KV goes; -1: nowhere */
  readonly writeSlots: Tensor;
  /** [R + 1] */
  readonly rowStart: Tensor;
  /** [R] tokens of context including this step's; 0: a padding or void row, whose attention output is zeros */
  readonly kvLen: Tensor;
  /** [R] row of `pageTable` that belongs to the row */
  readonly rowSlot: Tensor;
  /** [slots, maxPages] */
  readonly pageTable: Tensor;
  /** [S] index into the tokens whose logits are wanted */
  readonly logitRows: Tensor;
  /** Longest context and most new tokens of any row, for choosing kernels; constant within a graph's bucket. */
  readonly maxKvLen: number;
  readonly maxNewTokens: number;
}
