// The kernel of cuda_decode.cuh; instantiated by cuda_decode_*.cu.
#pragma once

#include "ops/attention_gqa/cuda_decode.cuh"

namespace edgewise::cuda {

// Fragments of the stored type: pairs of f16 from pairs of codes, or bf16 as it is.
template <class Kv>
__device__ void mma_kv(float c[4], const uint32_t a[4], uint32_t b0, uint32_t b1) {
  const uint32_t b[2] = {b0, b1};
  if constexpr (sizeof(Kv) == 1) mma_f16(c, a, b);
  else mma_bf16(c, a, b);
}

__device__ inline uint32_t word_of(const uint4& v, int i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }

// Both operand registers of step `step` (fp8: 4, bf16: 2 of them) from 16 bytes.
template <class Kv>
__device__ void operand(const uint4& raw, int step, uint32_t& b0, uint32_t& b1) {
  if constexpr (sizeof(Kv) == 1) {
    const uint32_t word = word_of(raw, step);
    b0 = e4m3x2_to_f16x2(static_cast<uint16_t>(word));
    b1 = e4m3x2_to_f16x2(static_cast<uint16_t>(word >> 16));
  } else {
    b0 = word_of(raw, 2 * step);
    b1 = word_of(raw, 2 * step + 1);
  }
}

// What the stored type's products take: bf16 activations as f16, out of range clipped.
template <class Kv>
__device__ uint32_t operand_of_act(uint32_t pair) {
  if constexpr (sizeof(Kv) == 2) return pair;
  const float2 v = unpack_bf16x2(pair);
  return pack_f16x2(fminf(fmaxf(v.x, -65504.0f), 65504.0f), fminf(fmaxf(v.y, -65504.0f), 65504.0f));
}
template <class Kv>
__device__ float2 unpack_operand(uint32_t pair) {
  if constexpr (sizeof(Kv) == 2) return unpack_bf16x2(pair);
  else return unpack_f16x2(pair);
}
template <class Kv>
__device__ uint32_t pack_operand(float low, float high) {
  if constexpr (sizeof(Kv) == 2) return pack_bf16x2(low, high);
  else return pack_f16x2(low, high);
}

// Sums and softmax state of a warp for 16 queries. Lane (g, t) has queries g and g + 8, and of tile n of the columns
// dims 2 n' .. as dim_of says. Scores are in powers of two.
template <int kColumns>
struct DecodeState {
  float sums[kColumns][4];
  float largest[2], total[2];  // total: of this lane's tokens
  float unit;                  // what the sums count in: the scale of values
};

template <class Kv, int kDim, bool kTokenScales>
class DecodeBlock {
  using Shape = DecodeShape<Kv, kDim>;
  using State = DecodeState<Shape::kColumns>;

  const GqaArgs<bf16>& a_;
  const DeviceRows& rows_;
  const DecodePlan& plan_;
  const Fault fault_;

  //   shared   [ stages | merge | query, f16 or bf16, as fragments | full, empty | largest, total [warps][16] | token scales ]
  unsigned char* stages_;
  float4* merge_;
  uint4* query_;
  CopyBarrier *full_, *empty_;
  float *largest_, *total_;
  float* scales_;  // [warps][2][64]
  int* flag_;

  const int warp_ = threadIdx.x / 32, lane_ = threadIdx.x % 32, g_ = lane_ / 4, t_ = lane_ % 4;

 public:
  __device__ DecodeBlock(const GqaArgs<bf16>& a, const DeviceRows& rows, const DecodePlan& plan, Fault fault)
      : a_(a), rows_(rows), plan_(plan), fault_(fault) {
    stages_ = static_cast<unsigned char*>(dynamic_shared());
    merge_ = reinterpret_cast<float4*>(stages_ + Shape::kStages * Shape::kTileBytes);
    query_ = reinterpret_cast<uint4*>(reinterpret_cast<unsigned char*>(merge_) + Shape::kMergeBytes);
    full_ = reinterpret_cast<CopyBarrier*>(reinterpret_cast<unsigned char*>(query_) + Shape::kQueryBytes);
    empty_ = full_ + Shape::kStages;
    largest_ = reinterpret_cast<float*>(empty_ + Shape::kStages);
    total_ = largest_ + kDecodeWarps * kUnitQueries;
    scales_ = total_ + kDecodeWarps * kUnitQueries;
    flag_ = reinterpret_cast<int*>(scales_ + kDecodeWarps * 2 * kPageTokens);
  }

