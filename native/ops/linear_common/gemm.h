// out = x . w^T for any stored weights, over a list of rows and a range of columns.
//
//            columns n0 .. n1, 4 at a time
//          +----+----+----+
//   rows   |tile|    |    |    for each block of rows (small enough for the L2 cache)
//   of a   +----+----+----+      for each 4 columns: decode their 4 rows of w into the L1 cache, once
//   block  |    |    |    |        for each 4 rows of the block: one tile
//          +----+----+----+
//
// Floor: every byte of w is read once per block of rows; 2 * M * N * K operations, of which vdpbf16ps and a 16-lane fma
// each do 64 per cycle. Measured on one core of an EPYC (Zen 5, 3.4 GHz, cores shared with other work, 2026-12-01),
// K = 256, N = 576, bf16 rows: at M = 64 bf16 weights reach 226 GFLOP/s, fp8 185, int4 149; at M = 1 with weights outside
// of the L2 cache 45 GB/s, 17 GB/s and 7 GB/s: the last two are bound by decoding. test/bench/linear.ts prints the rest.
#pragma once

#include <type_traits>

#include "ops/linear_common/decode.h"
#include "ops/linear_common/parse.h"

namespace edgewise::EDGEWISE_ISA {

constexpr int64_t kMaxBlockRows = 64;
constexpr int64_t kBlockBytes = 128 * 1024;

// One worker's memory for products with `matrices` matrices of the shape of `w` at once.
//
//   | pointers to the rows of a block | converted rows of x | per matrix: scales of 4 columns, 4 decoded rows |
class Workspace {
 public:
  static size_t bytes(const WeightView& w, int64_t matrices) {
    return static_cast<size_t>(kPointers + block_rows(w.k) * row_bytes(w.k) +
                               matrices * (scale_bytes(w) + kTileColumns * row_bytes(w.k)));
  }
  Workspace(char* base, const WeightView& w)
      : pointers(reinterpret_cast<const void**>(base)),
        x(base + kPointers),
        columns_(x + block_rows(w.k) * row_bytes(w.k)),
        scale_bytes_(scale_bytes(w)),
        matrix_bytes_(scale_bytes_ + kTileColumns * row_bytes(w.k)) {}

  // Rows of x that are processed together; the same whatever they are made of.
  static int64_t block_rows(int64_t k) {
    const int64_t fit = kBlockBytes / (row_bytes(k) + 1) / kTileRows * kTileRows;
    return fit < 2 * kTileRows ? 2 * kTileRows : fit > kMaxBlockRows ? kMaxBlockRows : fit;
  }

  float* scales(int64_t matrix) const { return reinterpret_cast<float*>(columns_ + matrix * matrix_bytes_); }
  char* rows(int64_t matrix) const { return columns_ + matrix * matrix_bytes_ + scale_bytes_; }

  const void** pointers;
  char* x;

 private:
  static constexpr int64_t kPointers = kMaxBlockRows * 8;
  static int64_t scale_bytes(const WeightView& w) { return round_up(w.segments, 16) * kTileColumns * 4; }
  static int64_t row_bytes(int64_t k) { return round_up(k, 64) * 4; }

  char* columns_;
  int64_t scale_bytes_, matrix_bytes_;
};

EDGEWISE_INLINE void convert_row(const float* from, int64_t k, int64_t padded, float* to) {
  decode_dense(from, k, to);
  for (int64_t i = k; i < padded; ++i) to[i] = 0.0f;
}
EDGEWISE_INLINE void convert_row(const bf16* from, int64_t k, int64_t padded, float* to) {
  decode_dense(from, k, to);
  for (int64_t i = k; i < padded; ++i) to[i] = 0.0f;
}
EDGEWISE_INLINE void convert_row(const bf16* from, int64_t k, int64_t padded, bf16* to) {
  for (int64_t i = 0; i < k; ++i) to[i] = from[i];
  for (int64_t i = k; i < padded; ++i) to[i].bits = 0;
}

// Up to 64 rows of x as a Tile wants them.
template <class Tile>
struct RowBlock {
  using Element = typename Tile::Element;
  const Element* const* rows;
  int64_t count, k, padded;

