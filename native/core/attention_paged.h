// Attention of query heads over the paged cache on the CPU: the kernels of attention_gqa and attention_mla.
//
// The context of a row is cut into splits of a fixed length and its queries into blocks, by rules that know this row
// alone; a block sees its split tile by tile, each tile widened to f32 once for all queries of the block. Splits of a
// block are folded in their order afterwards. So a row's bits depend neither on other rows nor on the threads.
//
//   row        tokens 0 .. count           context  0 .. past + count
//   block      [tokens) x [heads) of one kv head, at most kBlockQueries
//   split      [----- 256 or 1024 tokens -----][-----  ...
//   tile         [16 .. 64][16 .. 64] ..
#pragma once

#include <algorithm>

#include "core/attention_pairs.h"
#include "core/attention_tile.h"
#include "core/kv_read.h"

namespace edgewise::EDGEWISE_ISA {

constexpr int64_t kBlockQueries = 48;
constexpr int64_t kFewQueries = 12;  // up to here a tile is small enough for the first-level cache
constexpr int64_t kSmallTile = 16, kLargeTile = kPageTokens, kFirstLevelFloats = 9216;

// Keys or values of one kv head: stored ones by page, new ones from a tensor of the call.
struct KvStream {
  const KvPool* pool;
  int vector;
  float scale;          // static scale of the format fp8
  const Tensor* fresh;  // act; rows of stride[0] elements
  int64_t fresh_offset;
  int64_t dim;  // elements read of each vector
};

struct PagedAttention {
  Tensor q, out;  // act [T, heads, dim_k], [T, heads, dim_v]
  Tensor k, v;    // act, of the new tokens; dimension 0 is the token
  const KvPool* pool = nullptr;
  const KvRow* rows = nullptr;  // checked
  int64_t row_count = 0;
  const int64_t* query_begin = nullptr;  // first token in q and out of each row, where it is not the row's own
  int64_t kv_heads = 1;
  int64_t head_stride_k = 0, head_stride_v = 0;  // elements between the kv heads of k and v
  int64_t dim_k = 0, dim_v = 0;
  bool values_in_keys = false;  // MLA: a value is the first dim_v elements of its key
  float softmax_scale = 1, k_scale = 1, v_scale = 1;
  // One arithmetic whatever the number of queries: a token has the same bits in a chunk of any length.
  bool deterministic = false;
};

// Copies context tokens [first, first + n) as f32 rows of `ld`.
template <class Act>
inline void load_tile(const KvStream& s, const KvRow& row, int64_t first, int64_t n, float* out, int64_t ld) {
  const KvLayout& layout = s.pool->layout;
  for (int64_t i = 0; i < n; ++i, out += ld) {
    const int64_t at = first + i;
    if (at >= row.past) {
      const int64_t t = row.begin + at - row.past;
      widen_row(s.fresh->data<Act>() + t * s.fresh->stride[0] + s.fresh_offset, s.dim, 1.0f, out);
      continue;
    }
    const int64_t page = row.pages[at / kPageTokens], token = at % kPageTokens;
    const uint8_t* from = s.pool->at(page, s.vector, token);
    switch (layout.format) {
      case KvFormat::f32: widen_row(reinterpret_cast<const float*>(from), s.dim, 1.0f, out); break;
      case KvFormat::bf16: widen_row(reinterpret_cast<const bf16*>(from), s.dim, 1.0f, out); break;
      case KvFormat::fp8: widen_row(reinterpret_cast<const e4m3*>(from), s.dim, s.scale, out); break;
      case KvFormat::fp8_token:
        widen_row(reinterpret_cast<const e4m3*>(from), s.dim, *s.pool->scale_at(page, token, s.vector), out);
    }
  }
}

// Asks for the stored vectors of context tokens [first, end) ahead of their use.
EDGEWISE_INLINE void prefetch_tile(const KvStream& s, const KvRow& row, int64_t first, int64_t end) {
  const int64_t bytes = s.pool->layout.vector_bytes();
  for (int64_t at = first; at < std::min(end, row.past); ++at) {
    const uint8_t* from = s.pool->at(row.pages[at / kPageTokens], s.vector, at % kPageTokens);
    for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(from + i);
  }
}

// How a row is cut; a function of the row alone.
struct RowCut {
  int64_t heads, tokens;  // of a block
  int64_t head_blocks, token_blocks;
  int64_t split, splits;

