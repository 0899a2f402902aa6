"""The forward pass of DeepSeek-V3 (and so Kimi K2) for training: multi-head latent attention and a mixture of experts.

The arithmetic is that of transformers' DeepseekV3ForCausalLM, which `check.py` verifies.
Shapes: [batch B, time T, hidden H]; heads N; latent R = kv_lora_rank; experts E of width I.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from architecture import CONFIG
from attention import causal_attention
from moe import MoE, mlp


def yarn_inverse_frequencies(rope, dim):
    """Inverse frequencies [dim / 2], float32. YaRN, arXiv:2309.00071, as in transformers' rope utilities."""
    theta, length = rope["rope_theta"], rope["original_max_position_embeddings"]
    plain = 1.0 / theta ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim)

    def dimension(rotations):
        return dim * math.log(length / (rotations * 2 * math.pi)) / (2 * math.log(theta))

    low = max(math.floor(dimension(rope["beta_fast"])), 0)
    high = min(math.ceil(dimension(rope["beta_slow"])), dim - 1)
    ramp = ((torch.arange(dim // 2, dtype=torch.float32) - low) / max(high - low, 0.001)).clamp(0, 1)
    return plain / rope["factor"] * ramp + plain * (1 - ramp)


def softmax_scale(config):
    """(nope + rope)^-0.5, times YaRN's mscale squared (mscale_all_dim). With mscale == mscale_all_dim, cos and sin stay unscaled."""
    rope = config["rope_parameters"]
    mscale = 0.1 * rope["mscale_all_dim"] * math.log(rope["factor"]) + 1.0
    return config["qk_head_dim"] ** -0.5 * mscale**2


def rotate(x, cos, sin):
    """Rotate interleaved pairs (x0, x1), (x2, x3), ... of the last dimension; the result lists first members, then second."""
    a, b = x[..., 0::2].float(), x[..., 1::2].float()
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1).to(x.dtype)


class RMSNorm(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps)
        return self.weight.to(x.dtype) * y.to(x.dtype)


class Linear(nn.Linear):
    """No bias; weights are kept in float32 and used in the activations' type."""

    def __init__(self, inputs, outputs, gain=1.0):
        self.gain = gain
        super().__init__(inputs, outputs, bias=False)

    def reset_parameters(self):
        nn.init.normal_(self.weight, std=self.gain * self.in_features**-0.5)

    def forward(self, x):
        return F.linear(x, self.weight.to(x.dtype))


class Attention(nn.Module):
    """Multi-head latent attention: keys and values of all heads come from one latent of R + rope values per token."""

    def __init__(self, c, residual_gain):
        super().__init__()
        self.heads, self.latent = c["num_attention_heads"], c["kv_lora_rank"]
        self.nope, self.rope, self.value = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"]
        self.scale = softmax_scale(c)
        eps = c["rms_norm_eps"]
        self.q_a_proj = Linear(c["hidden_size"], c["q_lora_rank"])
        self.q_a_layernorm = RMSNorm(c["q_lora_rank"], eps)
        self.q_b_proj = Linear(c["q_lora_rank"], self.heads * (self.nope + self.rope))
        self.kv_a_proj_with_mqa = Linear(c["hidden_size"], self.latent + self.rope)
        self.kv_a_layernorm = RMSNorm(self.latent, eps)
        self.kv_b_proj = Linear(self.latent, self.heads * (self.nope + self.value))
        self.o_proj = Linear(self.heads * self.value, c["hidden_size"], residual_gain)
        # The optimizer treats each head's matrix on its own, and keys apart from values where both are as tall.
        self.q_b_proj.weight.stack = self.heads
        self.kv_b_proj.weight.stack = self.heads * (2 if self.nope == self.value else 1)

    def queries(self, x, cos, sin):
        """[B, T, H] -> [B, N, T, nope] and rotated [B, N, T, rope]."""
        B, T, _ = x.shape
        q = self.q_b_proj(self.q_a_layernorm(self.q_a_proj(x))).view(B, T, self.heads, -1).transpose(1, 2)
        nope, rope = q.split([self.nope, self.rope], dim=-1)
        return nope, rotate(rope, cos[:, None], sin[:, None])

    def latents(self, x, cos, sin):
        """[B, T, H] -> normalised latent [B, T, R] and rotated shared key [B, T, rope]: one row of a KV cache."""
        latent, rope = self.kv_a_proj_with_mqa(x).split([self.latent, self.rope], dim=-1)
        return self.kv_a_layernorm(latent), rotate(rope, cos, sin)

    def forward(self, x, cos, sin):
        B, T, _ = x.shape
        q_nope, q_rope = self.queries(x, cos, sin)
        latent, k_rope = self.latents(x, cos, sin)
        kv = self.kv_b_proj(latent).view(B, T, self.heads, -1).transpose(1, 2)
        k_nope, v = kv.split([self.nope, self.value], dim=-1)
        q = torch.cat([q_nope, q_rope], dim=-1)
        k = torch.cat([k_nope, k_rope[:, None].expand(-1, self.heads, -1, -1)], dim=-1)
        y = causal_attention(q, k, v, self.scale)
        return self.o_proj(y.transpose(1, 2).reshape(B, T, -1)), latent, k_rope


class DenseMLP(nn.Module):
    def __init__(self, hidden, width, residual_gain):
        super().__init__()
        self.gate_proj = Linear(hidden, width)
        self.up_proj = Linear(hidden, width)
        self.down_proj = Linear(width, hidden, residual_gain)

    def forward(self, x):
        return mlp(x, self.gate_proj, self.up_proj, self.down_proj)


class Layer(nn.Module):
    def __init__(self, c, index):
        super().__init__()
        gain = (2 * c["num_hidden_layers"]) ** -0.5
        self.input_layernorm = RMSNorm(c["hidden_size"], c["rms_norm_eps"])
        self.self_attn = Attention(c, gain)
        self.post_attention_layernorm = RMSNorm(c["hidden_size"], c["rms_norm_eps"])
        dense = index < c["first_k_dense_replace"]
        self.mlp = DenseMLP(c["hidden_size"], c["intermediate_size"], gain) if dense else MoE(c, gain, DenseMLP)

    def forward(self, x, cos, sin):
        y, latent, k_rope = self.self_attn(self.input_layernorm(x), cos, sin)
        x = x + y
        return x + self.mlp(self.post_attention_layernorm(x)), latent, k_rope


class Nano(nn.Module):
    def __init__(self, config=CONFIG, dtype=torch.bfloat16):
        super().__init__()
        self.config, self.dtype = config, dtype
        hidden, vocab = config["hidden_size"], config["vocab_size"]
        self.embed_tokens = nn.Embedding(vocab, hidden)
        nn.init.normal_(self.embed_tokens.weight, std=0.5)
        self.layers = nn.ModuleList([Layer(config, i) for i in range(config["num_hidden_layers"])])
        self.norm = RMSNorm(hidden, config["rms_norm_eps"])
        self.lm_head = Linear(hidden, vocab, 0.25)
        inverse = yarn_inverse_frequencies(config["rope_parameters"], config["qk_rope_head_dim"])
        self.register_buffer("inverse_frequencies", inverse, persistent=False)

    def angles(self, positions):
        """positions [B, T] -> cos, sin [B, T, rope / 2] in float32."""
        angle = positions[..., None].float() * self.inverse_frequencies
        return angle.cos(), angle.sin()

    def forward(self, ids, cache=None):
        """ids [B, T] -> normalised hidden states [B, T, H]. With a list as `cache`, appends each layer's (latent, k_rope)."""
        positions = torch.arange(ids.shape[1], device=ids.device)[None]
        cos, sin = self.angles(positions)
        x = self.embed_tokens(ids).to(self.dtype)
        for layer in self.layers:
            x, latent, k_rope = layer(x, cos, sin)
            if cache is not None:
                cache.append((latent, k_rope))
        return self.norm(x)

    def logits(self, hidden):
        return self.lm_head(hidden)

    def loss(self, ids, targets, weights, chunk=32768):
        """Weighted mean next-token cross entropy. ids, targets [B, T]; weights [B, T] float32. Logits are made chunk by chunk."""
        hidden = self(ids).flatten(0, 1)
        targets, weights = targets.flatten(), weights.flatten()
        if not hidden.is_cuda:  # a CPU does not mind shapes that change: only what is taught needs logits
            taught = weights.nonzero()[:, 0]
            return self.chunk_loss(hidden[taught], targets[taught], weights[taught]) / weights.sum().clamp(min=1.0)
        total = hidden.new_zeros((), dtype=torch.float32)
        for i in range(0, len(hidden), chunk):
            total = total + checkpoint(self.chunk_loss, hidden[i : i + chunk], targets[i : i + chunk], weights[i : i + chunk],
                                       use_reentrant=False)
        return total / weights.sum().clamp(min=1.0)

    def chunk_loss(self, hidden, targets, weights):
        return (F.cross_entropy(self.logits(hidden).float(), targets, reduction="none") * weights).sum()
