// Causal attention of many new tokens of a row (a chunk of a prompt) on tensor cores, over paged prefixes, ragged batches.
//
//   block   128 queries of one row that share keys and values (query heads of a group are packed: query n of a row is its
//           token n / group, head n % group of the group), 8 warps of 16
//   loop    over tiles of 64 positions, aligned from position 0 on: one tile is one page, or its rest and new tokens
//           stage   Source: keys and values of the tile as f16 in shared memory, factors of their scores and weights
//           scores  queries x keys       weights  online softmax       sums  weights x values
// A query's bits depend on its own context alone: tiles do not move with the chunk, and rows of a product are independent.
// f16, not bf16: weights of 8 bits alone make errors of 0.5 % of the output's RMS. bf16 values of at least 2^-14 are exact in
// it; beyond 65504 they are clipped.
// The products are mma.sync on ldmatrix fragments; score_part and add_values are the places that wgmma would replace.
#pragma once

#include "cuda/kv_rows.cuh"
#include "cuda/launch.h"
#include "cuda/mma.cuh"

namespace edgewise::cuda {

constexpr int kPrefillQueries = 128, kPrefillThreads = 256, kPrefillTile = kPageTokens;
constexpr float kPrefillLog2e = 1.4426950408889634f;
constexpr float kPrefillShift = 8;  // weights up to 2^8: those of 2^-22 of the largest are normal in f16

// Rounded to f16, clipped.
__device__ inline uint32_t clip_f16x2(float low, float high) {
  return pack_f16x2(fminf(fmaxf(low, -65504.0f), 65504.0f), fminf(fmaxf(high, -65504.0f), 65504.0f));
}
__device__ inline uint32_t bf16x2_to_f16x2(uint32_t pair) {
  const float2 v = unpack_bf16x2(pair);
  return clip_f16x2(v.x, v.y);
}
__device__ inline uint4 bf16x8_to_f16x8(const uint4& v) {
  return make_uint4(bf16x2_to_f16x2(v.x), bf16x2_to_f16x2(v.y), bf16x2_to_f16x2(v.z), bf16x2_to_f16x2(v.w));
}

struct PrefillArgs {
  const bf16* q;
  bf16* out;
  int64_t q_token, q_head, out_token, out_head;  // strides
  int kv_heads, group;                           // blocks of a query tile; heads = kv_heads * group
  int dim_k, dim_v;                              // at most the kernel's
  int least;                                     // rows with fewer new tokens are left alone
};

// A matrix of f16 rows in shared memory: 16-byte chunks of a row are swapped so that ldmatrix has no bank conflicts.
template <int kColumns>
struct SharedRows {
  f16* at;
  // The chunk of columns 8 c .. 8 c + 7.
  __device__ f16* chunk(int row, int c) const { return at + row * kColumns + (c ^ (row & 7)) * 8; }
  __device__ f16* element(int row, int column) const { return chunk(row, column / 8) + column % 8; }
};

template <int kDimK, int kDimV>
struct PrefillShared {
  SharedRows<kDimK> q, k;
  SharedRows<kDimV> v;
  float *key_factor, *value_factor;  // [64]: of the tile's tokens
  void* source;                      // what the Source asked for
  static constexpr int kBytes = 2 * ((kPrefillQueries + kPrefillTile) * kDimK + kPrefillTile * kDimV) + 2 * kPrefillTile * 4;

  __device__ explicit PrefillShared(void* memory) {
    q.at = static_cast<f16*>(memory);
    k.at = q.at + kPrefillQueries * kDimK;
    v.at = k.at + kPrefillTile * kDimK;
    key_factor = reinterpret_cast<float*>(v.at + kPrefillTile * kDimV);
    value_factor = key_factor + kPrefillTile;
    source = value_factor + kPrefillTile;
  }
};

// Blocks of a grid over all rows, whose lengths the host does not know: row r has the numbers from
// begin * group / 128 + r up to where row r + 1 starts; that is never too few, and at most one too many.
inline int prefill_tiles(const DeviceRows& rows, int group) {
  return static_cast<int>(static_cast<int64_t>(rows.tokens) * group / kPrefillQueries) + rows.rows;
}

struct PrefillTile {
  DeviceRow row;
  int first, count;  // queries of the row
};

__device__ inline PrefillTile prefill_tile(const DeviceRows& rows, const PrefillArgs& a, int number, Fault fault) {
  const auto start = [&](int r) { return static_cast<int>(static_cast<int64_t>(rows.row_start[r]) * a.group / kPrefillQueries) + r; };
  int low = 0, high = rows.rows;  // the first row that starts behind
  while (low < high) {
    const int middle = (low + high) / 2;
    if (start(middle) > number) high = middle;
    else low = middle + 1;
  }
  PrefillTile tile{{}, 0, 0};
  if (low == 0) return tile;
  tile.row = rows.row(low - 1, fault);
  if (!tile.row.live || tile.row.count < a.least) return tile;
  // The last tiles have most to do: they come first.
  const int queries = tile.row.count * a.group, tiles = (queries + kPrefillQueries - 1) / kPrefillQueries;
  const int index = tiles - 1 - (number - start(low - 1));
  if (index < 0) return tile;
  tile.first = index * kPrefillQueries;
  tile.count = min(kPrefillQueries, queries - tile.first);
  return tile;
}

template <int kDimK, int kDimV>
class PrefillWarp {
  const PrefillShared<kDimK, kDimV>& shared_;
  const int lane_ = threadIdx.x % 32, g_ = lane_ / 4, t_ = lane_ % 4, first_ = threadIdx.x / 32 * 16;