  RowCut(const KvRow& row, int64_t group, bool deterministic) {
    heads = std::min(group, kBlockQueries);
    tokens = std::max<int64_t>(1, kBlockQueries / heads);
    head_blocks = (group + heads - 1) / heads;
    token_blocks = (row.count + tokens - 1) / tokens;
    const int64_t context = row.past + row.count;
    split = deterministic ? 1024 : token_blocks * head_blocks > 4 ? context : context <= 4096 ? 256 : 1024;
    splits = (context + split - 1) / split;
  }
};

struct WorkItem {
  int64_t row;
  int64_t kv_head, head, heads;  // query heads within the group
  int64_t token, tokens;
  int64_t begin, end;  // of the context
  int64_t splits;      // of this block; 1: the item writes the output itself
  int64_t partial;     // first query of its partial results
};

// Memory of one worker. `pairs` is for blocks that multiply in bf16.
struct TileMemory {
  float *q, *k, *v, *scores, *out;
  SoftmaxState* state;
  uint32_t* pairs;

  static size_t floats(int64_t ld_k, int64_t ld_v, bool values_in_keys) {
    return kBlockQueries * (ld_k + ld_v + kLargeTile) + kLargeTile * (ld_k + (values_in_keys ? 0 : ld_v)) +
           2 * kBlockQueries + kLargeTile * ld_k + kLargeTile / 2 * ld_v + kBlockQueries * kLargeTile / 2;
  }
  TileMemory(float* at, int64_t ld_k, int64_t ld_v, bool values_in_keys) {
    q = at;
    out = q + kBlockQueries * ld_k;
    scores = out + kBlockQueries * ld_v;
    k = scores + kBlockQueries * kLargeTile;
    v = values_in_keys ? k : k + kLargeTile * ld_k;
    state = reinterpret_cast<SoftmaxState*>(v + kLargeTile * (values_in_keys ? ld_k : ld_v));
    pairs = reinterpret_cast<uint32_t*>(state + kBlockQueries);
  }
};

// Act is the type of k and v, Query that of q and out.
template <class Act, class Query>
class PagedAttentionKernel {
 public:
  PagedAttentionKernel(const PagedAttention& p, Context& context)
      : p_(p), context_(context), ld_k_(padded(p.dim_k)), ld_v_(p.values_in_keys ? ld_k_ : padded(p.dim_v)) {}

