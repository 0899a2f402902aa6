// Byte-pair encoding by rank: of all adjacent pairs that are tokens, the one with the lowest rank merges first
// (openai/tiktoken). Short pieces are scanned; long ones use a heap, so that one word of a megabyte is no attack.

/** Byte strings as Latin-1 text, one character per byte, to their rank, which is the id. */
export type Ranks = ReadonlyMap<string, number>;

const SCAN_LIMIT = 64;

/** Ids of one pre-token. Every single byte must have a rank. */
export function encodePiece(piece: string, ranks: Ranks): number[] {
  const whole = ranks.get(piece);
  if (whole !== undefined) return [whole];
  const starts = piece.length <= SCAN_LIMIT ? mergeByScan(piece, ranks) : mergeByHeap(piece, ranks);
  const ids: number[] = [];
  for (let i = 0; i + 1 < starts.length; i++) {
    const id = ranks.get(piece.slice(starts[i], starts[i + 1]));
    if (id === undefined) throw new Error("the vocabulary lacks a single byte");
    ids.push(id);
  }
  return ids;
}

/** Start offsets of the merged parts, then the length. Quadratic. */
function mergeByScan(piece: string, ranks: Ranks): number[] {
  const starts = Array.from({ length: piece.length + 1 }, (_, i) => i);
  for (;;) {
    let best = -1;
    let least = Infinity;
    for (let i = 0; i + 2 < starts.length; i++) {
      const rank = ranks.get(piece.slice(starts[i], starts[i + 2]));
      if (rank !== undefined && rank < least) [best, least] = [i, rank];
    }
    if (best < 0) return starts;
    starts.splice(best + 1, 1);
  }
}

/**
 * The same merges in O(n log n): parts are a linked list over start offsets, candidate pairs lie in a binary heap
 * ordered by (rank, offset). An entry is stale when its left part is gone or one of its parts has grown; `end` tells.
 */
function mergeByHeap(piece: string, ranks: Ranks): number[] {
  const n = piece.length;
  const next = Int32Array.from({ length: n + 1 }, (_, i) => i + 1);
  const previous = Int32Array.from({ length: n + 1 }, (_, i) => i - 1);
  const alive = new Uint8Array(n + 1).fill(1);
  const heap = new PairHeap();
  const offer = (at: number) => {
    if (at < 0 || next[at] >= n) return;
    const end = next[next[at]];
    const rank = ranks.get(piece.slice(at, end));
    if (rank !== undefined) heap.push(rank, at, end);
  };
  for (let at = 0; at + 1 < n; at++) offer(at);
  for (let pair = heap.pop(); pair !== undefined; pair = heap.pop()) {
    const [, at, end] = pair;
    if (!alive[at] || next[at] >= n || next[next[at]] !== end) continue;
    alive[next[at]] = 0;
    next[at] = end;
    previous[end] = at;
    offer(at);
    offer(previous[at]);
  }
  const starts: number[] = [];
  for (let at = 0; at < n; at = next[at]) starts.push(at);
  starts.push(n);
  return starts;
}

type Pair = [rank: number, at: number, end: number];

/** A binary min-heap by rank, then by offset. */
class PairHeap {
  private readonly items: Pair[] = [];

  push(...pair: Pair): void {
    const items = this.items;
    let i = items.push(pair) - 1;
    while (i > 0) {
      const parent = (i - 1) >> 1;
      if (!before(pair, items[parent])) break;
      items[i] = items[parent];
      i = parent;
    }
    items[i] = pair;
  }

  pop(): Pair | undefined {
    const items = this.items;
    const top = items[0];
    const last = items.pop();
    if (last === undefined || items.length === 0) return top;
    let i = 0;
    for (;;) {
      let child = 2 * i + 1;
      if (child >= items.length) break;
      if (child + 1 < items.length && before(items[child + 1], items[child])) child++;
      if (!before(items[child], last)) break;
      items[i] = items[child];
      i = child;
    }
    items[i] = last;
    return top;
  }
}

function before(a: Pair, b: Pair): boolean {
  return a[0] < b[0] || (a[0] === b[0] && a[1] < b[1]);
}
