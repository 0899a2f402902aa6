// The expert ops: products of rows with the matrix of the expert each row goes to.
//
// (token, slot) pairs are sorted by expert (a counting sort, stable), so that every used expert's weights are read once:
//
//   ids            [[3, 1], [1, -1], [3, 0]]        pair = token * k + slot
//   pairs          5 | 1 2 | 0 4                    by expert: 0, 1, 3
//   first          0   1   3   5                    where each expert's pairs begin
#include <string>

#include "ops/linear_common/gemm.h"
#include "ops/linear_common/kernels.h"

namespace edgewise::EDGEWISE_ISA {

namespace {

struct ExpertRows {
  int32_t* experts;  // [used] the experts that have pairs
  int32_t* first;    // [used + 1]
  int32_t* pairs;    // [first[used]]
  int64_t used;
};

// ids: tokens * k of them. Throws when one is out of range.
ExpertRows sort_by_expert(const int32_t* ids, int64_t count, int64_t k, int64_t experts, void* scratch) {
  ExpertRows r;
  int32_t* starts = static_cast<int32_t*>(scratch);  // [experts + 1]
  r.experts = starts + experts + 1;
  r.first = r.experts + experts;
  r.pairs = r.first + experts + 1;
  for (int64_t e = 0; e <= experts; ++e) starts[e] = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (ids[i] < -1 || ids[i] >= experts)
      throw OpError("ids", "expert " + std::to_string(ids[i]) + " at [" + std::to_string(i / k) + ", " +
                               std::to_string(i % k) + "] is out of range, there are " + std::to_string(experts));
    if (ids[i] >= 0) ++starts[ids[i]];
  }
  int32_t total = 0;
  r.used = 0;
  for (int64_t e = 0; e < experts; ++e) {
    const int32_t n = starts[e];
    starts[e] = total;
    if (n == 0) continue;
    r.experts[r.used] = static_cast<int32_t>(e);
    r.first[r.used++] = total;
    total += n;
  }
  r.first[r.used] = total;
  for (int64_t i = 0; i < count; ++i)
    if (ids[i] >= 0) r.pairs[starts[ids[i]]++] = static_cast<int32_t>(i);
  return r;
}

EDGEWISE_INLINE size_t sort_bytes(int64_t count, int64_t experts) {
  return static_cast<size_t>(3 * experts + 2 + count) * sizeof(int32_t);
}

// Columns that one piece of work takes: a multiple of 4; bounds the partial sums of the down projection.
constexpr int64_t kExpertColumns = 32;

// [begin, end) of the columns of a chunk.
struct Columns {
  int64_t begin, end;
  Columns(int64_t chunk, int64_t n)
      : begin(chunk * kExpertColumns), end(begin + kExpertColumns < n ? begin + kExpertColumns : n) {}
};

template <class X>
void gate_up_typed(const GateUpCall& p, Context& context) {
  const int64_t k = p.ids.shape[1], n = p.gate.n, count = p.ids.shape[0] * k;
  if (count == 0 || n == 0) return;
  const int32_t* ids = static_cast<const int32_t*>(p.ids.raw());
  const ExpertRows sorted =
      sort_by_expert(ids, count, k, p.gate.experts, context.scratch(sort_bytes(count, p.gate.experts)));
  const X* x = row_of<X>(p.x, 0);
  X* out = static_cast<X*>(p.out.raw());
  const int64_t x_stride = p.x.stride[0], token_stride = p.out.stride[0], slot_stride = p.out.stride[1];
  const auto token = [k](int64_t pair) { return static_cast<uint32_t>(pair) / static_cast<uint32_t>(k); };
  const auto out_row = [=](int64_t pair) {
    const int64_t t = token(pair);
    return out + t * token_stride + (pair - t * k) * slot_stride;
  };
  for (int64_t i = 0; i < count; ++i)
    if (ids[i] < 0) __builtin_memset(out_row(i), 0, sizeof(X) * static_cast<size_t>(n));

  const WeightView shape = view_of(p.gate);
  const size_t bytes = Workspace::bytes(shape, 2);
  char* scratch = static_cast<char*>(context.scratch(bytes * static_cast<size_t>(context.workers())));
  const int64_t chunks = (n + kExpertColumns - 1) / kExpertColumns, units = chunks * sorted.used;
  const double rows = static_cast<double>(sorted.first[sorted.used]) / static_cast<double>(sorted.used + 1);
  // Unit = chunk of columns * used + expert: every worker's share holds busy and idle experts alike.
  context.parallel_for(units, grain_for(context, units, 2 * kExpertColumns * shape.k, rows),
                       [&](int64_t begin, int64_t end, int worker) {
    const Workspace space(scratch + bytes * static_cast<size_t>(worker), shape);
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t e = unit % sorted.used;
      const Columns columns(unit / sorted.used, n);
      const int32_t* pairs = sorted.pairs + sorted.first[e];
      multiply<X>({view_of(p.gate, sorted.experts[e]), view_of(p.up, sorted.experts[e])}, columns.begin, columns.end,
                  sorted.first[e + 1] - sorted.first[e], space,
                  [=](int64_t i) { return x + token(pairs[i]) * x_stride; },
                  [=](int64_t m, int rows, int64_t column, int width, const float* v) {
        alignas(64) X rounded[kTileSize];
        for (int i = 0; i < kTileSize; i += kLanes) store(rounded + i, silu(load(v + i)) * load(v + kTileSize + i));
        for (int i = 0; i < rows; ++i) put_row(out_row(pairs[m + i]) + column, rounded + i * kTileColumns, width);
      });
    }
  });
}

