// How the streaming kernels are launched: host code only.
#include "ops/linear_common/cuda_stream.h"

#include "cuda/counters.h"
#include "ops/linear_common/cuda_stream.cuh"

namespace edgewise::cuda::stream {

template <>
void launch_product<WeightForm::dense>(Context&, const Product&, int, int, dim3);
template <>
void launch_product<WeightForm::fp8>(Context&, const Product&, int, int, dim3);
template <>
void launch_product<WeightForm::int4>(Context&, const Product&, int, int, dim3);

namespace {

constexpr int kTokensApart = 64;   // rows of x up to which the parts of K get blocks of their own
constexpr int kWantedBlocks = 120;  // of an H200's 132 SMs; 96 KB of weights are under way in each
constexpr int kPartWindows = 8;    // at least: 256 k

bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

// log2 of the windows that share a scale; -1: not a power of two.
int scale_shift(const Matrix& w) {
  if (w.segments == 1) return 31;
  if (w.block_k % kWindow != 0 || !std::has_single_bit(static_cast<unsigned>(w.block_k))) return -1;
  return std::countr_zero(static_cast<unsigned>(w.block_k / kWindow));
}

// Parts of K, whatever the number of rows of x: a row's bits follow from them.
void cut(Product* p, int groups) {
  const int windows = p->w[0].k / kWindow, tiles = ceil_div(p->w[0].n, kBlockRows) * groups;
  const int wanted = std::min({ceil_div(kWantedBlocks, tiles), kMaxParts, std::max(1, windows / kPartWindows)});
  p->part_windows = ceil_div(ceil_div(windows, wanted), 4) * 4;
  p->parts = ceil_div(windows, p->part_windows);
}

void launch_form(Context& context, const Product& p, int matrices, int tokens, dim3 blocks) {
  switch (p.w[0].form) {
    case WeightForm::dense: return launch_product<WeightForm::dense>(context, p, matrices, tokens, blocks);
    case WeightForm::fp8: return launch_product<WeightForm::fp8>(context, p, matrices, tokens, blocks);
    case WeightForm::int4: return launch_product<WeightForm::int4>(context, p, matrices, tokens, blocks);
  }
}

Product product(const Matrix& w, const Rows& rows, const Groups& groups, bool out32) {
  Product p{};
  p.w[0] = p.w[1] = w;
  p.rows = rows;
  p.groups = groups;
  p.out32 = out32;
  p.parts_apart = 1;
  p.scale_shift = scale_shift(w);
  return p;
}

}  // namespace

bool takes(const Matrix& w, DType x, const Rows& rows) {
  if (x != DType::bf16 || (w.form == WeightForm::dense && w.dtype != DType::bf16)) return false;
  if (w.k % kWindow != 0 || !aligned(w.data) || !aligned(rows.x) || rows.x_token % 8 != 0 || rows.x_slot % 8 != 0) return false;
  return w.form == WeightForm::dense || scale_shift(w) >= 0;
}

void linear(Context& context, const Matrix& w, const Rows& rows, const Groups& groups, const Tensor& bias, DType out) {
  if (groups.rows == 0) return;
  Product p = product(w, rows, groups, out == DType::f32);
  if (bias.storage) p.bias = bias.raw(), p.bias_dtype = bias.dtype;
  cut(&p, groups.groups);
  const int tokens = groups.rows <= 8 ? 1 : groups.rows <= 16 ? 2 : groups.rows <= 32 ? 4 : 8;
  const int tiles = ceil_div(w.n, kTile) * groups.groups;
  if (p.parts > 1 && groups.rows <= kTokensApart && tiles <= kCounters) {
    p.parts_apart = p.parts;
    p.partial = static_cast<float*>(context.scratch(sizeof(float) * p.parts * tiles * kTile * 8 * tokens));
    p.counters = counters_of(context);
  }
  const auto columns = static_cast<unsigned>(ceil_div(w.n, kBlockRows) * p.parts_apart);
  launch_form(context, p, 1, tokens, dim3(columns, ceil_div(groups.rows, 8 * tokens), groups.groups));
}

int entry_rows(int64_t pairs, int experts, int matrices) {
  return pairs <= 8 * static_cast<int64_t>(experts) ? 8 : matrices == 2 ? 32 : 64;
}

void experts(Context& context, const Matrix& w, const Matrix* w2, const Rows& rows, const Groups& groups, int capacity,
             int entry_rows) {
  Product p = product(w, rows, groups, w2 == nullptr);
  if (w2) p.w[1] = *w2;
  p.parts = 1;
  p.part_windows = w.k / kWindow;
  launch_form(context, p, w2 ? 2 : 1, entry_rows / 8, dim3(ceil_div(w.n, kBlockRows), capacity));
}

}  // namespace edgewise::cuda::stream