  void run() {
    list_items();
    const size_t floats = (TileMemory::floats(ld_k_, ld_v_, p_.values_in_keys) + 15) / 16 * 16;
    auto* memory = static_cast<float*>(context_.scratch(context_.workers() * floats * sizeof(float)));
    context_.parallel_for(items_count_, 1, [&](int64_t begin, int64_t end, int worker) {
      TileMemory m(memory + worker * floats, ld_k_, ld_v_, p_.values_in_keys);
      for (int64_t i = begin; i < end; ++i) attend(items_[i], m);
    });
    if (partials_ == 0) return;
    // A few partial results are folded sooner than other threads are woken.
    const int64_t grain = partials_ * ld_out() < 65536 ? items_count_ : 4;
    context_.parallel_for(items_count_, grain, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i)
        if (items_[i].splits > 1 && items_[i].begin == 0) combine(items_[i]);
    });
  }

 private:
  // Calls visit(item) for all items, splits of a block in order and side by side.
  template <class F>
  void for_each_item(F visit) const {
    const int64_t group = p_.q.shape[1] / p_.kv_heads;
    int64_t partial = 0;
    for (int64_t r = 0; r < p_.row_count; ++r) {
      const KvRow& row = p_.rows[r];
      if (!row.live) continue;
      const RowCut cut(row, group, p_.deterministic);
      for (int64_t g = 0; g < p_.kv_heads; ++g)
        for (int64_t tb = cut.token_blocks - 1; tb >= 0; --tb)  // the longest context first
          for (int64_t hb = 0; hb < cut.head_blocks; ++hb) {
            WorkItem item{r, g, hb * cut.heads, 0, tb * cut.tokens, 0, 0, 0, 0, 0};
            item.heads = std::min(cut.heads, group - item.head);
            item.tokens = std::min(cut.tokens, row.count - item.token);
            const int64_t context = row.past + item.token + item.tokens;
            item.splits = (context + cut.split - 1) / cut.split;
            for (int64_t s = 0; s < item.splits; ++s) {
              item.begin = s * cut.split;
              item.end = std::min(context, item.begin + cut.split);
              item.partial = partial;
              if (item.splits > 1) partial += item.heads * item.tokens;
              visit(item);
            }
          }
    }
  }

  void list_items() {
    for_each_item([&](const WorkItem& item) {
      ++items_count_;
      if (item.splits > 1) partials_ = item.partial + item.heads * item.tokens;
    });
    items_ = static_cast<WorkItem*>(context_.scratch(std::max<int64_t>(1, items_count_) * sizeof(WorkItem)));
    partial_out_ = static_cast<float*>(context_.scratch(std::max<int64_t>(1, partials_ * ld_out()) * sizeof(float)));
    partial_state_ = static_cast<SoftmaxState*>(context_.scratch(std::max<int64_t>(1, partials_) * sizeof(SoftmaxState)));
    WorkItem* next = items_;
    for_each_item([&](const WorkItem& item) { *next++ = item; });
  }

  int64_t ld_out() const { return padded(p_.dim_v); }

  void attend(const WorkItem& item, const TileMemory& m) {
    const KvRow& row = p_.rows[item.row];
    const int64_t queries = item.tokens * item.heads;
    const bool in_bf16 = multiplies_pairs(queries);
    for (int64_t i = 0; i < queries; ++i) {
      if (in_bf16) copy_query(vector_of(p_.q, item, i), reinterpret_cast<Query*>(m.q) + i * ld_k_);
      else widen_row(vector_of(p_.q, item, i), p_.dim_k, p_.softmax_scale, m.q + i * ld_k_);
      m.state[i] = {};
    }
    std::memset(m.out, 0, queries * ld_out() * sizeof(float));

    const int kv_head = static_cast<int>(item.kv_head);
    const KvStream keys{p_.pool, kv_head, p_.k_scale, &p_.k, kv_head * p_.head_stride_k, p_.dim_k};
    const KvStream values{p_.pool, static_cast<int>(p_.kv_heads) + kv_head, p_.v_scale, &p_.v,
                          kv_head * p_.head_stride_v, p_.dim_v};
    const int64_t fitting = kFirstLevelFloats / (p_.values_in_keys ? ld_k_ : ld_k_ + ld_v_) / kSmallTile * kSmallTile;
    const bool few = queries <= kFewQueries || p_.deterministic;
    const int64_t size = few ? std::clamp(fitting, kSmallTile, kLargeTile) : kLargeTile;
    for (int64_t first = item.begin; first < item.end; first += size) {
      const int64_t n = std::min(size, item.end - first);
      load_tile<Act>(keys, row, first, n, m.k, ld_k_);
      if (!p_.values_in_keys) load_tile<Act>(values, row, first, n, m.v, ld_v_);
      if (size < kLargeTile) {  // few queries: little arithmetic to hide the memory behind
        prefetch_tile(keys, row, first + size, std::min(first + 2 * size, item.end));
        if (!p_.values_in_keys) prefetch_tile(values, row, first + size, std::min(first + 2 * size, item.end));
      }
#if defined(__AVX512BF16__)
      if (in_bf16) {
        attend_tile_pairs(item, first, n, m);
        continue;
      }
#endif
      dot_rows(m.q, ld_k_, m.k, ld_k_, m.scores, kLargeTile, queries, (n + 3) / 4 * 4, ld_k_);
      for (int64_t i = 0; i < queries; ++i) fold_query(item, i, first, n, m);
      multiply(m.scores, kLargeTile, m.v, ld_v_, m.out, ld_out(), queries, ld_out(), n, true);
    }

    for (int64_t i = 0; i < queries; ++i) {
      if (item.splits > 1) {
        std::memcpy(partial_out_ + (item.partial + i) * ld_out(), m.out + i * ld_out(), ld_out() * sizeof(float));
        partial_state_[item.partial + i] = m.state[i];
      } else {
        write(item, i, m.out + i * ld_out(), 1.0f / m.state[i].total);
      }
    }
  }

  // Softmax of the scores of one query in the tile [first, first + n).
  void fold_query(const WorkItem& item, int64_t query, int64_t first, int64_t n, const TileMemory& m) {
    const int64_t seen = p_.rows[item.row].past + item.token + query / item.heads + 1;
    const float shrink =
        fold_scores(m.scores + query * kLargeTile, std::min(n, seen - first), padded(n), m.state[query]);
    if (shrink != 1.0f) scale_row(m.out + query * ld_out(), ld_out(), shrink);
  }

  // Whether a block of so many queries multiplies in bf16: with enough of them to pay for pairing the tile.
  bool multiplies_pairs(int64_t queries) const {
#if defined(__AVX512BF16__)
    return std::is_same_v<Query, bf16> && !p_.deterministic && queries > kFewQueries && ld_k_ >= 32;
#else
    return false;
#endif
  }

  void copy_query(const Query* q, Query* out) const {
    std::memcpy(out, q, p_.dim_k * sizeof(Query));
    std::memset(out + p_.dim_k, 0, (ld_k_ - p_.dim_k) * sizeof(Query));
  }