  // `row(i)` is the address of the block's i-th row. Whole rows of the right type stay where they are.
  template <class Row>
  RowBlock(const Workspace& space, int64_t k, int64_t count, Row row)
      : count(count), k(k), padded(round_up(k, Tile::kStep)) {
    auto** list = reinterpret_cast<const Element**>(space.pointers);
    Element* buffer = reinterpret_cast<Element*>(space.x);
    using Source = std::remove_cvref_t<decltype(*row(0))>;
    for (int64_t i = 0; i < count; ++i) {
      const Source* source = row(i);
      if constexpr (std::is_same_v<Source, Element>) {
        if (padded == k) {
          list[i] = source;
          continue;
        }
      }
      convert_row(source, k, padded, buffer + i * round_up(k, 64));
      list[i] = buffer + i * round_up(k, 64);
    }
    rows = list;
  }
};

// Rows of w are asked for this far ahead of the columns that are multiplied: about 100 ns of reading. With one row of x
// and weights outside of the L2 cache this is twice as fast as leaving it to the hardware for bf16 and int4 (Zen 5); fp8
// is bound by decoding and gains nothing.
constexpr int64_t kPrefetchBytes = 4096;

EDGEWISE_INLINE void prefetch_rows(const WeightView& w, int64_t n) {
  if (w.form == WeightForm::fp8) return;
  const int64_t row_bytes = w.form == WeightForm::int4 ? w.k / 2 : w.k * (w.dtype == DType::f32 ? 4 : 2);
  const int64_t begin = n * row_bytes + kPrefetchBytes, end = begin + kTileColumns * row_bytes;
  const int64_t last = end < w.n * row_bytes ? end : w.n * row_bytes;
  for (int64_t i = begin; i < last; i += 64) __builtin_prefetch(w.data + i);
}

// Rows n .. n + 3 of w as a Tile wants them; beyond the last row, the last one again.
template <class Tile>
struct ColumnTile {
  using Element = typename Tile::Element;
  const Element* rows[kTileColumns];
  const float* scales[kTileColumns];  // of each row, one per segment
  int64_t segment = 0;
  bool one_scale = false;                // nothing to add up: `factors` apply to the finished tile
  alignas(64) float factors[kTileSize];  // the 4 scales, once per row of the tile

  ColumnTile() = default;
  ColumnTile(const Workspace& space, int64_t matrix, const WeightView& w, int64_t n) {
    constexpr bool floats = std::is_same_v<Element, float>;
    const bool direct = w.form == WeightForm::dense && w.k % Tile::kStep == 0 && (w.dtype == DType::f32) == floats;
    Element* buffer = reinterpret_cast<Element*>(space.rows(matrix));
    const int64_t padded = round_up(w.k, 64);
    prefetch_rows(w, n);
    for (int64_t j = 0; j < kTileColumns; ++j) {
      const int64_t row = n + j < w.n ? n + j : w.n - 1;
      if (direct) {
        rows[j] = reinterpret_cast<const Element*>(w.data) + row * w.k;
        continue;
      }
      if (n + j < w.n) decode_row(w, row, padded, buffer + j * padded);
      rows[j] = buffer + (n + j < w.n ? j : row - n) * padded;
    }
    if constexpr (!floats)
      if (w.form != WeightForm::dense) find_scales(w, n, space.scales(matrix));
  }

