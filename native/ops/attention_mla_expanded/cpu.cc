// Per row the cheaper of two forms, by its own lengths: rows with many new tokens project the context up, a chunk of
// 256 tokens at a time, and attend to the chunk with all their queries; rows with few (decode rows among others)
// absorb the projection into their queries and outputs and run as attention_mla does.
#include "ops/attention_mla_expanded/op.h"

#include "core/attention_paged.h"
#include "ops/attention_mla_expanded/chunk_bf16.h"
#include "ops/attention_mla_expanded/chunk_f32.h"

namespace edgewise::EDGEWISE_ISA {
namespace {

// Multiply-adds of both forms, per head.
bool absorbing_is_cheaper(const AttentionMlaExpanded& p, const KvRow& row) {
  const double n = static_cast<double>(row.count), context = static_cast<double>(row.past) + n;
  const double pairs = n * static_cast<double>(row.past) + n * (n + 1) / 2;
  const double L = p.latent_dim(), R = p.rope_dim(), projection = L * (p.nope_dim() + p.v_dim());
  const double absorbed = pairs * (2 * L + R) + n * projection;
  const double expanded = pairs * (p.nope_dim() + R + p.v_dim()) + context * projection;
  return absorbed < expanded;
}

template <class Act>
class ExpandedKernel {
 public:
  ExpandedKernel(const AttentionMlaExpanded& p, Context& context)
      : p_(p), context_(context), heads_(p.heads()), L_(p.latent_dim()), R_(p.rope_dim()), nope_(p.nope_dim()),
        v_(p.v_dim()), ld_v_(padded(v_)) {}

  void run() {
    const int64_t count = p_.rows.count();
    const KvRow* rows = live_rows(p_.rows, p_.pool, p_.out, context_);
    auto* absorbed = static_cast<KvRow*>(context_.scratch(std::max<int64_t>(1, count) * sizeof(KvRow)));
    auto* query_begin = static_cast<int64_t*>(context_.scratch(std::max<int64_t>(1, count) * sizeof(int64_t)));
    int64_t longest = 0, absorbed_tokens = 0, absorbed_count = 0;
    for (int64_t r = 0; r < count; ++r) {
      if (!rows[r].live) continue;
      if (absorbing_is_cheaper(p_, rows[r])) {
        absorbed[absorbed_count] = rows[r];
        query_begin[absorbed_count++] = absorbed_tokens;
        absorbed_tokens += rows[r].count;
      } else {
        longest = std::max(longest, rows[r].count);
      }
    }
    if (longest + absorbed_tokens == 0) return;
    if (absorbed_count > 0) run_absorbed(absorbed, query_begin, absorbed_count, absorbed_tokens);
    if (longest == 0) return;
    out_ = scratch_floats(context_, longest * heads_ * ld_v_);
    state_ = static_cast<SoftmaxState*>(context_.scratch(longest * heads_ * sizeof(SoftmaxState)));
#if defined(__AVX512BF16__)
    if constexpr (std::is_same_v<Act, bf16>)
      if (p_.kv_up.dtype == DType::bf16) {
        ChunkBf16 chunk(p_, context_);
        return run_expanded(rows, count, chunk);
      }
#endif
    ChunkF32<Act> chunk(p_, projection(), context_);
    run_expanded(rows, count, chunk);
  }

 private:
  // kv_up as f32, widened once per call.
  const float* projection() {
    const int64_t lines = heads_ * (nope_ + v_);
    if (up_) return up_;
    if (p_.kv_up.dtype == DType::f32) return up_ = p_.kv_up.template data<float>();
    float* up = scratch_floats(context_, lines * L_);
    context_.parallel_for(lines, 64, [&](int64_t begin, int64_t end, int) {
      const int64_t at = begin * L_, n = (end - begin) * L_;
      if (p_.kv_up.dtype == DType::bf16) widen_row(p_.kv_up.template data<bf16>() + at, n, 1.0f, up + at);
      else widen_row(p_.kv_up.template data<f16>() + at, n, 1.0f, up + at);
    });
    return up_ = up;
  }

  const Act* query(int64_t token, int64_t head) const {
    return p_.q.template data<Act>() + token * p_.q.stride[0] + head * p_.q.stride[1];
  }

  void write(int64_t token, int64_t head, const float* values, float factor) const {
    Act* to = p_.out.template data<Act>() + token * p_.out.stride[0] + head * p_.out.stride[1];
    const F32 f = splat(factor);
    int64_t i = 0;
    for (; i + kLanes <= v_; i += kLanes) store(to + i, load(values + i) * f);
    if (i < v_) store_partial(to + i, load(values + i) * f, static_cast<int>(v_ - i));
  }

  // ---- rows with few new tokens ----