#if defined(__AVX512BF16__)
  // One tile for many queries, its factors rounded to bf16. Pairs: keys [ld_k / 2, 64], values [32, dim_v].
  void attend_tile_pairs(const WorkItem& item, int64_t first, int64_t n, const TileMemory& m) {
    const int64_t queries = item.tokens * item.heads, wide = padded(n), half = ld_k_ / 2;
    uint32_t *keys = m.pairs, *rounded = keys + half * kLargeTile, *values = rounded + kLargeTile * half;
    auto* weights = reinterpret_cast<bf16*>(values + kLargeTile / 2 * ld_v_);
    round_row(m.k, wide * ld_k_, reinterpret_cast<bf16*>(rounded));
    for (int64_t t = 0; t < wide; t += 16)
      for (int64_t d = 0; d < half; d += 16) {
        const int64_t at = std::min(d, half - 16);  // the last block may overlap the one before it
        transpose_block(rounded + t * half + at, half, keys + at * kLargeTile + t, kLargeTile);
      }
    if (n % 2 == 1) std::memset(m.v + n * ld_v_, 0, ld_v_ * sizeof(float));  // paired with the last value
    for (int64_t t = 0; t < n; t += 2)
      pair_rows(m.v + t * ld_v_, m.v + (t + 1) * ld_v_, ld_out(), values + t / 2 * ld_v_);

    multiply_pairs(reinterpret_cast<const bf16*>(m.q), ld_k_, keys, kLargeTile, m.scores, kLargeTile, queries, wide,
                   half, false);
    for (int64_t i = 0; i < queries; ++i) {
      scale_row(m.scores + i * kLargeTile, wide, p_.softmax_scale);
      fold_query(item, i, first, n, m);
      round_row(m.scores + i * kLargeTile, wide, weights + i * kLargeTile);
    }
    multiply_pairs(weights, kLargeTile, values, ld_v_, m.out, ld_out(), queries, ld_out(), (n + 1) / 2, true);
  }
