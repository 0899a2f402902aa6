// A chunk of context projected up to keys and values per head, and attention of blocks of queries to it, in f32.
//   keys    [heads, nope, 256]   transposed, so that scores are outer products
//   rope    [R, 256]             shared by the heads
//   values  [heads, 256, v]
#pragma once

#include "core/attention_paged.h"
#include "ops/attention_mla_expanded/op.h"

namespace edgewise::EDGEWISE_ISA {

constexpr int64_t kChunk = 256, kStrip = 64;

inline float* scratch_floats(Context& context, int64_t n) {
  return static_cast<float*>(context.scratch(std::max<int64_t>(1, n) * sizeof(float)));
}

// Where a block of queries of one head accumulates.
struct QueryBlock {
  int64_t head, token, count;  // tokens of the row
  float* out;                  // [count, padded(v)]
  SoftmaxState* state;         // [count]
};

template <class Act>
class ChunkF32 {
 public:
  // `up` is kv_up as f32.
  ChunkF32(const AttentionMlaExpanded& p, const float* up, Context& context)
      : p_(p), context_(context), heads_(p.heads()), L_(p.latent_dim()), R_(p.rope_dim()), nope_(p.nope_dim()),
        v_(p.v_dim()), ld_v_(padded(v_)), ld_latent_(padded(L_ + R_)), up_(up) {
    latents_ = scratch_floats(context, kChunk * ld_latent_);
    keys_ = scratch_floats(context, heads_ * nope_ * kChunk);
    rope_ = scratch_floats(context, R_ * kChunk);
    values_ = scratch_floats(context, heads_ * kChunk * ld_v_);
    per_worker_ = kBlockQueries * (padded(nope_) + padded(R_) + kChunk);
    memory_ = scratch_floats(context, context.workers() * per_worker_);
    std::memset(values_, 0, heads_ * kChunk * ld_v_ * sizeof(float));  // v beyond its dims stays zero
  }

  // Projects context tokens [first, first + n) up.
  void expand(const KvRow& row, int64_t first, int64_t n) {
    const KvStream stream{&p_.pool, 0, p_.scale, &p_.latent, 0, L_ + R_};
    context_.parallel_for(n, kStrip, [&](int64_t begin, int64_t end, int) {
      load_tile<Act>(stream, row, first + begin, end - begin, latents_ + begin * ld_latent_, ld_latent_);
      for (int64_t t = begin; t < end; ++t)
        for (int64_t d = 0; d < R_; ++d) rope_[d * kChunk + t] = latents_[t * ld_latent_ + L_ + d];
    });
    const int64_t key_strips = (nope_ + kStrip - 1) / kStrip, value_strips = (n + kStrip - 1) / kStrip;
    const int64_t strips = key_strips + value_strips, wide = (n + 3) / 4 * 4;
    context_.parallel_for(heads_ * strips, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t head = i / strips, strip = i % strips;
        const float* keys_up = up_ + head * (nope_ + v_) * L_;
        if (strip < key_strips) {
          const int64_t d = strip * kStrip, rows = std::min(kStrip, nope_ - d);
          dot_rows(keys_up + d * L_, L_, latents_, ld_latent_, keys_ + (head * nope_ + d) * kChunk, kChunk, rows, wide,
                   L_);
        } else {
          const int64_t t = (strip - key_strips) * kStrip, rows = std::min(kStrip, n - t);
          dot_rows(latents_ + t * ld_latent_, ld_latent_, keys_up + nope_ * L_, L_,
                   values_ + (head * kChunk + t) * ld_v_, ld_v_, rows, v_, L_);
        }
      }
    });
  }

  // Attention of a block to the expanded chunk [first, first + n).
  void attend(const KvRow& row, int64_t first, int64_t n, const QueryBlock& block, int worker) {
    const int64_t seen = std::min(n, row.past + block.token + block.count - first);
    if (seen <= 0) return;
    const int64_t wide = padded(seen), ld_nope = padded(nope_), ld_rope = padded(R_);
    float* nope = memory_ + worker * per_worker_;
    float *rope = nope + kBlockQueries * ld_nope, *scores = rope + kBlockQueries * ld_rope;
    for (int64_t i = 0; i < block.count; ++i) {
      const Act* q = p_.q.template data<Act>() + (row.begin + block.token + i) * p_.q.stride[0] +
                     block.head * p_.q.stride[1];
      widen_row(q, nope_, p_.softmax_scale, nope + i * ld_nope);
      widen_row(q + nope_, R_, p_.softmax_scale, rope + i * ld_rope);
    }
    const float* keys = keys_ + block.head * nope_ * kChunk;
    multiply(nope, ld_nope, keys, kChunk, scores, kChunk, block.count, wide, nope_, false);
    multiply(rope, ld_rope, rope_, kChunk, scores, kChunk, block.count, wide, R_, true);
    for (int64_t i = 0; i < block.count; ++i) {
      const int64_t visible = std::min(n, row.past + block.token + i + 1 - first);
      const float shrink = fold_scores(scores + i * kChunk, visible, wide, block.state[i]);
      if (shrink != 1.0f) scale_row(block.out + i * ld_v_, ld_v_, shrink);
    }
    multiply(scores, kChunk, values_ + block.head * kChunk * ld_v_, ld_v_, block.out, ld_v_, block.count, ld_v_, seen,
             true);
  }

 private:
  const AttentionMlaExpanded& p_;
  Context& context_;
  const int64_t heads_, L_, R_, nope_, v_, ld_v_, ld_latent_;
  const float* up_;
  float *latents_, *keys_, *rope_, *values_, *memory_;
  int64_t per_worker_;
};

}  // namespace edgewise::EDGEWISE_ISA