  void run_absorbed(const KvRow* rows, const int64_t* query_begin, int64_t count, int64_t tokens) {
    const int64_t width = L_ + R_, ld_nope = padded(nope_), strips = (tokens + kStrip - 1) / kStrip;
    const float* up = projection();
    float* q = scratch_floats(context_, tokens * heads_ * width);
    float* out = scratch_floats(context_, tokens * heads_ * L_);
    float* memory = scratch_floats(context_, context_.workers() * kStrip * (ld_nope + ld_v_));
    auto* token_of = static_cast<int64_t*>(context_.scratch(tokens * sizeof(int64_t)));
    for (int64_t r = 0; r < count; ++r)
      for (int64_t t = 0; t < rows[r].count; ++t) token_of[query_begin[r] + t] = rows[r].begin + t;

    context_.parallel_for(heads_ * strips, 1, [&](int64_t begin, int64_t end, int worker) {
      float* nope = memory + worker * kStrip * (ld_nope + ld_v_);
      for (int64_t i = begin; i < end; ++i) {
        const int64_t head = i / strips, first = i % strips * kStrip, n = std::min(kStrip, tokens - first);
        float* to = q + (first * heads_ + head) * width;
        for (int64_t t = 0; t < n; ++t) {
          const Act* from = query(token_of[first + t], head);
          widen_row(from, nope_, 1.0f, nope + t * ld_nope);
          for (int64_t d = 0; d < R_; ++d) to[t * heads_ * width + L_ + d] = widen(from[nope_ + d]);
        }
        multiply(nope, ld_nope, up + head * (nope_ + v_) * L_, L_, to, heads_ * width, n, L_, nope_, false);
      }
    });

    Storage queries, outputs;
    queries.data = q;
    outputs.data = out;
    PagedAttention paged;
    paged.q = borrowed(queries, tokens, width);
    paged.out = borrowed(outputs, tokens, L_);
    paged.k = paged.v = p_.latent;
    paged.pool = &p_.pool;
    paged.rows = rows;
    paged.row_count = count;
    paged.query_begin = query_begin;
    paged.dim_k = width;
    paged.dim_v = L_;
    paged.values_in_keys = true;
    paged.softmax_scale = p_.softmax_scale;
    paged.k_scale = paged.v_scale = p_.scale;
    PagedAttentionKernel<Act, float>(paged, context_).run();

    context_.parallel_for(heads_ * strips, 1, [&](int64_t begin, int64_t end, int worker) {
      float* values = memory + worker * kStrip * (ld_nope + ld_v_);
      for (int64_t i = begin; i < end; ++i) {
        const int64_t head = i / strips, first = i % strips * kStrip, n = std::min(kStrip, tokens - first);
        const float* values_up = up + (head * (nope_ + v_) + nope_) * L_;
        dot_rows(out + (first * heads_ + head) * L_, heads_ * L_, values_up, L_, values, ld_v_, n, v_, L_);
        for (int64_t t = 0; t < n; ++t) write(token_of[first + t], head, values + t * ld_v_, 1.0f);
      }
    });
  }

  // A contiguous f32 [tokens, heads, dim] over scratch memory, which outlives it.
  Tensor borrowed(Storage& memory, int64_t tokens, int64_t dim) const {
    Tensor t;
    t.storage = std::shared_ptr<Storage>(std::shared_ptr<void>(), &memory);
    t.rank = 3;
    const int64_t shape[3] = {tokens, heads_, dim}, stride[3] = {heads_ * dim, dim, 1};
    std::copy(shape, shape + 3, t.shape);
    std::copy(stride, stride + 3, t.stride);
    return t;
  }

  // ---- rows with many new tokens ----

  template <class Chunk>
  void run_expanded(const KvRow* rows, int64_t count, Chunk& chunk) {
    for (int64_t r = 0; r < count; ++r)
      if (rows[r].live && !absorbing_is_cheaper(p_, rows[r])) run_row(rows[r], chunk);
  }

  template <class Chunk>
  void run_row(const KvRow& row, Chunk& chunk) {
    const int64_t context = row.past + row.count, blocks = (row.count + kBlockQueries - 1) / kBlockQueries;
    std::memset(out_, 0, row.count * heads_ * ld_v_ * sizeof(float));
    std::fill(state_, state_ + row.count * heads_, SoftmaxState{});
    for (int64_t first = 0; first < context; first += kChunk) {
      const int64_t n = std::min(kChunk, context - first);
      chunk.expand(row, first, n);
      // Blocks that end before the chunk see nothing of it; the others from the last one on, which sees most.
      const int64_t skipped = std::max<int64_t>(0, first - row.past) / kBlockQueries;
      context_.parallel_for(heads_ * (blocks - skipped), 1, [&](int64_t begin, int64_t end, int worker) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t head = i % heads_, token = (blocks - 1 - i / heads_) * kBlockQueries, at = head * row.count + token;
          chunk.attend(row, first, n,
                       {head, token, std::min(kBlockQueries, row.count - token), out_ + at * ld_v_, state_ + at}, worker);
        }
      });
    }
    context_.parallel_for(row.count, 32, [&](int64_t begin, int64_t end, int) {
      for (int64_t t = begin; t < end; ++t)
        for (int64_t h = 0; h < heads_; ++h) {
          const int64_t at = h * row.count + t;
          write(row.begin + t, h, out_ + at * ld_v_, 1.0f / state_[at].total);
        }
    });
  }

  const AttentionMlaExpanded& p_;
  Context& context_;
  const int64_t heads_, L_, R_, nope_, v_, ld_v_;
  const float* up_ = nullptr;
  float* out_ = nullptr;           // [heads, row.count, ld_v]
  SoftmaxState* state_ = nullptr;  // [heads, row.count]
};

void attention_mla_expanded_cpu(const AttentionMlaExpanded& p, Context& context) {
  if (p.q.dtype == DType::f32) ExpandedKernel<float>(p, context).run();
  else ExpandedKernel<bf16>(p, context).run();
}

EDGEWISE_CPU_KERNEL(AttentionMlaExpanded, attention_mla_expanded_cpu);

}  // namespace
}  // namespace edgewise::EDGEWISE_ISA
