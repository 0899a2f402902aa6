// The first candidates of a row: a given number (top-k), or the fewest that reach a mass (top-p). No sort of the row.
//
// Candidates at and above a bound go to a list in shared memory, which is sorted. The first bound is a guess that holds
// for counts: among the threads' own largest logits, as many as are asked for lie above it. When the guess does not
// reach the goal, or more lie above it than the list holds, passes with three pivots quarter the range of keys that the
// last candidate lies in until the rest fits. Only keys that more tokens share than the list holds are ranked by id in
// a pass of their own.
#pragma once

#include "ops/sample/passes.cuh"

namespace edgewise::cuda {

constexpr int kListed = 2048;

// Shared memory of a block.
struct Selection {
  uint64_t list[kListed];  // by rank, after sorting: ~key << 32 | id
  uint64_t scratch[32];
  uint64_t warp_sums[32];
  int32_t listed, found;
};

// What is kept of a row.
struct Kept {
  Cut cut;
  int32_t listed;  // all that is kept, by rank, is list[0 .. listed); -1: it is not
};

__device__ inline uint64_t rank_word(uint32_t key, int32_t id) {
  return static_cast<uint64_t>(~key) << 32 | static_cast<uint32_t>(id);
}
__device__ inline uint32_t key_in(uint64_t word) { return ~static_cast<uint32_t>(word >> 32); }
__device__ inline int32_t id_in(uint64_t word) { return static_cast<int32_t>(word); }

// Bitonic sort, rising. Up to the next power of two behind `count` must lie within the list.
__device__ inline void sort_list(uint64_t* list, int count) {
  int size = 1;
  while (size < count) size *= 2;
  for (int i = count + threadIdx.x; i < size; i += blockDim.x) list[i] = ~uint64_t{0};
  for (int run = 2; run <= size; run *= 2)
    for (int step = run / 2; step > 0; step /= 2) {
      __syncthreads();
      for (int i = threadIdx.x; i < size / 2; i += blockDim.x) {
        const int low = i / step * 2 * step + i % step, high = low + step;
        const uint64_t a = list[low], b = list[high];
        if ((a > b) == ((low & run) == 0)) list[low] = b, list[high] = a;
      }
    }
  __syncthreads();
}

// First index up to which measure(list[i]) adds up to `goal`, `count` when they do not.
template <class MeasureOf>
__device__ int list_reaches(Selection& s, int count, uint64_t goal, const MeasureOf& measure) {
  if (threadIdx.x == 0) s.found = count;
  uint64_t before = 0;
  for (int first = 0; first < count; first += blockDim.x) {
    const int i = first + threadIdx.x;
    const uint64_t mine = i < count ? measure(s.list[i]) : 0;
    const PrefixSum sum = block_prefix_sum(mine, s.scratch);
    const uint64_t through = before + sum.through;
    if (i < count && through >= goal && through - mine < goal) s.found = i;
    before += sum.total;
  }
  __syncthreads();
  const int found = s.found;
  __syncthreads();
  return found;
}

// The largest key, of those whose low 16 bits are zero, that at least `rank` threads' best keys reach.
__device__ inline uint32_t guess_bound(Selection& s, uint32_t best_key, int rank) {
  uint32_t bound = 0;
  for (int bit = 31; bit >= 16; --bit) {
    const uint32_t next = bound | 1u << bit;
    if (block_total(best_key >= next, s.scratch) >= static_cast<uint64_t>(rank)) bound = next;
  }
  return bound;
}

// A goal: `wanted` candidates, or by mass the share `wanted` of the weights of all that is kept.
struct Goal {
  bool by_mass;
  double wanted;
  Weights weights;
  __device__ uint64_t measure(uint32_t key) const { return by_mass ? weights.of(value_of(key)) : 1; }
};

struct Gathered {
  uint64_t inside, all;  // measure of what is kept within [low, high), and of all that is kept
  int32_t count;         // listed, or more than kListed
};

// Lists what `cut` keeps with keys in [low, high).
__device__ inline Gathered gather(const LogitRow& row, const Cut& cut, uint32_t low, uint32_t high, const Goal& goal,
                                  Selection& s) {
  __syncthreads();
  if (threadIdx.x == 0) s.listed = 0;
  __syncthreads();
  uint64_t inside = 0, all = 0;
  volatile int32_t* listed = &s.listed;
  row.for_each([&](float v, int32_t id) {
    const uint32_t key = key_of(v);
    if (!cut.keeps(key, id)) return;
    const uint64_t measure = goal.measure(key);
    all += measure;
    if (key < low || key >= high) return;
    inside += measure;
    if (*listed > kListed) return;
    const int at = atomicAdd(&s.listed, 1);
    if (at < kListed) s.list[at] = rank_word(key, id);
  });
  inside = block_total(inside, s.scratch);
  all = block_total(all, s.scratch);
  return {inside, all, s.listed};
}

// The quarter of [low, high) that the last candidate lies in; `above` grows by the measure of what lies over it.
__device__ inline void quarter(const LogitRow& row, const Cut& cut, uint32_t& low, uint32_t& high, uint64_t& above,
                               uint64_t target, const Goal& goal, Selection& s) {
  const uint64_t width = high - low;
  uint32_t pivots[3];
  uint64_t from[3] = {};  // measure of [pivot, high)
  for (int j = 0; j < 3; ++j) pivots[j] = low + static_cast<uint32_t>(width * (j + 1) / 4);
  row.for_each([&](float v, int32_t id) {
    const uint32_t key = key_of(v);
    if (key >= high || key < pivots[0] || !cut.keeps(key, id)) return;
    const uint64_t measure = goal.measure(key);
    for (int j = 0; j < 3; ++j) from[j] += key >= pivots[j] ? measure : 0;
  });
  for (int j = 0; j < 3; ++j) from[j] = block_total(from[j], s.scratch);
  uint64_t over = 0;
  uint32_t end = high;
  for (int j = 2; j >= 0; --j) {
    if (pivots[j] == low || pivots[j] == end) continue;
    if (above + from[j] >= target) {
      low = pivots[j];
      break;
    }
    over = from[j];
    end = pivots[j];
  }
  high = end;
  above += over;
}

// Tightens what is kept to the first candidates that reach the goal; leaves it when all of them do not.
// `best_key`: of this thread's own tokens. `guess_rank`: how many threads' best to guess by; above half of them: no guess.
__device__ inline void select_first(const LogitRow& row, Kept& kept, uint32_t top_key, uint32_t best_key, int guess_rank,
                                    const Goal& goal, Selection& s) {
  const uint32_t base = kept.cut.key;
  uint32_t low = base, high = top_key + 1;
  if (row.vocab > kListed && guess_rank <= static_cast<int>(blockDim.x) / 2)
    low = max(base, guess_bound(s, best_key, guess_rank));
  uint64_t above = 0;
  Gathered got = gather(row, kept.cut, low, high, goal, s);
  uint64_t target = static_cast<uint64_t>(goal.wanted);
  if (goal.by_mass) target = static_cast<uint64_t>(ceil(goal.wanted * static_cast<double>(got.all)));
  if (target == 0) target = 1;
  if (got.inside < target && got.all >= target) {  // the guess was too high
    above = got.inside;
    high = low;
    low = base;
    got.count = kListed + 1;
  } else if (got.all < target) {
    if (low == base && got.count <= kListed) sort_list(s.list, kept.listed = got.count);
    else kept.listed = -1;
    return;
  }
  while (got.count > kListed && high - low > 1) {
    quarter(row, kept.cut, low, high, above, target, goal, s);
    got = gather(row, kept.cut, low, high, goal, s);
  }
  if (got.count > kListed) {  // one key
    const uint64_t each = goal.measure(low), ties = (target - above + each - 1) / each;
    const Cut cut = kept.cut;
    const auto tie = [&](float v, int32_t id) { return static_cast<uint64_t>(key_of(v) == low && cut.keeps(low, id)); };
    sum_by_warp(row, tie, s.warp_sums);
    kept.cut = {low, walk(row, tie, ties - 1, s.warp_sums, &s.found)};
    kept.listed = -1;
    return;
  }
  sort_list(s.list, got.count);
  const int last = list_reaches(s, got.count, target - above, [&](uint64_t word) { return goal.measure(key_in(word)); });
  kept.cut = {key_in(s.list[last]), id_in(s.list[last])};
  kept.listed = above == 0 ? last + 1 : -1;
}

}  // namespace edgewise::cuda