  __device__ void run() {
    if (threadIdx.x == 0)
      for (int i = 0; i < Shape::kStages; ++i) barrier_init(&full_[i], 1), barrier_init(&empty_[i], 1);
    fence_barrier_init();
    __syncthreads();
    wait_for_previous_kernel();
    let_next_kernel_start();
    if (warp_ == kDecodeWarps) produce();
    else consume();
  }

 private:
  __device__ int first_tile(const Segment& s) const { return s.page_begin * Shape::kTilesPerPage; }
  __device__ int end_tile(const Segment& s) const {
    return min(s.page_end * Shape::kTilesPerPage, (s.row.past + Shape::kTileTokens - 1) / Shape::kTileTokens);
  }

  // ---- producer: tiles in the order of the segments, into the ring ----

  __device__ void produce() {
    SegmentWalk walk(rows_, plan_, a_.group, a_.kv_heads, fault_);
    Segment s;
    int turn = 0;
    while (walk.next(s)) {
      const int end = end_tile(s);
      const uint8_t* head = a_.pool + s.kv_head * a_.order.head_bytes();
      for (int first = first_tile(s); first < end; first += 32) {
        const int mine = first + lane_;
        int page = 0;
        if (mine < end) page = rows_.page(s.row, mine / Shape::kTilesPerPage, fault_);
        const int n = min(32, end - first);
        for (int i = 0; i < n; ++i, ++turn) {
          const int64_t from = __shfl_sync(kAllLanes, page, i);
          const int tile = first + i, stage = turn % Shape::kStages;
          if (lane_ == 0) {
            if (turn >= Shape::kStages) barrier_wait(&empty_[stage], (turn / Shape::kStages - 1) & 1);
            const int groups = min(Shape::kGroups, (s.row.past - tile * Shape::kTileTokens + 15) / 16);
            const uint32_t bytes = groups * Shape::kGroupBytes;
            barrier_arrive_expect(&full_[stage], bytes);
            bulk_copy(stages_ + stage * Shape::kTileBytes,
                      head + from * a_.order.page_bytes() + tile % Shape::kTilesPerPage * Shape::kTileBytes, bytes,
                      &full_[stage], true);
          }
          __syncwarp();
        }
      }
    }
  }

  // ---- consumers ----

  __device__ void consume() {
    SegmentWalk walk(rows_, plan_, a_.group, a_.kv_heads, fault_);
    Segment s;
    int turn = 0;  // of the segment's first tile
    while (walk.next(s)) {
      const int first = first_tile(s), end = end_tile(s);
      uint32_t query[Shape::kQueryInShared ? 1 : Shape::kSteps][4];
      load_query(s, query);
      State state;
      start(s, query, state);
      float scale_registers[4];
      int i = (warp_ - turn % kDecodeWarps + kDecodeWarps) % kDecodeWarps;  // this warp's first tile
      if (kTokenScales && first + i < end) load_scales(s, first + i, scale_registers);
      for (; first + i < end; i += kDecodeWarps) {
        if constexpr (kTokenScales) {
          store_scales(scale_registers);
          if (first + i + kDecodeWarps < end) load_scales(s, first + i + kDecodeWarps, scale_registers);
        }
        const int at = turn + i, stage = at % Shape::kStages;
        barrier_wait(&full_[stage], at / Shape::kStages & 1);
        attend(stages_ + stage * Shape::kTileBytes, s.row.past - (first + i) * Shape::kTileTokens, query, state);
        __syncwarp();
        if (lane_ == 0) barrier_arrive(&empty_[stage]);
      }
      turn += end - first > 0 ? end - first : 0;
      finish(s, state);
    }
  }

  __device__ int queries(const Segment& s) const {
    return min(kUnitQueries, s.row.count * a_.group - s.slice * kUnitQueries);
  }
  // Token of the row and query head of query n of the unit.
  __device__ int token_of(const Segment& s, int n) const { return (s.slice * kUnitQueries + n) / a_.group; }
  __device__ int head_of(const Segment& s, int n) const {
    return s.kv_head * a_.group + (s.slice * kUnitQueries + n) % a_.group;
  }