  static constexpr int kPart = 32;  // tokens at a time: what the registers of two blocks per multiprocessor allow

  float sums_[kDimV / 8][4];
  float largest_[2] = {-INFINITY, -INFINITY}, total_[2] = {0, 0};  // total: of this lane's columns

 public:
  __device__ explicit PrefillWarp(const PrefillShared<kDimK, kDimV>& shared) : shared_(shared) {
#pragma unroll
    for (int n = 0; n < kDimV / 8; ++n)
      for (int i = 0; i < 4; ++i) sums_[n][i] = 0;
  }

  // One tile; query g + 8 half sees its first sees[half] tokens.
  __device__ void attend(const int sees[2]) {
#pragma unroll
    for (int first = 0; first < kPrefillTile; first += kPart) {
      const int in_part[2] = {sees[0] - first, sees[1] - first};
      attend_part(first, in_part);
    }
  }

  // store(query, column, two results): columns are even.
  template <class Store>
  __device__ void finish(Store store) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      total_[half] += __shfl_xor_sync(kAllLanes, total_[half], 1);
      total_[half] += __shfl_xor_sync(kAllLanes, total_[half], 2);
      const float factor = 1.0f / total_[half];
#pragma unroll
      for (int n = 0; n < kDimV / 8; ++n)
        store(first_ + g_ + 8 * half, 8 * n + 2 * t_, sums_[n][2 * half] * factor, sums_[n][2 * half + 1] * factor);
    }
  }

 private:
  // Tokens first .. first + kPart of the tile.
  __device__ void attend_part(int first, const int sees[2]) {
    float scores[kPart / 8][4];
    score_part(first, scores);
    const bool masked = __any_sync(kAllLanes, sees[0] < kPart || sees[1] < kPart) != 0;
    float top[2] = {largest_[0], largest_[1]};
#pragma unroll
    for (int n = 0; n < kPart / 8; ++n) {
      const float2 factor = *reinterpret_cast<const float2*>(shared_.key_factor + first + 8 * n + 2 * t_);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        scores[n][i] *= i % 2 ? factor.y : factor.x;
        if (masked && 8 * n + 2 * t_ + i % 2 >= sees[i / 2]) scores[n][i] = -INFINITY;
        top[i / 2] = fmaxf(top[i / 2], scores[n][i]);
      }
    }
    float fade[2], base[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      top[half] = fmaxf(top[half], __shfl_xor_sync(kAllLanes, top[half], 1));
      top[half] = fmaxf(top[half], __shfl_xor_sync(kAllLanes, top[half], 2));
      base[half] = top[half] == -INFINITY ? 0.0f : top[half];  // nothing seen yet: weights are zero, not NaN
      fade[half] = exp2_fast(largest_[half] - base[half]);
      largest_[half] = top[half];
      total_[half] *= fade[half];
    }
    if (__any_sync(kAllLanes, fade[0] != 1.0f || fade[1] != 1.0f)) {
#pragma unroll
      for (int n = 0; n < kDimV / 8; ++n)
        for (int i = 0; i < 4; ++i) sums_[n][i] *= fade[i / 2];
    }
    uint32_t weights[kPart / 16][4];
