// Decode attention over stored tokens on tensor cores, for kv_lora 512 and rope 64: what every decode step waits for.
// Bytes: the pages of each row once per unit of columns, 576 per token in fp8. The design is that of a measured prototype:
//
//   One block per SM walks its part of the list of pages (cuda_plan.cuh). A producer warp keeps kStages blocks of 64 x 576
//   bytes in flight, one bulk copy each, in the order in which shared memory is read; more bytes in flight than that only
//   lengthen every queue. It alone waits for global memory: an ordinary load queues behind the pages for microseconds, so
//   queries come by bulk copy too, the first ones before any page. Eight consumer warps share each block of tokens, with
//   two barriers: scores -> weights -> values.
#pragma once

#include "cuda/bulk_copy.cuh"
#include "ops/attention_mla/cuda_tile.cuh"

namespace edgewise::cuda {

constexpr int kStages = 3;
constexpr int kDecodeThreads = kConsumers + 128;  // the producer warp, in a warpgroup that gives its registers away
// Registers of a thread: a block starts with 168 each, and whoever takes more waits for ever for what nobody gives.
template <class Tile>
constexpr int kProducerRegisters = Tile::kColumns == 64 ? 56 : 72;
template <class Tile>
constexpr int kConsumerRegisters = (3 * 168 - kProducerRegisters<Tile>) / 2;

// A segment, as the producer hands it to the consumers with its queries.
struct Segment {
  int tokens;      // stored ones that it covers
  int columns;     // real ones of the unit
  int slot;        // of its partial result
  int last;        // of this block
};

template <class Tile>
struct DecodeShared {
  static constexpr int kQ = kStages * kStageBytes, kS = kQ + Tile::kColumns * Tile::kQueryPitch;
  static constexpr int kP = kS + 2 * Tile::kColumns * 64 * 4, kRescale = kP + Tile::kColumns * kWeightPitch;
  static constexpr int kScales = kRescale + Tile::kColumns * 4;
  static constexpr int kBarriers = kScales + (Tile::kScaledByToken ? kStages * kPageTokens * 4 : 0);
  static constexpr int kSegment = kBarriers + (2 * kStages + 2) * 8, kBytes = kSegment + 16;
  static_assert(kBytes <= 227 << 10 && kBarriers % 16 == 0 && kSegment % 16 == 0);
};

template <class Tile>
struct DecodeState {
  uint8_t *stages, *q, *P;
  float *S, *rescale, *scales;
  CopyBarrier *full, *empty, *q_full, *q_empty;
  Segment* segment;