  // Fragments of step `step`: lane (g, t) has, for its chunk's 64 bytes of dims, consecutive ones.
  __device__ void query_step(const Segment& s, int step, uint32_t out[4]) const {
    const int dim = step / Shape::kStepsPerChunk * (64 / static_cast<int>(sizeof(Kv))) +
                    t_ * (16 / static_cast<int>(sizeof(Kv))) + step % Shape::kStepsPerChunk * 4;
    for (int half = 0; half < 2; ++half) {
      const int n = g_ + 8 * half;
      uint2 pairs = make_uint2(0, 0);
      if (n < queries(s))
        pairs = *reinterpret_cast<const uint2*>(a_.q + (s.row.begin + token_of(s, n)) * a_.q_token + head_of(s, n) * a_.q_head + dim);
      out[half] = operand_of_act<Kv>(pairs.x);
      out[2 + half] = operand_of_act<Kv>(pairs.y);
    }
  }

  template <class Query>
  __device__ void load_query(const Segment& s, Query& query) {
    if constexpr (Shape::kQueryInShared) {
      // Nobody reads the last one any more: all warps have met in finish().
      for (int step = warp_; step < Shape::kSteps; step += kDecodeWarps) {
        uint32_t q[4];
        query_step(s, step, q);
        query_[step * 32 + lane_] = make_uint4(q[0], q[1], q[2], q[3]);
      }
      named_barrier(1, 32 * kDecodeWarps);
    } else {
#pragma unroll
      for (int step = 0; step < Shape::kSteps; ++step) query_step(s, step, query[step]);
    }
  }

  template <class Query>
  __device__ void get_query(const Query& query, int step, uint32_t out[4]) const {
    if constexpr (Shape::kQueryInShared) {
      const uint4 q = query_[step * 32 + lane_];
      out[0] = q.x, out[1] = q.y, out[2] = q.z, out[3] = q.w;
    } else {
      for (int i = 0; i < 4; ++i) out[i] = query[step][i];
    }
  }

  // First dim of the 2 * kChunkDims consecutive ones that this lane has in column tiles kChunkDims * c and on.
  __device__ int first_dim(int c) const { return (8 * c + 2 * t_) * Shape::kChunkDims; }

  // An empty state; in the block that has the end of the unit, warp w starts with the row's new token w, in f32.
  template <class Query>
  __device__ void start(const Segment& s, const Query& query, State& state) const {
    state.largest[0] = state.largest[1] = -INFINITY;
    state.total[0] = state.total[1] = 0;
    state.unit = kTokenScales ? 0x1p-60f : Shape::kFp8 ? a_.v_scale : 1.0f;
#pragma unroll
    for (int n = 0; n < Shape::kColumns; ++n)
      for (int i = 0; i < 4; ++i) state.sums[n][i] = 0;
    if (warp_ >= s.row.count || s.last_block != static_cast<int>(blockIdx.x)) return;
    const int64_t token = s.row.begin + warp_;
    const bf16* key = a_.k + token * a_.k_token + s.kv_head * a_.k_head;
    float score[2] = {0, 0};
#pragma unroll
    for (int step = 0; step < Shape::kSteps; ++step) {
      const int dim = step / Shape::kStepsPerChunk * (64 / static_cast<int>(sizeof(Kv))) +
                      t_ * (16 / static_cast<int>(sizeof(Kv))) + step % Shape::kStepsPerChunk * 4;
      const uint2 pairs = *reinterpret_cast<const uint2*>(key + dim);
      const float2 k0 = unpack_bf16x2(pairs.x), k1 = unpack_bf16x2(pairs.y);
      uint32_t q[4];
      get_query(query, step, q);
      for (int half = 0; half < 2; ++half) {
        const float2 q0 = unpack_operand<Kv>(q[half]), q1 = unpack_operand<Kv>(q[2 + half]);
        score[half] += q0.x * k0.x + q0.y * k0.y + q1.x * k1.x + q1.y * k1.y;
      }
    }
    float weight[2];
    for (int half = 0; half < 2; ++half) {
      score[half] += __shfl_xor_sync(kAllLanes, score[half], 1);
      score[half] += __shfl_xor_sync(kAllLanes, score[half], 2);
      const bool sees = token_of(s, g_ + 8 * half) >= warp_;
      state.largest[half] = sees ? score[half] * a_.softmax_scale * kLog2e : -INFINITY;
      weight[half] = sees ? exp2f(kWeightShift) : 0.0f;
      state.total[half] = t_ == 0 ? weight[half] : 0.0f;
      weight[half] /= state.unit;
    }
    const bf16* value = a_.v + token * a_.v_token + s.kv_head * a_.v_head;
#pragma unroll
    for (int c = 0; c < Shape::kColumns / Shape::kChunkDims; ++c)
#pragma unroll
      for (int i = 0; i < Shape::kChunkDims; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j)
          state.sums[c * Shape::kChunkDims + i][j] =
              weight[j / 2] * to_float(value[first_dim(c) + j % 2 * Shape::kChunkDims + i]);
  }