#endif

  // The vector of q or out that belongs to a query of the block.
  Query* vector_of(const Tensor& t, const WorkItem& item, int64_t query) const {
    const int64_t first = p_.query_begin ? p_.query_begin[item.row] : p_.rows[item.row].begin;
    const int64_t head = item.kv_head * (t.shape[1] / p_.kv_heads) + item.head + query % item.heads;
    return t.template data<Query>() + (first + item.token + query / item.heads) * t.stride[0] + head * t.stride[1];
  }

  void write(const WorkItem& item, int64_t query, const float* values, float factor) {
    Query* to = vector_of(p_.out, item, query);
    const F32 f = splat(factor);
    int64_t i = 0;
    for (; i + kLanes <= p_.dim_v; i += kLanes) store(to + i, load(values + i) * f);
    if (i < p_.dim_v) store_partial(to + i, load(values + i) * f, static_cast<int>(p_.dim_v - i));
  }

  // Folds the splits of a block, whose first item is given, into its first partial result.
  void combine(const WorkItem& item) {
    const int64_t queries = item.tokens * item.heads;
    for (int64_t i = 0; i < queries; ++i) {
      const int64_t first = item.partial + i;
      float top = -INFINITY;
      for (int64_t s = 0; s < item.splits; ++s) top = std::max(top, partial_state_[first + s * queries].largest);
      float total = 0;
      float* sum = partial_out_ + first * ld_out();
      for (int64_t s = 0; s < item.splits; ++s) {
        const SoftmaxState& state = partial_state_[first + s * queries];
        const float factor = state.largest == -INFINITY ? 0.0f : std::exp(state.largest - top);
        total += state.total * factor;
        if (s == 0) {
          scale_row(sum, ld_out(), factor);
          continue;
        }
        const float* other = partial_out_ + (first + s * queries) * ld_out();
        for (int64_t d = 0; d < ld_out(); d += kLanes)
          store(sum + d, fma(load(other + d), splat(factor), load(sum + d)));
      }
      write(item, i, sum, 1.0f / total);
    }
  }

  const PagedAttention& p_;
  Context& context_;
  const int64_t ld_k_, ld_v_;
  WorkItem* items_ = nullptr;
  int64_t items_count_ = 0, partials_ = 0;
  float* partial_out_ = nullptr;
  SoftmaxState* partial_state_ = nullptr;
};

// The rows of a call, checked, and zeros in out[T, heads, D] where no live row is.
inline const KvRow* live_rows(const KvRows& rows, const KvPool& pool, const Tensor& out, Context& context) {
  const int64_t tokens = out.shape[0], bytes = out.shape[2] * static_cast<int64_t>(dtype_size(out.dtype));
  auto* list = static_cast<KvRow*>(context.scratch(std::max<int64_t>(1, rows.count()) * sizeof(KvRow)));
  auto* dead = static_cast<uint8_t*>(context.scratch(std::max<int64_t>(1, tokens)));
  check_kv_rows(rows, tokens, pool.pages(), list);
  find_dead_tokens(list, rows.count(), tokens, dead);
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t h = 0; dead[t] && h < out.shape[1]; ++h)
      std::memset(out.data<char>() + (t * out.stride[0] + h * out.stride[1]) * dtype_size(out.dtype), 0, bytes);
  return list;
}

inline void attend_paged(PagedAttention p, const KvRows& rows, Context& context) {
  p.rows = live_rows(rows, *p.pool, p.out, context);
  p.row_count = rows.count();
  if (p.q.dtype == DType::f32) PagedAttentionKernel<float, float>(p, context).run();
  else PagedAttentionKernel<bf16, bf16>(p, context).run();
}

}  // namespace edgewise::EDGEWISE_ISA