  void find_scales(const WeightView& w, int64_t n, float* buffer) {
    one_scale = w.segments == 1;
    segment = one_scale ? 0 : w.block_k;
    const auto block = static_cast<uint32_t>(w.block_n);  // 32-bit divisions: this runs for every 4 columns
    const uint32_t first_block = static_cast<uint32_t>(n) / block;
    const bool one_block = static_cast<uint32_t>(n + kTileColumns - 1) / block == first_block;
    for (int64_t j = 0; j < kTileColumns; ++j) {
      const int64_t row = n + j < w.n ? n + j : w.n - 1;
      const int64_t first = (one_block ? first_block : static_cast<uint32_t>(row) / block) * w.segments;
      float* converted = buffer + j * round_up(w.segments, 16);
      scales[j] = w.scale_dtype == DType::f32 ? reinterpret_cast<const float*>(w.scale) + first : converted;
      if (w.scale_dtype == DType::bf16)
        decode_dense(reinterpret_cast<const bf16*>(w.scale) + first, w.segments, converted);
      if (w.scale_dtype == DType::f16)
        decode_dense(reinterpret_cast<const f16*>(w.scale) + first, w.segments, converted);
    }
    for (int i = 0; i < kTileSize && one_scale; ++i) factors[i] = *scales[i % kTileColumns];
  }
};

template <class Tile>
EDGEWISE_INLINE void run_tile(const RowBlock<Tile>& x, int64_t m, int rows, const ColumnTile<Tile>& w, float* v) {
  const auto* at = x.rows + m;
  if (rows == 4) Tile::template run<4>(at, w.rows, x.padded, w.scales, w.segment, v);
  else if (rows == 1) Tile::template run<1>(at, w.rows, x.padded, w.scales, w.segment, v);
  else if (rows == 2) Tile::template run<2>(at, w.rows, x.padded, w.scales, w.segment, v);
  else Tile::template run<3>(at, w.rows, x.padded, w.scales, w.segment, v);
  if (w.one_scale)
    for (int i = 0; i < kTileSize; i += kLanes) store(v + i, load(v + i) * load(w.factors + i));
}

// Rows 0 .. count - 1 times columns n0 .. n1 - 1 of NW matrices of one shape and form. `row(i)` is the address of row i,
// a const float* or const bf16*; `sink(m, rows, n, columns, v)` takes, for every matrix, v[matrix * 16 + i * 4 + j] =
// (x . w^T)[m + i, n + j] for i < rows <= 4, j < columns <= 4; the rest of the 16 is readable and meaningless.
template <class Tile, int NW, class Row, class Sink>
static inline void multiply_as(const WeightView (&w)[NW], int64_t n0, int64_t n1, int64_t count, const Workspace& space,
                               Row row, Sink sink) {
  alignas(64) float v[NW * kTileSize] = {};
  const int64_t block = Workspace::block_rows(w[0].k);
  for (int64_t m0 = 0; m0 < count; m0 += block) {
    const int64_t here = count - m0 < block ? count - m0 : block;
    const RowBlock<Tile> x(space, w[0].k, here, [&](int64_t i) { return row(m0 + i); });
    for (int64_t n = n0; n < n1; n += kTileColumns) {
      const ColumnTile<Tile> first(space, 0, w[0], n);
      std::conditional_t<NW == 2, ColumnTile<Tile>, int> second{};
      if constexpr (NW == 2) second = ColumnTile<Tile>(space, 1, w[1], n);
      const int width = static_cast<int>(n1 - n < kTileColumns ? n1 - n : kTileColumns);
      for (int64_t m = 0; m < x.count; m += kTileRows) {
        const int rows = static_cast<int>(x.count - m < kTileRows ? x.count - m : kTileRows);
        run_tile(x, m, rows, first, v);
        if constexpr (NW == 2) run_tile(x, m, rows, second, v + kTileSize);
        sink(m0 + m, rows, n, width, v);
      }
    }
  }
}

template <class X, int NW, class Row, class Sink>
static inline void multiply(const WeightView (&w)[NW], int64_t n0, int64_t n1, int64_t count, const Workspace& space,
                            Row row, Sink sink) {
#if defined(__AVX512F__)
  if constexpr (std::is_same_v<X, bf16>)
    if (exact_in_bf16(w[0])) return multiply_as<Bf16Tile>(w, n0, n1, count, space, row, sink);
#endif
  multiply_as<FloatTile>(w, n0, n1, count, space, row, sink);
}

// Pieces of `units` equal units of work for parallel_for: none under about 5 us, a whole number per worker.
static inline int64_t grain_for(const Context& context, int64_t units, int64_t weights_per_unit, double rows_per_unit) {
  const double cost = static_cast<double>(units * weights_per_unit) * (3.0 + rows_per_unit);
  const int64_t workers = context.workers();
  int64_t pieces = static_cast<int64_t>(cost / (1 << 18));
  if (pieces > workers) pieces = (pieces > 4 * workers ? 4 * workers : pieces) / workers * workers;
  return pieces <= 1 ? units : (units + pieces - 1) / pieces;
}

template <class T>
EDGEWISE_INLINE const T* row_of(const Tensor& t, int64_t i) {
  return static_cast<const T*>(t.raw()) + i * t.stride[0];
}

// One row of a tile.
template <class O>
EDGEWISE_INLINE void put_row(O* out, const O* v, int columns) {
  if (columns == kTileColumns) __builtin_memcpy(out, v, sizeof(O) * kTileColumns);
  else
    for (int j = 0; j < columns; ++j) out[j] = v[j];
}

// A tile into rows of `out` (f32 or bf16) that begin at element `at` and lie `stride` elements apart.
template <class O>
EDGEWISE_INLINE void put_tile_as(O* out, int64_t stride, int rows, int columns, const float* v) {
  alignas(64) O rounded[kTileSize];
  for (int i = 0; i < kTileSize; i += kLanes) store(rounded + i, load(v + i));
  for (int i = 0; i < rows; ++i) put_row(out + i * stride, rounded + i * kTileColumns, columns);
}

EDGEWISE_INLINE void put_tile(const Tensor& out, int64_t at, int64_t stride, int rows, int columns, const float* v) {
  if (out.dtype == DType::f32) put_tile_as(static_cast<float*>(out.raw()) + at, stride, rows, columns, v);
  else put_tile_as(static_cast<bf16*>(out.raw()) + at, stride, rows, columns, v);
}

}  // namespace edgewise::EDGEWISE_ISA
