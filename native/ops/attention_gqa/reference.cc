#include "ops/attention_gqa/op.h"

#include "core/attention_reference.h"

namespace edgewise {
namespace {

void attention_gqa_reference(const AttentionGqa& p, Context&) {
  const int64_t dim = p.dim(), heads = p.heads(), kv_heads = p.kv_heads(), group = heads / kv_heads;
  for_each_row(p.rows, p.out, p.pool.pages(), [&](const KvRow& row) {
    std::vector<float> k((row.past + row.count) * dim), v(k.size()), q(dim), out(dim);
    for (int64_t g = 0; g < kv_heads; ++g) {
      load_past(p.pool, row, static_cast<int>(g), p.k_scale, k.data());
      load_past(p.pool, row, static_cast<int>(kv_heads + g), p.v_scale, v.data());
      for (int64_t t = 0; t < row.count; ++t)
        for (int64_t i = 0; i < dim; ++i) {
          k[(row.past + t) * dim + i] = act_at(p.k, (row.begin + t) * p.k.stride[0] + g * p.k.stride[1] + i);
          v[(row.past + t) * dim + i] = act_at(p.v, (row.begin + t) * p.v.stride[0] + g * p.v.stride[1] + i);
        }
      for (int64_t t = 0; t < row.count; ++t)
        for (int64_t h = g * group; h < (g + 1) * group; ++h) {
          for (int64_t i = 0; i < dim; ++i) q[i] = act_at(p.q, (row.begin + t) * p.q.stride[0] + h * p.q.stride[1] + i);
          attend(q.data(), dim, k.data(), dim, v.data(), dim, dim, row.past + t + 1, p.softmax_scale, out.data());
          for (int64_t i = 0; i < dim; ++i)
            set_act(p.out, (row.begin + t) * p.out.stride[0] + h * p.out.stride[1] + i, out[i]);
        }
    }
  });
}

}  // namespace

EDGEWISE_OP(attention_gqa, AttentionGqa, parse_attention_gqa, attention_gqa_reference,
            {{"q", ArgKind::in}, {"k", ArgKind::in}, {"v", ArgKind::in}, {"pool", ArgKind::in},
             {"scales", ArgKind::optional}, {"page_table", ArgKind::in}, {"row_slot", ArgKind::in},
             {"row_start", ArgKind::in}, {"kv_len", ArgKind::in}, {"out", ArgKind::out},
             {"softmax_scale", ArgKind::number}, {"format", ArgKind::number}, {"k_scale", ArgKind::number},
             {"v_scale", ArgKind::number}, {"deterministic", ArgKind::number}});

}  // namespace edgewise