// Tokens whose pairs are held as partial sums at a time: 8,192 pairs * 32 columns * 4 bytes = 1 MiB per worker.
constexpr int64_t kPairsAtATime = 8192;

// out [t, columns] = sum over slots, in order, of weight * partial [pair, 32].
template <class O>
void combine(const float* partial, const int32_t* ids, const float* weights, int64_t k, Columns columns,
                           O* out) {
  for (int64_t n = columns.begin; n < columns.end; n += kLanes) {
    F32 sum = splat(0.0f);
    for (int64_t j = 0; j < k; ++j)
      if (ids[j] >= 0) sum = fma(splat(weights[j]), load(partial + j * kExpertColumns + (n - columns.begin)), sum);
    if (n + kLanes <= columns.end) store(out + n, sum);
    else store_partial(out + n, sum, static_cast<int>(columns.end - n));
  }
}

template <class X>
void down_typed(const DownCall& p, Context& context) {
  const int64_t tokens = p.ids.shape[0], k = p.ids.shape[1], n = p.down.n;
  if (tokens == 0 || n == 0) return;
  const int64_t tokens_at_a_time = k >= kPairsAtATime ? 1 : kPairsAtATime / (k + 1) + 1;
  const int64_t most = (tokens < tokens_at_a_time ? tokens : tokens_at_a_time) * k;
  const WeightView shape = view_of(p.down);
  const size_t space_bytes = (Workspace::bytes(shape, 1) + 63) / 64 * 64;
  const size_t bytes = space_bytes + static_cast<size_t>(most * kExpertColumns) * sizeof(float);
  void* order = context.scratch(sort_bytes(most, p.down.experts));
  char* scratch = static_cast<char*>(context.scratch(bytes * static_cast<size_t>(context.workers())));
  const int64_t chunks = (n + kExpertColumns - 1) / kExpertColumns;

  for (int64_t t0 = 0; t0 < tokens; t0 += tokens_at_a_time) {
    const int64_t here = tokens - t0 < tokens_at_a_time ? tokens - t0 : tokens_at_a_time;
    const int32_t* ids = static_cast<const int32_t*>(p.ids.raw()) + t0 * k;
    const float* weights = static_cast<const float*>(p.weights.raw()) + t0 * k;
    const X* x = row_of<X>(p.x, t0);
    const ExpertRows sorted = sort_by_expert(ids, here * k, k, p.down.experts, order);
    const double rows = static_cast<double>(here * k) / static_cast<double>(sorted.used + 1);
    context.parallel_for(chunks, grain_for(context, chunks, kExpertColumns * shape.k * sorted.used, rows),
                         [&](int64_t begin, int64_t end, int worker) {
      char* mine = scratch + bytes * static_cast<size_t>(worker);
      const Workspace space(mine, shape);
      float* partial = reinterpret_cast<float*>(mine + space_bytes);
      for (int64_t chunk = begin; chunk < end; ++chunk) {
        const Columns columns(chunk, n);
        for (int64_t e = 0; e < sorted.used; ++e) {
          const int32_t* pairs = sorted.pairs + sorted.first[e];
          multiply<X>({view_of(p.down, sorted.experts[e])}, columns.begin, columns.end,
                      sorted.first[e + 1] - sorted.first[e], space,
                      [&](int64_t i) {
                        const uint32_t t = static_cast<uint32_t>(pairs[i]) / static_cast<uint32_t>(k);
                        return x + t * p.x.stride[0] + (pairs[i] - t * k) * p.x.stride[1];
                      },
                      [&](int64_t m, int rows, int64_t column, int, const float* v) {
            for (int i = 0; i < rows; ++i)
              __builtin_memcpy(partial + pairs[m + i] * kExpertColumns + (column - columns.begin), v + i * kTileColumns,
                               sizeof(float) * kTileColumns);
          });
        }
        for (int64_t t = 0; t < here; ++t) {
          const float* partials = partial + t * k * kExpertColumns;
          const int64_t at = (t0 + t) * p.out.stride[0];
          if (p.out.dtype == DType::f32)
            combine(partials, ids + t * k, weights + t * k, k, columns, static_cast<float*>(p.out.raw()) + at);
          else
            combine(partials, ids + t * k, weights + t * k, k, columns, static_cast<bf16*>(p.out.raw()) + at);
        }
      }
    });
  }
}

}  // namespace

void run_gate_up(const GateUpCall& p, Context& context) {
  if (p.x.dtype == DType::f32) gate_up_typed<float>(p, context);
  else gate_up_typed<bf16>(p, context);
}

void run_down(const DownCall& p, Context& context) {
  if (p.x.dtype == DType::f32) down_typed<float>(p, context);
  else down_typed<bf16>(p, context);
}

}  // namespace edgewise::EDGEWISE_ISA