#pragma unroll
    for (int n = 0; n < kPart / 8; ++n) {
      const float2 factor = *reinterpret_cast<const float2*>(shared_.value_factor + first + 8 * n + 2 * t_);
      float w[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        w[i] = exp2_fast(scores[n][i] - (base[i / 2] - kPrefillShift));
        total_[i / 2] += w[i];
        w[i] = fminf(w[i] * (i % 2 ? factor.y : factor.x), 65504.0f);
      }
      weights[n / 2][n % 2 * 2] = pack_f16x2(w[0], w[1]);
      weights[n / 2][n % 2 * 2 + 1] = pack_f16x2(w[2], w[3]);
    }
    add_values(first, weights);
  }

  __device__ void score_part(int first, float scores[kPart / 8][4]) const {
#pragma unroll
    for (int n = 0; n < kPart / 8; ++n)
      for (int i = 0; i < 4; ++i) scores[n][i] = 0;
#pragma unroll
    for (int step = 0; step < kDimK / 16; ++step) {
      uint32_t q[4];
      ldmatrix_x4(q, shared_.q.chunk(first_ + lane_ % 16, 2 * step + lane_ / 16));
#pragma unroll
      for (int n = 0; n < kPart / 8; n += 2) {
        uint32_t k[4];
        ldmatrix_x4(k, shared_.k.chunk(first + 8 * n + lane_ % 8 + lane_ / 16 * 8, 2 * step + lane_ / 8 % 2));
        mma_f16(scores[n], q, k);
        mma_f16(scores[n + 1], q, k + 2);
      }
    }
  }

  __device__ void add_values(int first, const uint32_t weights[kPart / 16][4]) {
#pragma unroll
    for (int step = 0; step < kPart / 16; ++step)
#pragma unroll
      for (int n = 0; n < kDimV / 8; n += 2) {
        uint32_t v[4];
        ldmatrix_x4_transposed(v, shared_.v.chunk(first + 16 * step + lane_ % 16, n + lane_ / 16));
        mma_f16(sums_[n], weights[step], v);
        mma_f16(sums_[n + 1], weights[step], v + 2);
      }
  }
};

// source.stage(row, rows, kv_head, first, end, shared, fault): all threads, the tile of positions `first` and on; tokens at
// `end` and behind are zeros. Source::kSmall: it takes no shared memory, so two blocks fit a multiprocessor, and one
// computes while the other stages.
template <class Source, int kDimK, int kDimV>
__global__ void __launch_bounds__(kPrefillThreads, Source::kSmall && kDimV <= 128 ? 2 : 1)
    prefill_kernel(PrefillArgs a, Source source, DeviceRows rows, Fault fault) {
  const PrefillShared<kDimK, kDimV> shared(dynamic_shared());
  wait_for_previous_kernel();
  let_next_kernel_start();
  if (blockIdx.x == 0 && blockIdx.y == 0) rows.check(fault);
  const int kv_head = blockIdx.y;
  const PrefillTile tile = prefill_tile(rows, a, blockIdx.x, fault);
  if (tile.count == 0) return;
  const auto token_of = [&](int query) { return (tile.first + query) / a.group; };
  const auto head_of = [&](int query) { return kv_head * a.group + (tile.first + query) % a.group; };

  // Columns that the rows do not have stay zero throughout.
  auto* words = static_cast<uint4*>(dynamic_shared());
  for (int i = threadIdx.x; i < PrefillShared<kDimK, kDimV>::kBytes / 16; i += kPrefillThreads) words[i] = make_uint4(0, 0, 0, 0);
  __syncthreads();
  for (int i = threadIdx.x; i < tile.count * (a.dim_k / 8); i += kPrefillThreads) {
    const int query = i / (a.dim_k / 8), c = i % (a.dim_k / 8);
    *reinterpret_cast<uint4*>(shared.q.chunk(query, c)) = bf16x8_to_f16x8(*reinterpret_cast<const uint4*>(
        a.q + (tile.row.begin + token_of(query)) * a.q_token + head_of(query) * a.q_head + 8 * c));
  }

  PrefillWarp<kDimK, kDimV> warp(shared);
  const int end = tile.row.past + token_of(tile.count - 1) + 1;
  int sees[2];  // positions that this lane's queries see
  for (int half = 0; half < 2; ++half) {
    const int query = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + 8 * half;
    sees[half] = tile.row.past + token_of(min(query, tile.count - 1)) + 1;
  }
  for (int first = 0; first < end; first += kPrefillTile) {
    source.stage(tile.row, rows, kv_head, first, end, shared, fault);
    __syncthreads();
    const int in_tile[2] = {sees[0] - first, sees[1] - first};
    warp.attend(in_tile);
    __syncthreads();
  }
  warp.finish([&](int query, int column, float x, float y) {
    if (query >= tile.count || column >= a.dim_v) return;
    bf16* out = a.out + (tile.row.begin + token_of(query)) * a.out_token + head_of(query) * a.out_head;
    *reinterpret_cast<uint32_t*>(out + column) = pack_bf16x2(x, y);
  });
}

template <class Source, int kDimK, int kDimV>
void launch_prefill(const PrefillArgs& a, const Source& source, const DeviceRows& rows, int source_bytes, Context& context) {
  const Grid grid{.blocks = {static_cast<unsigned>(prefill_tiles(rows, a.group)), static_cast<unsigned>(a.kv_heads)},
                  .threads = kPrefillThreads,
                  .shared = static_cast<size_t>(PrefillShared<kDimK, kDimV>::kBytes) + source_bytes,
                  .dependent = true};
  launch(context, prefill_kernel<Source, kDimK, kDimV>, grid, a, source, rows, fault_of(context));
}

// Zeros for tokens without a live row: attention_zero.cu.
void zero_dead_tokens(const PrefillArgs& a, const DeviceRows& rows, Context& context);

}  // namespace edgewise::cuda
