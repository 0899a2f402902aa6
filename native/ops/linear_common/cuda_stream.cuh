// Products of bf16 activations that stream the weights through shared memory once: decode, and prefill without cuBLASLt.
//
// Every warp works alone, on 16 rows of w: its lanes start bulk copies of 512-byte pieces of them into a ring of its own,
// multiply the pieces that have landed, and refill the slot. Two blocks of four warps fit an SM, 96 KB in flight each, and
// while they wait for the previous kernel the ring already fills: weights don't depend on it.
//
//   w is the M operand of the MMAs, tokens are the N operand (8 kTokens of them). A window is 32 k, of which lane 4 g + t owns
//   k = 8 t .. 8 t + 7 of rows g and g + 8 and of token g: one 16-byte load of x is the B fragments of the window's two MMAs,
//   and 16, 8 or 4 bytes of w (bf16, e4m3, int4) become the A fragments in registers. Codes are exact in bf16; scales
//   multiply the f32 sum of each block along K.
//
//   ring slot   | row 0: 512 bytes | pad | row 1 | pad | ... | row 15 |      pad = a window: reads are free of bank conflicts
//
// K is cut into parts, by N and K alone. They run in blocks of their own when there are few rows of x (the last warp to
// arrive adds the parts in order), else one after the other in the same block: the same sums, so that a row's bits depend
// neither on the other rows nor on their number. Bulk copies: 4.69 against 4.27 TB/s of plain loads (TARGETS, ceilings).
#pragma once

#include <algorithm>

#include "cuda/bulk_copy.cuh"
#include "cuda/mma.cuh"
#include "ops/linear_common/cuda_operands.cuh"