  // Scales of a tile's tokens: this lane's keys of tokens lane and lane + 32, then values.
  __device__ void load_scales(const Segment& s, int tile, float out[4]) const {
    const int64_t page = rows_.page(s.row, tile / Shape::kTilesPerPage, fault_);
    const int first = tile % Shape::kTilesPerPage * Shape::kTileTokens;
    const float* from = a_.scales + (page * kPageTokens + first) * 2 * a_.kv_heads + s.kv_head;
    for (int i = 0; i < 4; ++i) {
      const int token = lane_ + i % 2 * 32;
      // Behind the last token there may be anything.
      const bool there = token < Shape::kTileTokens && tile * Shape::kTileTokens + token < s.row.past;
      out[i] = there ? from[(token * 2 + i / 2) * a_.kv_heads] : 0.0f;
    }
  }
  __device__ void store_scales(const float values[4]) const {
    float* to = scales_ + warp_ * 2 * kPageTokens;
    __syncwarp();
    for (int i = 0; i < 4; ++i) to[i / 2 * kPageTokens + lane_ + i % 2 * 32] = values[i];
    __syncwarp();
  }

  // One tile; `tokens` of its tokens count, and maybe more than it has.
  template <class Query>
  __device__ void attend(const unsigned char* tile, int tokens, const Query& query, State& state) const {
    constexpr int kScoreTiles = 2 * Shape::kGroups, kBatch = kScoreTiles < 4 ? kScoreTiles : 4;
    float scores[kScoreTiles][4];
#pragma unroll
    for (int n = 0; n < kScoreTiles; ++n)
      for (int i = 0; i < 4; ++i) scores[n][i] = 0;

    // Column c of score tile 2 T + j is token 16 T + 4 (c / 2) + 2 j + c % 2: lane t then has tokens 4 t .. 4 t + 3.
    const unsigned char* keys = tile + (4 * (g_ / 2) + g_ % 2) * 64 + t_ * 16;
#pragma unroll
    for (int c = 0; c < Shape::kChunks; ++c)
#pragma unroll
      for (int first = 0; first < kScoreTiles; first += kBatch) {
        uint4 raw[kBatch];
#pragma unroll
        for (int n = 0; n < kBatch; ++n)
          raw[n] = *reinterpret_cast<const uint4*>(keys + (first + n) / 2 * Shape::kGroupBytes + c * 1024 + n % 2 * 128);
#pragma unroll
        for (int step = 0; step < Shape::kStepsPerChunk; ++step) {
          uint32_t q[4];
          get_query(query, c * Shape::kStepsPerChunk + step, q);
#pragma unroll
          for (int n = 0; n < kBatch; ++n) {
            uint32_t b0, b1;
            operand<Kv>(raw[n], step, b0, b1);
            mma_kv<Kv>(scores[first + n], q, b0, b1);
          }
        }
      }

    const float scale = a_.softmax_scale * kLog2e * (Shape::kFp8 && !kTokenScales ? a_.k_scale : 1.0f);
    const float* token_scales = scales_ + warp_ * 2 * kPageTokens;
    float top[2] = {state.largest[0], state.largest[1]};
    float value_top = 0;
#pragma unroll
    for (int n = 0; n < kScoreTiles; ++n) {
      const int token = n / 2 * 16 + 4 * t_ + n % 2 * 2;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float factor = scale;
        if constexpr (kTokenScales) {
          factor *= token_scales[token + i % 2];
          value_top = fmaxf(value_top, token_scales[kPageTokens + token + i % 2]);
        }
        scores[n][i] = token + i % 2 < tokens ? scores[n][i] * factor : -INFINITY;
        top[i / 2] = fmaxf(top[i / 2], scores[n][i]);
      }
    }
    float fade[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      top[half] = fmaxf(top[half], __shfl_xor_sync(kAllLanes, top[half], 1));
      top[half] = fmaxf(top[half], __shfl_xor_sync(kAllLanes, top[half], 2));
      fade[half] = exp2_fast(state.largest[half] - top[half]);
      state.largest[half] = top[half];
      state.total[half] *= fade[half];
    }
    float to_unit = 1;
    if constexpr (kTokenScales) {
      value_top = fmaxf(value_top, __shfl_xor_sync(kAllLanes, value_top, 1));
      value_top = fmaxf(value_top, __shfl_xor_sync(kAllLanes, value_top, 2));
      const float unit = fmaxf(state.unit, value_top);
      fade[0] *= state.unit / unit;
      fade[1] *= state.unit / unit;
      state.unit = unit;
      to_unit = 1.0f / unit;
    }
#pragma unroll
    for (int n = 0; n < Shape::kColumns; ++n)
      for (int i = 0; i < 4; ++i) state.sums[n][i] *= fade[i / 2];

