// As ChunkF32 for bf16 activations and weights on AVX-512: every factor is rounded to bf16, as the framework that
// trains such models does, and sums stay in f32. Pairs are explained in core/attention_pairs.h.
//   latents  [(L + R) / 2, 256] pairs     the rope part serves all heads
//   keys     [heads, nope / 2, 256] pairs
//   values   [heads, 128, v] pairs
#pragma once

#include "core/attention_pairs.h"
#include "ops/attention_mla_expanded/chunk_f32.h"

#if defined(__AVX512BF16__)

namespace edgewise::EDGEWISE_ISA {

class ChunkBf16 {
 public:
  ChunkBf16(const AttentionMlaExpanded& p, Context& context)
      : p_(p), context_(context), heads_(p.heads()), L_(p.latent_dim()), R_(p.rope_dim()), nope_(p.nope_dim()),
        v_(p.v_dim()), ld_v_(padded(v_)), ld_latent_(padded(L_ + R_)) {
    latents_ = pairs(ld_latent_ / 2 * kChunk);
    keys_ = pairs(heads_ * nope_ / 2 * kChunk);
    values_ = pairs(heads_ * kChunk / 2 * ld_v_);
    per_worker_ = std::max(kTile * (ld_latent_ + ld_latent_ / 2), std::max(kStrip, kBlockQueries) * (kChunk + kChunk / 2));
    memory_ = scratch_floats(context, context.workers() * per_worker_);
  }

  void expand(const KvRow& row, int64_t first, int64_t n) {
    const KvStream stream{&p_.pool, 0, p_.scale, &p_.latent, 0, L_ + R_};
    const int64_t wide = (n + 2 * kTile - 1) / (2 * kTile) * (2 * kTile);  // whole blocks of pairs; zeros beyond n
    context_.parallel_for(wide / kTile, 1, [&](int64_t begin, int64_t end, int worker) {
      float* tile = memory_ + worker * per_worker_;
      auto* rounded = reinterpret_cast<bf16*>(tile + kTile * ld_latent_);
      for (int64_t i = begin; i < end; ++i) {
        const int64_t there = std::clamp<int64_t>(n - i * kTile, 0, kTile);
        load_tile<bf16>(stream, row, first + i * kTile, there, tile, ld_latent_);
        std::memset(tile + there * ld_latent_, 0, (kTile - there) * ld_latent_ * sizeof(float));
        round_row(tile, kTile * ld_latent_, rounded);
        // The last block of an odd number of blocks overlaps the one before it.
        for (int64_t d = 0; d < ld_latent_ / 2; d += kTile) {
          const int64_t at = std::min(d, ld_latent_ / 2 - kTile);
          transpose_block(reinterpret_cast<const uint32_t*>(rounded) + at, ld_latent_ / 2,
                          latents_ + at * kChunk + i * kTile, kChunk);
        }
      }
    });
    const int64_t key_strips = (nope_ + kStrip - 1) / kStrip, value_strips = (ld_v_ + kStrip - 1) / kStrip;
    const int64_t strips = key_strips + value_strips;
    context_.parallel_for(heads_ * strips, 1, [&](int64_t begin, int64_t end, int worker) {
      float* out = memory_ + worker * per_worker_;
      for (int64_t i = begin; i < end; ++i) {
        const int64_t head = i / strips, strip = i % strips;
        if (strip < key_strips) expand_keys(head, strip * kStrip, wide, out);
        else expand_values(head, (strip - key_strips) * kStrip, wide, out);
      }
    });
  }

  void attend(const KvRow& row, int64_t first, int64_t n, const QueryBlock& block, int worker) {
    const int64_t seen = std::min(n, row.past + block.token + block.count - first);
    if (seen <= 0) return;
    const int64_t wide = padded(seen), ld_q = p_.q.stride[0];
    float* scores = memory_ + worker * per_worker_;
    auto* weights = reinterpret_cast<bf16*>(scores + kBlockQueries * kChunk);
    const bf16* q = p_.q.data<bf16>() + (row.begin + block.token) * ld_q + block.head * p_.q.stride[1];
    multiply_pairs(q, ld_q, keys_ + block.head * nope_ / 2 * kChunk, kChunk, scores, kChunk, block.count, wide,
                   nope_ / 2, false);
    multiply_pairs(q + nope_, ld_q, latents_ + L_ / 2 * kChunk, kChunk, scores, kChunk, block.count, wide, R_ / 2, true);
    for (int64_t i = 0; i < block.count; ++i) {
      const int64_t visible = std::min(n, row.past + block.token + i + 1 - first);
      scale_row(scores + i * kChunk, wide, p_.softmax_scale);
      const float shrink = fold_scores(scores + i * kChunk, visible, wide, block.state[i]);
      if (shrink != 1.0f) scale_row(block.out + i * ld_v_, ld_v_, shrink);
      round_row(scores + i * kChunk, wide, weights + i * kChunk);
    }
    multiply_pairs(weights, kChunk, values_ + block.head * kChunk / 2 * ld_v_, ld_v_, block.out, ld_v_, block.count,
                   ld_v_, (seen + 1) / 2, true);
  }

 private:
  static constexpr int64_t kTile = 16;

  uint32_t* pairs(int64_t n) { return static_cast<uint32_t*>(context_.scratch(std::max<int64_t>(1, n) * 4)); }

  const bf16* projection(int64_t head) const { return p_.kv_up.data<bf16>() + head * (nope_ + v_) * L_; }

  // Key dims [d, d + 64) of a head for `wide` tokens.
  void expand_keys(int64_t head, int64_t d, int64_t wide, float* out) {
    const int64_t rows = std::min(kStrip, nope_ - d);
    multiply_pairs(projection(head) + d * L_, L_, latents_, kChunk, out, kChunk, rows, wide, L_ / 2, false);
    uint32_t* to = keys_ + (head * nope_ + d) / 2 * kChunk;
    for (int64_t i = 0; i < rows; i += 2) pair_rows(out + i * kChunk, out + (i + 1) * kChunk, wide, to + i / 2 * kChunk);
  }

  // Value dims [d, d + 64) of a head, transposed: pairs of values are consecutive tokens. Zeros beyond v.
  void expand_values(int64_t head, int64_t d, int64_t wide, float* out) {
    const int64_t rows = std::min(kStrip, v_ - d), padded_rows = padded(rows);
    multiply_pairs(projection(head) + (nope_ + d) * L_, L_, latents_, kChunk, out, kChunk, rows, wide, L_ / 2, false);
    std::memset(out + rows * kChunk, 0, (padded_rows - rows) * kChunk * sizeof(float));
    auto* rounded = reinterpret_cast<bf16*>(out + kStrip * kChunk);
    round_row(out, padded_rows * kChunk, rounded);
    uint32_t* to = values_ + head * kChunk / 2 * ld_v_ + d;
    for (int64_t i = 0; i < padded_rows; i += kTile)
      for (int64_t t = 0; t < wide / 2; t += kTile)
        transpose_block(reinterpret_cast<const uint32_t*>(rounded) + i * kChunk / 2 + t, kChunk / 2, to + t * ld_v_ + i,
                        ld_v_);
  }

  const AttentionMlaExpanded& p_;
  Context& context_;
  const int64_t heads_, L_, R_, nope_, v_, ld_v_, ld_latent_;
  uint32_t *latents_, *keys_, *values_;
  float* memory_;
  int64_t per_worker_;
};

}  // namespace edgewise::EDGEWISE_ISA

#endif