namespace edgewise::cuda::stream {

constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr int kTile = 16;                  // rows of w of a warp
constexpr int kBlockRows = kWarps * kTile;
constexpr int kPiece = 512;                // bytes of a row in a slot
constexpr int kWindow = 32;                // k
constexpr int kMaxParts = 8;
constexpr int kResultPitch = kTile + 1;    // floats

// Bytes of a window of one row.
constexpr int window_bytes(WeightForm form) { return form == WeightForm::dense ? 64 : form == WeightForm::fp8 ? 32 : 16; }
constexpr int slot_bytes(WeightForm form, int matrices) { return matrices * kTile * (kPiece + window_bytes(form)); }
constexpr int max_stages(int tokens) { return tokens <= 2 ? 3 : 2; }  // more tokens need more of the L1 for x
constexpr size_t shared_bytes(WeightForm form, int matrices, int stages) {
  return kWarps * stages * (slot_bytes(form, matrices) + sizeof(CopyBarrier));
}

struct Product {
  Matrix w[2];  // the second one of gate and up
  Rows rows;
  Groups groups;
  const void* bias;  // or null
  DType bias_dtype;
  bool out32;             // out is f32, else bf16
  int parts, part_windows;  // of K
  int parts_apart;        // 1: a block runs all parts; else `parts`: one each
  int scale_shift;        // windows that share a scale, log2
  int stages;             // of the rings: no more than a block has pieces
  float* partial;         // [part][tile][token][16], parts apart only; a tile is 16 rows of w
  uint32_t* counters;     // [tile], likewise
};

// A fragments of the two MMAs of a window: codes of rows g and g + 8 as bf16. zero: of the two rows, int4 only.
template <WeightForm kForm>
__device__ void load_a(uint32_t a[2][4], const char* row0, const char* row8, bool zeros, const int zero[2]);

template <>
__device__ inline void load_a<WeightForm::dense>(uint32_t a[2][4], const char* row0, const char* row8, bool, const int*) {
  const uint4 lo = *reinterpret_cast<const uint4*>(row0), hi = *reinterpret_cast<const uint4*>(row8);
  a[0][0] = lo.x, a[0][1] = hi.x, a[0][2] = lo.y, a[0][3] = hi.y;
  a[1][0] = lo.z, a[1][1] = hi.z, a[1][2] = lo.w, a[1][3] = hi.w;
}

__device__ inline uint32_t e4m3x2_to_bf16x2(uint32_t codes) {
  const float2 v = unpack_f16x2(e4m3x2_to_f16x2(static_cast<uint16_t>(codes)));
  return pack_bf16x2(v.x, v.y);
}

template <>
__device__ inline void load_a<WeightForm::fp8>(uint32_t a[2][4], const char* row0, const char* row8, bool, const int*) {
  const uint2 lo = *reinterpret_cast<const uint2*>(row0), hi = *reinterpret_cast<const uint2*>(row8);
  a[0][0] = e4m3x2_to_bf16x2(lo.x & 0xffffu), a[0][1] = e4m3x2_to_bf16x2(hi.x & 0xffffu);
  a[0][2] = e4m3x2_to_bf16x2(lo.x >> 16), a[0][3] = e4m3x2_to_bf16x2(hi.x >> 16);
  a[1][0] = e4m3x2_to_bf16x2(lo.y & 0xffffu), a[1][1] = e4m3x2_to_bf16x2(hi.y & 0xffffu);
  a[1][2] = e4m3x2_to_bf16x2(lo.y >> 16), a[1][3] = e4m3x2_to_bf16x2(hi.y >> 16);
}

// Eight codes v (0..15) as pairs of v - zero. 0x4300 | v is the bf16 number 128 + v.
__device__ inline void int4_to_bf16x2(uint32_t out[4], uint32_t codes, bool zeros, int zero) {
  uint32_t p[4];  // (v[i], v[i + 4])
  for (int i = 0; i < 4; ++i) p[i] = (codes >> (4 * i) & 0x000f000fu) | 0x43004300u;
  out[0] = __byte_perm(p[0], p[1], 0x5410), out[1] = __byte_perm(p[2], p[3], 0x5410);
  out[2] = __byte_perm(p[0], p[1], 0x7632), out[3] = __byte_perm(p[2], p[3], 0x7632);
  if (zeros) {  // 128 + zero need not be a bf16 number: two steps, each exact
    const float z = static_cast<float>(zero);
    const uint32_t both = pack_bf16x2(z, z);
    for (int i = 0; i < 4; ++i) out[i] = sub_bf16x2(sub_bf16x2(out[i], 0x43004300u), both);
  } else {
    for (int i = 0; i < 4; ++i) out[i] = sub_bf16x2(out[i], 0x43084308u);
  }
}

template <>
__device__ inline void load_a<WeightForm::int4>(uint32_t a[2][4], const char* row0, const char* row8, bool zeros, const int zero[2]) {
  uint32_t lo[4], hi[4];
  int4_to_bf16x2(lo, *reinterpret_cast<const uint32_t*>(row0), zeros, zero[0]);
  int4_to_bf16x2(hi, *reinterpret_cast<const uint32_t*>(row8), zeros, zero[1]);
  a[0][0] = lo[0], a[0][1] = hi[0], a[0][2] = lo[1], a[0][3] = hi[1];
  a[1][0] = lo[2], a[1][1] = hi[2], a[1][2] = lo[3], a[1][3] = hi[3];
}

// Windows of the parts that a block runs: [at, limit), cut at `end`, where the current part ends.
struct Cursor {
  int at, end, limit, part;

