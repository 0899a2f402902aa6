"""Mixture of experts: DeepSeek-V3's sigmoid router and two equal ways to run the experts.

`dense` runs every expert on every token and zeroes what was not chosen: six times the arithmetic, but three large
matrix products without any gather, which is what a GPU likes at this size. `sparse` runs each expert on its own
tokens, which is what a CPU likes.
"""

import torch
import torch.nn.functional as F
from torch import nn


def mlp(x, gate, up, down):
    return down(F.silu(gate(x)) * up(x))


class Router(nn.Module):
    """Scores by sigmoid; the correction bias decides who is chosen but never enters the weights (arXiv:2408.15664)."""

    def __init__(self, c):
        super().__init__()
        self.experts, self.top_k = c["n_routed_experts"], c["num_experts_per_tok"]
        self.scaling = c["routed_scaling_factor"]
        self.weight = nn.Parameter(torch.randn(self.experts, c["hidden_size"]) * c["hidden_size"] ** -0.5)
        self.register_buffer("e_score_correction_bias", torch.zeros(self.experts))
        self.register_buffer("load", torch.zeros(self.experts), persistent=False)

    def forward(self, x):
        """[tokens, H] -> (weights [tokens, K] float32, chosen experts [tokens, K])."""
        scores = F.linear(x.float(), self.weight).sigmoid()
        chosen = torch.topk(scores.detach() + self.e_score_correction_bias, self.top_k, dim=-1, sorted=False)[1]
        weights = scores.gather(1, chosen)
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20) * self.scaling
        return weights, chosen

    def balance(self, rate):
        """After a step: raise the bias of experts that got less than their share, lower the others. Returns max/mean load."""
        mean = self.load.mean()
        worst = self.load.max() / mean.clamp(min=1)
        self.e_score_correction_bias += rate * torch.sign(mean - self.load)
        self.e_score_correction_bias -= self.e_score_correction_bias.mean()
        self.load.zero_()
        return worst


class MoE(nn.Module):
    def __init__(self, c, residual_gain, shared_mlp):
        super().__init__()
        E, H, I = c["n_routed_experts"], c["hidden_size"], c["moe_intermediate_size"]
        self.gate = Router(c)
        self.gate_proj = nn.Parameter(torch.randn(E, I, H) * H**-0.5)
        self.up_proj = nn.Parameter(torch.randn(E, I, H) * H**-0.5)
        self.down_proj = nn.Parameter(torch.randn(E, H, I) * I**-0.5 * residual_gain)
        self.shared_experts = shared_mlp(H, I * c["n_shared_experts"], residual_gain)

    def forward(self, x):
        flat = x.flatten(0, -2)
        weights, chosen = self.gate(flat)
        run = self.dense if flat.is_cuda else self.sparse
        return run(flat, weights, chosen).view_as(x) + self.shared_experts(x)

    def dense(self, x, weights, chosen):
        E, I, H = self.gate_proj.shape
        mix = x.new_zeros(len(x), E, dtype=torch.float32).scatter(1, chosen, weights)
        if self.training:
            self.gate.load += (mix.detach() > 0).sum(0)
        gate = F.linear(x, self.gate_proj.to(x.dtype).view(E * I, H))
        up = F.linear(x, self.up_proj.to(x.dtype).view(E * I, H))
        inner = (F.silu(gate) * up).view(-1, E, I) * mix.to(x.dtype)[..., None]
        return inner.view(-1, E * I) @ self.down_proj.to(x.dtype).transpose(1, 2).reshape(E * I, H)

    def sparse(self, x, weights, chosen):
        E, K = len(self.gate_proj), chosen.shape[1]
        slots = chosen.flatten().argsort(stable=True)
        counts = chosen.flatten().bincount(minlength=E)
        if self.training:
            self.gate.load += counts
        rows = slots // K
        inputs = x[rows].split(counts.tolist())
        gate, up, down = (p.to(x.dtype) for p in (self.gate_proj, self.up_proj, self.down_proj))
        outputs = torch.cat([(F.silu(t @ gate[e].T) * (t @ up[e].T)) @ down[e].T for e, t in enumerate(inputs)])
        outputs = outputs * weights.flatten()[slots][:, None].to(x.dtype)
        return torch.zeros_like(x).index_add(0, rows, outputs)