    // Weights of groups of 16 tokens, as the left operand of the second product.
    // 8 bits are too few for them: with bf16 the rest that rounding leaves is multiplied too.
    uint32_t weights[Shape::kGroups][4], rests[Shape::kGroups][4];
#pragma unroll
    for (int n = 0; n < kScoreTiles; ++n) {
      const int token = n / 2 * 16 + 4 * t_ + n % 2 * 2;
      float w[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        w[i] = exp2_fast(scores[n][i] - (top[i / 2] - kWeightShift));
        state.total[i / 2] += w[i];
        if constexpr (kTokenScales) w[i] *= token_scales[kPageTokens + token + i % 2] * to_unit;
      }
      weights[n / 2][n % 2 * 2] = pack_operand<Kv>(w[0], w[1]);
      weights[n / 2][n % 2 * 2 + 1] = pack_operand<Kv>(w[2], w[3]);
      if constexpr (!Shape::kFp8)
        for (int half = 0; half < 2; ++half) {
          const float2 rounded = unpack_bf16x2(weights[n / 2][n % 2 * 2 + half]);
          rests[n / 2][n % 2 * 2 + half] = pack_bf16x2(w[2 * half] - rounded.x, w[2 * half + 1] - rounded.y);
        }
    }

    const unsigned char* values = tile + Shape::kGroupBytes / 2 + (t_ * 8 + (g_ + 2 * t_) % 8) * 16;
    const bool whole = tokens >= Shape::kTileTokens;
#pragma unroll
    for (int group = 0; group < Shape::kGroups; ++group) {
      if (16 * group >= tokens) break;  // not copied
#pragma unroll
      for (int c = 0; c < Shape::kColumns / Shape::kChunkDims; ++c) {
        const uint4 raw = *reinterpret_cast<const uint4*>(values + group * Shape::kGroupBytes + c * 512);
#pragma unroll
        for (int i = 0; i < Shape::kChunkDims; ++i) {
          uint32_t b0, b1;
          operand<Kv>(raw, i, b0, b1);
          if (!whole) {  // what lies behind the last token may be no number: zero times it is none either
            const int token = 16 * group + 4 * t_;
            b0 &= token + 1 < tokens ? ~0u : token < tokens ? 0xffffu : 0u;
            b1 &= token + 3 < tokens ? ~0u : token + 2 < tokens ? 0xffffu : 0u;
          }
          mma_kv<Kv>(state.sums[c * Shape::kChunkDims + i], weights[group], b0, b1);
          if constexpr (!Shape::kFp8) mma_kv<Kv>(state.sums[c * Shape::kChunkDims + i], rests[group], b0, b1);
        }
      }
    }
  }

