// moe_route: which experts a token goes to, and with what weights.
//   logits f32 [T, E]; bias f32 [E] or null; ids i32 [T, k], weights f32 [T, k], both by falling choice.
//   scoring    0: softmax over all experts (Qwen3-MoE); 1: sigmoid (DeepSeek-V3, GLM-4.5, Kimi K2)
//   choice     score + bias; the bias never enters the weights
//   groups     > 1: experts lie in `groups` equal groups, a group's score is the sum of its two best choices, only the
//              best `top_groups` groups stay (n_group and topk_group of DeepSeek-V3)
//   normalize  1: weights / their sum (sigmoid: sum + 1e-20); then all weights * scale
// Equal choices: the lower index first. A token with a NaN logit gets NaN weights (ids stay in range), others never
// notice. T may be 0.
// Semantics of transformers 5.18, DeepseekV3TopkRouter and Qwen3MoeTopKRouter.
#pragma once

#include <string>

#include "core/op.h"

namespace edgewise {

struct MoeRoute {
  Tensor logits, bias, ids, weights;
  int64_t groups, top_groups;
  bool sigmoid, normalize;
  float scale;
};

inline MoeRoute parse_moe_route(const Args& args) {
  MoeRoute p;
  p.logits = args.tensor("logits", {DType::f32}, {-1, -1});
  const int64_t tokens = p.logits.shape[0], experts = p.logits.shape[1];
  p.bias = args.optional("bias", {DType::f32}, {experts});
  p.ids = args.dense("ids", {DType::i32}, {tokens, -1});
  const int64_t k = p.ids.shape[1];
  p.weights = args.dense("weights", {DType::f32}, {tokens, k});
  p.sigmoid = args.integer("scoring", 0, 1) == 1;
  p.groups = args.integer("groups", 1, experts > 0 ? experts : 1);
  p.top_groups = args.integer("top_groups", 1, p.groups);
  p.normalize = args.integer("normalize", 0, 1) == 1;
  p.scale = static_cast<float>(args.number("scale"));
  if (experts % p.groups != 0)
    throw OpError("groups", "must divide the " + std::to_string(experts) + " experts, is " + std::to_string(p.groups));
  const int64_t candidates = experts / p.groups * p.top_groups;
  if (k < 1 || k > candidates)
    throw OpError("ids", "asks for " + std::to_string(k) + " experts per token, " + std::to_string(candidates) +
                             " can be chosen");
  if (p.groups > 1 && p.groups == experts && p.top_groups < p.groups)
    throw OpError("groups", "needs at least two experts per group");
  return p;
}

}  // namespace edgewise
