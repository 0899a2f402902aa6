#include "ops/attention_mla/op.h"

#include "core/attention_reference.h"

namespace edgewise {
namespace {

void attention_mla_reference(const AttentionMla& p, Context&) {
  const int64_t width = p.width(), L = p.latent_dim();
  for_each_row(p.rows, p.out, p.pool.pages(), [&](const KvRow& row) {
    std::vector<float> kv((row.past + row.count) * width), q(width), out(L);
    load_past(p.pool, row, 0, p.scale, kv.data());
    for (int64_t t = 0; t < row.count; ++t)
      for (int64_t i = 0; i < width; ++i)
        kv[(row.past + t) * width + i] = act_at(p.latent, (row.begin + t) * p.latent.stride[0] + i);
    for (int64_t t = 0; t < row.count; ++t)
      for (int64_t h = 0; h < p.heads(); ++h) {
        for (int64_t i = 0; i < width; ++i) q[i] = act_at(p.q, (row.begin + t) * p.q.stride[0] + h * p.q.stride[1] + i);
        attend(q.data(), width, kv.data(), width, kv.data(), width, L, row.past + t + 1, p.softmax_scale, out.data());
        for (int64_t i = 0; i < L; ++i)
          set_act(p.out, (row.begin + t) * p.out.stride[0] + h * p.out.stride[1] + i, out[i]);
      }
  });
}

}  // namespace

EDGEWISE_OP(attention_mla, AttentionMla, parse_attention_mla, attention_mla_reference,
            {{"q", ArgKind::in}, {"latent", ArgKind::in}, {"pool", ArgKind::in}, {"scales", ArgKind::optional},
             {"page_table", ArgKind::in}, {"row_slot", ArgKind::in}, {"row_start", ArgKind::in},
             {"kv_len", ArgKind::in}, {"out", ArgKind::out}, {"softmax_scale", ArgKind::number},
             {"format", ArgKind::number}, {"scale", ArgKind::number}, {"deterministic", ArgKind::number}});

}  // namespace edgewise