  // Merges the warps' states into warp 0, in a fixed order, and writes the outputs or this block's part of them.
  __device__ void finish(const Segment& s, State& state) {
    for (int half = 0; half < 2; ++half) {
      state.total[half] += __shfl_xor_sync(kAllLanes, state.total[half], 1);
      state.total[half] += __shfl_xor_sync(kAllLanes, state.total[half], 2);
      if (t_ == 0) {
        largest_[warp_ * kUnitQueries + g_ + 8 * half] = state.largest[half];
        total_[warp_ * kUnitQueries + g_ + 8 * half] = state.total[half];
      }
    }
    named_barrier(1, 32 * kDecodeWarps);
    float top[2], total[2];
    for (int half = 0; half < 2; ++half) {
      const int n = g_ + 8 * half;
      top[half] = -INFINITY;
      for (int w = 0; w < kDecodeWarps; ++w) top[half] = fmaxf(top[half], largest_[w * kUnitQueries + n]);
      total[half] = 0;
      // A query that sees nothing here (drafts in the block that has only later new tokens) stays at nothing.
      for (int w = 0; w < kDecodeWarps; ++w) {
        const float m = largest_[w * kUnitQueries + n];
        total[half] += m == -INFINITY ? 0.0f : total_[w * kUnitQueries + n] * exp2_fast(m - top[half]);
      }
    }
    float factor[2];
    for (int half = 0; half < 2; ++half)
      factor[half] = state.largest[half] == -INFINITY ? 0.0f : exp2_fast(state.largest[half] - top[half]) * state.unit;
#pragma unroll
    for (int n = 0; n < Shape::kColumns; ++n)
      for (int i = 0; i < 4; ++i) state.sums[n][i] *= factor[i / 2];
    // Warps 4 .. 7 write to buffers 0 .. 3; later rounds to the writer's own, which it alone has read.
    for (int half_of = kDecodeWarps / 2; half_of > 0; half_of /= 2) {
      if (warp_ >= half_of && warp_ < 2 * half_of) {
        float4* to = merge_ + warp_ % (kDecodeWarps / 2) * Shape::kColumns * 32;
#pragma unroll
        for (int n = 0; n < Shape::kColumns; ++n)
          to[n * 32 + lane_] = make_float4(state.sums[n][0], state.sums[n][1], state.sums[n][2], state.sums[n][3]);
      }
      named_barrier(1, 32 * kDecodeWarps);
      if (warp_ < half_of) {
        const float4* from = merge_ + (warp_ + half_of) % (kDecodeWarps / 2) * Shape::kColumns * 32;
#pragma unroll
        for (int n = 0; n < Shape::kColumns; ++n) {
          const float4 other = from[n * 32 + lane_];
          state.sums[n][0] += other.x, state.sums[n][1] += other.y, state.sums[n][2] += other.z, state.sums[n][3] += other.w;
        }
      }
    }
    if (s.first_block == s.last_block) {
      if (warp_ == 0)
        for (int half = 0; half < 2; ++half) write(s, g_ + 8 * half, half, state, 1.0f / total[half]);
      return;
    }
    leave_part(s, state, top, total);
    combine(s);
  }

  __device__ void write(const Segment& s, int n, int half, const State& state, float factor) const {
    if (n >= queries(s)) return;
    bf16* out = a_.out + (s.row.begin + token_of(s, n)) * a_.out_token + head_of(s, n) * a_.out_head;
#pragma unroll
    for (int c = 0; c < Shape::kColumns / Shape::kChunkDims; ++c) {
      uint32_t words[Shape::kChunkDims];
#pragma unroll
      for (int i = 0; i < Shape::kChunkDims; ++i) {
        const int at = 2 * i;  // of the lane's 2 * kChunkDims dims
        const auto sum = [&](int d) {
          return state.sums[c * Shape::kChunkDims + d % Shape::kChunkDims][2 * half + d / Shape::kChunkDims] * factor;
        };
        words[i] = pack_bf16x2(sum(at), sum(at + 1));
      }
      if constexpr (Shape::kFp8) *reinterpret_cast<uint4*>(out + first_dim(c)) = make_uint4(words[0], words[1], words[2], words[3]);
      else *reinterpret_cast<uint2*>(out + first_dim(c)) = make_uint2(words[0], words[1]);
    }
  }

  // A block has at most two cut units: one that began before it (or spans it), and one that goes on behind it.
  __device__ float* part(const Segment& s, int block) const {
    return plan_.partial + static_cast<int64_t>(2 * block + (block == s.first_block ? 1 : 0)) * Shape::kPartialFloats;
  }