  __device__ int stage(int stage_windows) const { return min(stage_windows, end - at); }
  __device__ void advance(int windows) {
    at += windows;
    if (at == end) end = min(limit, end + part);
  }
};

// Leaves this warp's part in memory; the last warp to arrive at the tile gets the sum of all parts, in order.
template <int kRows>
__device__ bool add_parts(const Product& p, float* results, int n0, int part, int count) {
  const int lane = threadIdx.x % 32, tiles_n = (p.w[0].n + kTile - 1) / kTile;
  const int tile = (blockIdx.z * gridDim.y + blockIdx.y) * tiles_n + n0 / kTile, tiles = tiles_n * gridDim.y * gridDim.z;
  constexpr int kValues = kRows * kTile;
  const auto used = [&](int i) { return i / kTile < count; };
  float* mine = p.partial + (static_cast<int64_t>(part) * tiles + tile) * kValues;
  for (int i = lane; i < kValues; i += 32)
    if (used(i)) __stcg(&mine[i], results[i / kTile * kResultPitch + i % kTile]);
  __threadfence();
  __syncwarp();
  int last = 0;
  if (lane == 0) last = atomicAdd(&p.counters[tile], 1u) + 1 == static_cast<uint32_t>(p.parts);
  if (!__shfl_sync(kAllLanes, last, 0)) return false;
  __threadfence();
  if (lane == 0) p.counters[tile] = 0;
  for (int i = lane; i < kValues; i += 32) {
    if (!used(i)) continue;
    float sum = 0;
    for (int q = 0; q < p.parts; ++q) sum += __ldcg(p.partial + (static_cast<int64_t>(q) * tiles + tile) * kValues + i);
    results[i / kTile * kResultPitch + i % kTile] = sum;
  }
  __syncwarp();
  return true;
}

// The epilogue: bias or silu-mul, rounding.
template <int kMatrices, int kRows>
__device__ void store(const Product& p, const float* results, int n0, const Tile& tile) {
  const int lane = threadIdx.x % 32, column = lane % kTile, n = n0 + column;
  if (n >= p.w[0].n) return;
  const float bias = p.bias ? element(p.bias_dtype, p.bias, n) : 0.0f;
  for (int i = lane / kTile; i < tile.count; i += 32 / kTile) {
    float value = results[i * kResultPitch + column];
    if constexpr (kMatrices == 2) value = silu(value) * results[(kRows + i) * kResultPitch + column];
    else if (p.bias) value += bias;
    const int64_t at = p.rows.out_at(tile.p(i)) + n;
    if (p.out32) static_cast<float*>(p.rows.out)[at] = value;
    else static_cast<bf16*>(p.rows.out)[at] = from_float<bf16>(value);
  }
}

template <WeightForm kForm, int kMatrices, int kTokens>
__global__ void __launch_bounds__(kThreads, kMatrices == 1 ? 2 : 1) product_kernel(const __grid_constant__ Product p) {
  constexpr int kBytes = window_bytes(kForm), kPitch = kPiece + kBytes, kStageWindows = kPiece / kBytes;
  constexpr int kStages = max_stages(kTokens), kSlot = slot_bytes(kForm, kMatrices), kRows = 8 * kTokens;
  constexpr int kBatch = kTokens == 1 ? 8 : kTokens == 2 ? 4 : 2;  // windows whose loads of x are under way together
  constexpr bool kScaled = kForm != WeightForm::dense;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  char* ring = static_cast<char*>(dynamic_shared()) + warp * p.stages * kSlot;
  auto* full = static_cast<CopyBarrier*>(static_cast<void*>(static_cast<char*>(dynamic_shared()) + kWarps * p.stages * kSlot)) +
               warp * p.stages;
  if (lane == 0) {
    for (int i = 0; i < p.stages; ++i) barrier_init(&full[i], 1);
    fence_barrier_init();
  }
  __syncwarp();

  const Matrix& shape = p.w[0];
  const int n0 = (static_cast<int>(blockIdx.x) / p.parts_apart * kWarps + warp) * kTile;
  const int part = blockIdx.x % p.parts_apart, windows = shape.k / kWindow;
  if (p.groups.entries) wait_for_previous_kernel();
  Tile tile;
  if (!find_tile<kRows>(p.groups, blockIdx.y, &tile) || n0 >= shape.n) return;
  const bool none = tile.expert < 0;  // rows without an expert: their products are zeros
  const int limit = p.parts_apart == 1 ? windows : min(windows, (part + 1) * p.part_windows);
  Cursor load{part * p.part_windows, 0, limit, p.part_windows};
  if (none) load.limit = load.at;
  load.end = min(load.limit, load.at + load.part);
  Cursor now = load;

  // Copies: lane l has row l % 16, of matrix l / 16.
  const int copy_matrix = kMatrices == 2 ? lane / kTile : 0, copy_row = min(n0 + lane % kTile, shape.n - 1);
  const Matrix& copied = p.w[copy_matrix];
  const char* source = copied.data + max(tile.expert, 0) * copied.data_bytes +
                       static_cast<int64_t>(copy_row) * windows * kBytes;
  const int64_t expert_scales = max(tile.expert, 0) * shape.scales;
  const bool once = gridDim.y == 1;  // no other block reads these weights
  const auto issue = [&](int slot) {
    if (load.at >= load.limit) return;
    const int count = load.stage(kStageWindows);
    if (lane == 0) barrier_arrive_expect(&full[slot], kMatrices * kTile * count * kBytes);
    __syncwarp();
    if (lane < kMatrices * kTile) {
      bulk_copy(ring + slot * kSlot + lane * kPitch, source + load.at * kBytes, count * kBytes, &full[slot],
                once);
      if constexpr (kForm == WeightForm::int4) {  // the stage's scales: up to 64 bytes of a row
        const int64_t row = expert_scales + static_cast<int64_t>(copy_row) * copied.segments;
        const int size = copied.scale_dtype == DType::f32 ? 4 : 2;
        prefetch_l2(copied.scale + (row + (load.at >> p.scale_shift)) * size);
        prefetch_l2(copied.scale + (row + ((load.at + count - 1) >> p.scale_shift)) * size);
      }
    }
    __syncwarp();  // emulated, copies must be done before anyone waits
    load.advance(count);
  };
  for (int i = 0; i < p.stages; ++i) issue(i);
  wait_for_previous_kernel();
  let_next_kernel_start();  // a next kernel of this kind may fill its rings

  const char* x[kTokens];
  for (int i = 0; i < kTokens; ++i) {
    const int row = min(8 * i + g, tile.count - 1);  // columns of absent tokens repeat the last one; nobody reads them
    x[i] = static_cast<const char*>(p.rows.x) + 2 * (p.rows.x_at(tile.p(row)) + 8 * t);
  }
  int64_t scale_row[2] = {};
  if constexpr (kScaled)
    for (int i = 0; i < 2; ++i)
      scale_row[i] = expert_scales + static_cast<int64_t>(min(n0 + g + 8 * i, shape.n - 1) / shape.block_n) * shape.segments;

  // acc: the current block of scales, sum: the current part, total: the parts that are done. Gate and up have one part.
  float total[kMatrices][kTokens][4] = {}, sum[kMatrices][kTokens][4] = {}, acc[kMatrices][kTokens][4] = {};
  for (int stage = 0; now.at < now.limit; ++stage) {
    const int slot = stage % kStages, count = now.stage(kStageWindows);
    const bool part_ends = now.at + count == now.end;
    const char* a_base = ring + slot * kSlot + g * kPitch + t * (kBytes / 4);
    for (int first = 0; first < count; first += kBatch) {
      uint4 b[kBatch][kTokens];
      float scale[kBatch][kMatrices][2];
      int zero[kBatch][kMatrices][2];
#pragma unroll
      for (int j = 0; j < kBatch; ++j) {
        if (first + j >= count) break;
        const int window = now.at + first + j;
#pragma unroll
        for (int i = 0; i < kTokens; ++i) b[j][i] = *reinterpret_cast<const uint4*>(x[i] + window * (2 * kWindow));
        if constexpr (kScaled)
#pragma unroll
          for (int m = 0; m < kMatrices; ++m)
#pragma unroll
            for (int i = 0; i < 2; ++i) {
              const int64_t at = scale_row[i] + (window >> p.scale_shift);
              scale[j][m][i] = kForm == WeightForm::fp8 ? reinterpret_cast<const float*>(p.w[m].scale)[at]
                                                        : element(p.w[m].scale_dtype, p.w[m].scale, at);
              zero[j][m][i] = kForm == WeightForm::int4 && p.w[m].zero ? p.w[m].zero[at] : 0;
            }
      }
      if (first == 0) barrier_wait(&full[slot], stage / kStages % 2);
#pragma unroll
      for (int j = 0; j < kBatch; ++j) {
        if (first + j >= count) break;
        const int window = now.at + first + j;
        const bool scale_ends = ((window + 1) & ((1u << p.scale_shift) - 1)) == 0 || window + 1 == now.end;
#pragma unroll
        for (int m = 0; m < kMatrices; ++m) {
          uint32_t a[2][4];
          const char* at = a_base + m * (kTile * kPitch) + (first + j) * kBytes;
          load_a<kForm>(a, at, at + 8 * kPitch, kForm == WeightForm::int4 && p.w[m].zero, zero[j][m]);
#pragma unroll
          for (int i = 0; i < kTokens; ++i) {
            const uint32_t b0[2] = {b[j][i].x, b[j][i].y}, b1[2] = {b[j][i].z, b[j][i].w};
            float(&c)[4] = kScaled ? acc[m][i] : sum[m][i];
            mma_bf16(c, a[0], b0);
            mma_bf16(c, a[1], b1);
            if (kScaled && scale_ends)
#pragma unroll
              for (int e = 0; e < 4; ++e) sum[m][i][e] = fmaf(scale[j][m][e / 2], c[e], sum[m][i][e]), c[e] = 0;
          }
        }
      }
    }
    __syncwarp();  // every lane has read the slot
    issue(slot);
    now.advance(count);
    if (kMatrices == 1 && part_ends)
#pragma unroll
      for (int m = 0; m < kMatrices; ++m)
#pragma unroll
        for (int i = 0; i < kTokens; ++i)
#pragma unroll
          for (int e = 0; e < 4; ++e) total[m][i][e] += sum[m][i][e], sum[m][i][e] = 0;
  }

  // [matrix][token][16 columns], in the ring, which is empty now.
  auto* results = reinterpret_cast<float*>(ring);
#pragma unroll
  for (int m = 0; m < kMatrices; ++m)
#pragma unroll
    for (int i = 0; i < kTokens; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        results[(m * kRows + 8 * i + 2 * t + e % 2) * kResultPitch + g + 8 * (e / 2)] = (kMatrices == 1 ? total : sum)[m][i][e];
  __syncwarp();
  if constexpr (kMatrices == 1)
    if (p.parts_apart > 1 && !add_parts<kRows>(p, results, n0, part, tile.count)) return;
  store<kMatrices, kRows>(p, results, n0, tile);
}

// Instantiated in cuda_stream_*.cu, one form each.
template <WeightForm kForm>
void launch_product(Context& context, const Product& p, int matrices, int tokens, dim3 blocks);

template <WeightForm kForm, int kMatrices, int kTokens>
void launch_one(Context& context, Product p, dim3 blocks) {
  const int pieces = ceil_div(p.part_windows, kPiece / window_bytes(kForm)) * (p.parts_apart == 1 ? p.parts : 1);
  p.stages = std::min(max_stages(kTokens), pieces);
  const Grid grid{.blocks = blocks,
                  .threads = kThreads,
                  .shared = shared_bytes(kForm, kMatrices, p.stages),
                  .dependent = true};
  launch(context, product_kernel<kForm, kMatrices, kTokens>, grid, p);
}

template <WeightForm kForm>
void launch_product_of(Context& context, const Product& p, int matrices, int tokens, dim3 blocks) {
  if (matrices == 2)
    return tokens == 1 ? launch_one<kForm, 2, 1>(context, p, blocks) : launch_one<kForm, 2, 4>(context, p, blocks);
  switch (tokens) {
    case 1: return launch_one<kForm, 1, 1>(context, p, blocks);
    case 2: return launch_one<kForm, 1, 2>(context, p, blocks);
    case 4: return launch_one<kForm, 1, 4>(context, p, blocks);
    default: return launch_one<kForm, 1, 8>(context, p, blocks);
  }
}

}  // namespace edgewise::cuda::stream