  __device__ explicit DecodeState(uint8_t* base) {
    using At = DecodeShared<Tile>;
    stages = base, q = base + At::kQ, P = base + At::kP;
    S = reinterpret_cast<float*>(base + At::kS), rescale = reinterpret_cast<float*>(base + At::kRescale);
    scales = reinterpret_cast<float*>(base + At::kScales);
    full = reinterpret_cast<CopyBarrier*>(base + At::kBarriers), empty = full + kStages;
    q_full = empty + kStages, q_empty = q_full + 1;
    segment = reinterpret_cast<Segment*>(base + At::kSegment);
  }
};

template <class Tile>
__device__ void produce(const MlaArgs& a, const Window& w, const MlaPlan& plan, const bf16* q, const BlockWork& start,
                        const DecodeState<Tile>& shared, Fault fault) {
  constexpr int kBlocksPerPage = kPageTokens / Tile::kTokens;
  const int lane = threadIdx.x % 32;
  int r = start.row, group = start.group, item = start.item, left = start.items;
  RowWork row = start.work;
  int stage = 0, parity = 1;  // a fresh barrier counts as one whose previous phase has ended
  for (int n = 0; left > 0; ++n) {
    const int items = w.deterministic ? 1 : min(left, row.items - item);
    const int page = item * w.chunk, tokens = min(row.past, (item + items) * w.chunk * kPageTokens) - page * kPageTokens;
    left -= items;
    const int columns = min(w.columns, row.count * a.heads - group * w.columns);
    const int slot = w.deterministic ? row.item + group * row.items + item
                                     : static_cast<int>(blockIdx.x) + row.unit + group;
    const auto send_query = [&] {
      if (lane != 0) return;
      barrier_wait(shared.q_empty, (n & 1) ^ 1);
      *shared.segment = {tokens, columns, slot, left == 0};
      barrier_arrive_expect(shared.q_full, columns * kWidth * 2);
      for (int i = 0; i < columns; ++i) {
        const int column = group * w.columns + i;
        bulk_copy(shared.q + i * Tile::kQueryPitch,
                  q + (row.begin + column / a.heads) * a.q_stride[0] + column % a.heads * a.q_stride[1], kWidth * 2,
                  shared.q_full);
      }
    };
    const int blocks = ceil_of(tokens, Tile::kTokens);
    // Later queries have to wait until the current ones are done with; pages go ahead of them.
    const int query_at = n == 0 ? 0 : min(blocks, kStages - 1);
    if (query_at == 0) send_query();
    // Page ids come 32 at a time, one request ahead; the first ones of a block are there already.
    const auto load_ids = [&](int from) {
      return (from + lane) * kPageTokens < tokens ? page_id(a.rows, row.slot, page + from + lane, fault) : 0;
    };
    const bool first_known = n == 0;
    int ids = first_known ? (lane == 0 ? start.pages[0] : lane == 1 ? start.pages[1] : lane == 2 ? start.pages[2] : start.pages[3])
                          : load_ids(0);
    int next_ids = load_ids(first_known ? 0 : 32);
    for (int b = 0; b < blocks; ++b) {
      const int index = b / kBlocksPerPage;
      if (b % kBlocksPerPage == 0 && (index % 32 == 0 ? index > 0 : first_known && index == kFirstPages)) {
        ids = next_ids;
        next_ids = load_ids(index / 32 * 32 + 32);
      }
      const int id = __shfl_sync(kAllLanes, ids, index % 32);
      if (lane == 0) {
        barrier_wait(shared.empty + stage, parity);
        const int part = b % kBlocksPerPage;
        barrier_arrive_expect(shared.full + stage, kStageBytes + (Tile::kScaledByToken ? kPageTokens * 4 : 0));
        bulk_copy(shared.stages + stage * kStageBytes, a.pool + id * a.page_bytes + part * kStageBytes, kStageBytes,
                  shared.full + stage, true);
        if constexpr (Tile::kScaledByToken)
          bulk_copy(shared.scales + stage * kPageTokens, a.scales + static_cast<int64_t>(id) * kPageTokens,
                    kPageTokens * 4, shared.full + stage);
      }
      if (++stage == kStages) stage = 0, parity ^= 1;
      if (b + 1 == query_at) send_query();
    }
    item += items;
    if (item == row.items && left > 0) {
      item = 0;
      if (++group == units_of(row, a.heads, w.columns)) {
        group = 0;
        do row = plan.rows[++r];
        while (row.items == 0);
      }
    }
  }
}

template <class Tile>
__device__ void consume(const MlaArgs& a, const Window& w, const Partials& partials, const DecodeState<Tile>& shared) {
  constexpr int kTiles = Tile::kColumns / 8;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const float scale_log2 = a.scale_log2 * a.scale;
  int stage = 0, parity = 0;
  for (int n = 0;; ++n) {
    barrier_wait(shared.q_full, n & 1);
    const Segment segment = *shared.segment;
    typename Tile::Query query;
    Tile::load_query(shared.q, segment.columns, query);
    const auto release_query = [&] {
      fence_async_proxy();
      __syncwarp();
      if (lane == 0) barrier_arrive(shared.q_empty);
    };
    if constexpr (Tile::kQueryInRegisters) release_query();
    else named_barrier(1, kConsumers);
    float O[kTiles][4][4] = {};
    Softmax<kTiles> run;
#pragma unroll
    for (int i = 0; i < kTiles; ++i) run.most[i] = -INFINITY, run.total[i] = 0;

    for (int left = segment.tokens; left > 0; left -= Tile::kTokens) {
      uint8_t* block = shared.stages + stage * kStageBytes;
      barrier_wait(shared.full + stage, parity);
      Tile::scores(block, shared.q, query, shared.S);
      named_barrier(1, kConsumers);
      if (left < Tile::kTokens) Tile::clear_tail(block, left);  // after all have read it as keys
      Tile::weights(shared.S, shared.scales + stage * kPageTokens, left, scale_log2, run, shared.P, shared.rescale);
      named_barrier(1, kConsumers);
      bool moved = false;
      float2 rescale[kTiles];
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        rescale[i] = *reinterpret_cast<const float2*>(shared.rescale + 8 * i + lane % 4 * 2);
        moved |= rescale[i].x != 1 || rescale[i].y != 1;
      }
      if (__any_sync(kAllLanes, moved)) {
#pragma unroll
        for (int i = 0; i < kTiles; ++i)
#pragma unroll
          for (int k = 0; k < 4; ++k) {
            O[i][k][0] *= rescale[i].x, O[i][k][1] *= rescale[i].y;
            O[i][k][2] *= rescale[i].x, O[i][k][3] *= rescale[i].y;
          }
      }
      Tile::values(block, shared.P, O);
      if (left < Tile::kTokens) fence_async_proxy();
      __syncwarp();
      if (lane == 0) barrier_arrive(shared.empty + stage);
      if (++stage == kStages) stage = 0, parity ^= 1;
    }

    const int64_t slot = static_cast<int64_t>(segment.slot) * w.columns;
    Tile::store(O, a.scale, segment.columns, partials.values + slot * kLatent);
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      const float total = warp_sum(run.total[i]);
      if (lane == 0 && 8 * i + warp < segment.columns)
        partials.sums[slot + 8 * i + warp] = make_float2(run.most[i] - Tile::kShift, total);
    }
    if constexpr (!Tile::kQueryInRegisters) release_query();
    if (segment.last) return;
  }
}

template <class Tile>
__global__ void __launch_bounds__(kDecodeThreads, 1)
    mla_decode_kernel(MlaArgs a, Window w, MlaPlan plan, const bf16* q, Partials partials, Fault fault) {
  const DecodeState<Tile> shared(static_cast<uint8_t*>(dynamic_shared()));
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) barrier_init(shared.full + i, 1), barrier_init(shared.empty + i, kConsumerWarps);
    barrier_init(shared.q_full, 1), barrier_init(shared.q_empty, kConsumerWarps);
    fence_barrier_init();
  }
  __syncthreads();
  wait_for_previous_kernel();
  let_next_kernel_start();
  if (threadIdx.x >= kConsumers) {
    give_registers<kProducerRegisters<Tile>>();
    if (threadIdx.x >= kConsumers + 32) return;
    const BlockWork start = plan.blocks[blockIdx.x];
    if (start.items > 0) produce<Tile>(a, w, plan, q, start, shared, fault);
  } else {
    take_registers<kConsumerRegisters<Tile>>();
    if (plan.blocks[blockIdx.x].items > 0) consume<Tile>(a, w, partials, shared);
  }
}

}  // namespace edgewise::cuda