  __device__ void leave_part(const Segment& s, const State& state, const float top[2], const float total[2]) const {
    if (warp_ != 0) return;
    float* to = part(s, blockIdx.x);
#pragma unroll
    for (int n = 0; n < Shape::kColumns; ++n)
      reinterpret_cast<float4*>(to)[n * 32 + lane_] =
          make_float4(state.sums[n][0], state.sums[n][1], state.sums[n][2], state.sums[n][3]);
    if (t_ == 0)
      for (int half = 0; half < 2; ++half) {
        to[kUnitQueries * kDim + g_ + 8 * half] = top[half];
        to[kUnitQueries * kDim + kUnitQueries + g_ + 8 * half] = total[half];
      }
    __threadfence();
    __syncwarp();
    if (lane_ == 0) *flag_ = atomicAdd(&plan_.arrived[s.first_block], 1) == s.last_block - s.first_block ? 1 : 0;
  }

  // The last block of a unit adds all parts, in the order of blocks; every warp takes some of the column tiles.
  __device__ void combine(const Segment& s) {
    named_barrier(1, 32 * kDecodeWarps);
    if (*flag_ == 0) return;
    __threadfence();
    float top[2] = {-INFINITY, -INFINITY};
    for (int b = s.first_block; b <= s.last_block; ++b)
      for (int half = 0; half < 2; ++half)
        top[half] = fmaxf(top[half], __ldcg(part(s, b) + kUnitQueries * kDim + g_ + 8 * half));
    constexpr int kOwn = (Shape::kColumns + kDecodeWarps - 1) / kDecodeWarps;  // chunks' tiles stay together
    float sums[kOwn][4] = {};
    float total[2] = {0, 0};
#pragma unroll 4
    for (int b = s.first_block; b <= s.last_block; ++b) {
      const float* from = part(s, b);
      float factor[2];
      for (int half = 0; half < 2; ++half) {
        const float m = __ldcg(from + kUnitQueries * kDim + g_ + 8 * half);
        factor[half] = m == -INFINITY ? 0.0f : exp2_fast(m - top[half]);
        total[half] += factor[half] * __ldcg(from + kUnitQueries * kDim + kUnitQueries + g_ + 8 * half);
      }
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        const float4 v = __ldcg(reinterpret_cast<const float4*>(from) + (warp_ * kOwn + i) * 32 + lane_);
        sums[i][0] += v.x * factor[0], sums[i][1] += v.y * factor[0];
        sums[i][2] += v.z * factor[1], sums[i][3] += v.w * factor[1];
      }
    }
    for (int half = 0; half < 2; ++half) {
      const int n = g_ + 8 * half;
      if (n >= queries(s)) continue;
      bf16* out = a_.out + (s.row.begin + token_of(s, n)) * a_.out_token + head_of(s, n) * a_.out_head;
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        const int column = warp_ * kOwn + i, dim = first_dim(column / Shape::kChunkDims) + column % Shape::kChunkDims;
        out[dim] = from_float<bf16>(sums[i][2 * half] / total[half]);
        out[dim + Shape::kChunkDims] = from_float<bf16>(sums[i][2 * half + 1] / total[half]);
      }
    }
  }
};

template <class Kv, int kDim, bool kTokenScales>
__global__ void __launch_bounds__(kDecodeThreads, 1) decode_kernel(GqaArgs<bf16> a, DeviceRows rows, DecodePlan plan, Fault fault) {
  DecodeBlock<Kv, kDim, kTokenScales>(a, rows, plan, fault).run();
}

template <class Kv, int kDim, bool kTokenScales>
void launch_decode(const GqaArgs<bf16>& a, const DeviceRows& rows, Context& context) {
  using Shape = DecodeShape<Kv, kDim>;
  const int blocks = sm_count();
  const DecodePlan plan = plan_decode(a, rows, blocks, Shape::kPartialFloats, context);
  const Grid grid{.blocks = static_cast<unsigned>(blocks), .threads = kDecodeThreads, .shared = Shape::kShared, .dependent = true};
  launch(context, decode_kernel<Kv, kDim, kTokenScales>, grid, a, rows, plan, fault_of(context));
}

}  // namespace edgewise::cuda
