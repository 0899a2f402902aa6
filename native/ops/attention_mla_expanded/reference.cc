#include "ops/attention_mla_expanded/op.h"

#include "core/attention_reference.h"

namespace edgewise {
namespace {

float weight_at(const Tensor& w, int64_t i) {
  if (w.dtype == DType::f32) return w.data<float>()[i];
  const uint16_t bits = w.data<uint16_t>()[i];
  return w.dtype == DType::bf16 ? bf16_to_f32(bits) : f16_to_f32(bits);
}

void attention_mla_expanded_reference(const AttentionMlaExpanded& p, Context&) {
  const int64_t L = p.latent_dim(), R = p.rope_dim(), nope = p.nope_dim(), dim_v = p.v_dim();
  const int64_t width = L + R, dim_k = nope + R;
  for_each_row(p.rows, p.out, p.pool.pages(), [&](const KvRow& row) {
    const int64_t n = row.past + row.count;
    std::vector<float> latent(n * width), k(n * dim_k), v(n * dim_v), q(dim_k), out(dim_v);
    load_past(p.pool, row, 0, p.scale, latent.data());
    for (int64_t t = 0; t < row.count; ++t)
      for (int64_t i = 0; i < width; ++i)
        latent[(row.past + t) * width + i] = act_at(p.latent, (row.begin + t) * p.latent.stride[0] + i);
    for (int64_t h = 0; h < p.heads(); ++h) {
      for (int64_t j = 0; j < n; ++j) {
        for (int64_t i = 0; i < nope + dim_v; ++i) {
          double sum = 0;
          for (int64_t l = 0; l < L; ++l)
            sum += static_cast<double>(weight_at(p.kv_up, (h * (nope + dim_v) + i) * L + l)) * latent[j * width + l];
          (i < nope ? k[j * dim_k + i] : v[j * dim_v + i - nope]) = static_cast<float>(sum);
        }
        for (int64_t i = 0; i < R; ++i) k[j * dim_k + nope + i] = latent[j * width + L + i];
      }
      for (int64_t t = 0; t < row.count; ++t) {
        for (int64_t i = 0; i < dim_k; ++i) q[i] = act_at(p.q, (row.begin + t) * p.q.stride[0] + h * p.q.stride[1] + i);
        attend(q.data(), dim_k, k.data(), dim_k, v.data(), dim_v, dim_v, row.past + t + 1, p.softmax_scale, out.data());
        for (int64_t i = 0; i < dim_v; ++i)
          set_act(p.out, (row.begin + t) * p.out.stride[0] + h * p.out.stride[1] + i, out[i]);
      }
    }
  });
}

}  // namespace

EDGEWISE_OP(attention_mla_expanded, AttentionMlaExpanded, parse_attention_mla_expanded,
            attention_mla_expanded_reference,
            {{"q", ArgKind::in}, {"latent", ArgKind::in}, {"kv_up", ArgKind::in}, {"pool", ArgKind::in},
             {"scales", ArgKind::optional}, {"page_table", ArgKind::in}, {"row_slot", ArgKind::in},
             {"row_start", ArgKind::in}, {"kv_len", ArgKind::in}, {"out", ArgKind::out},
             {"softmax_scale", ArgKind::number}, {"format", ArgKind::number}, {"scale", ArgKind::number}});

}  // namespace edgewise
