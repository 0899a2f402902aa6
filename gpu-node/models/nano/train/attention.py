"""Causal attention with keys of 192 and values of 128, through the fastest of PyTorch's kernels that is right.

Which of them takes unequal head sizes, and how fast it is, depends on the build; so the first call on a GPU times the
candidates forward and backward and keeps the winner.
"""

import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel


def padded(backend):
    """Values padded to the keys' size, for kernels that want one head size."""

    def run(q, k, v, scale):
        with sdpa_kernel(backend):
            y = F.scaled_dot_product_attention(q, k, F.pad(v, (0, k.shape[-1] - v.shape[-1])), is_causal=True, scale=scale)
        return y[..., : v.shape[-1]]

    return run


def unpadded(backend):
    def run(q, k, v, scale):
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)

    return run


CANDIDATES = {
    "flash, padded": padded(SDPBackend.FLASH_ATTENTION),
    "cudnn": unpadded(SDPBackend.CUDNN_ATTENTION),
    "cudnn, padded": padded(SDPBackend.CUDNN_ATTENTION),
    "efficient": unpadded(SDPBackend.EFFICIENT_ATTENTION),
    "efficient, padded": padded(SDPBackend.EFFICIENT_ATTENTION),
    "math": unpadded(SDPBackend.MATH),
}
chosen = {"cuda": None}


def reference(q, k, v, scale):
    scores = (q.float() @ k.float().transpose(-1, -2)) * scale
    future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
    return scores.masked_fill(future, float("-inf")).softmax(-1) @ v.float()


def trial(run, shape, steps=3):
    """Largest error of output and gradients against the reference on a small case, then seconds per call on a large one."""
    torch.manual_seed(0)

    def inputs(batch, heads, length):
        sizes = (192, 192, 128)
        return [torch.randn(batch, heads, length, s, device="cuda", dtype=torch.bfloat16, requires_grad=True) for s in sizes]

    q, k, v = inputs(2, 4, 300)
    seed = torch.randn(2, 4, 300, 128, device="cuda")
    want = reference(q, k, v, 0.09)
    got = run(q, k, v, 0.09)
    error = (got.float() - want).abs().max().item()
    for a, b in zip(torch.autograd.grad(got.float(), (q, k, v), seed), torch.autograd.grad(want, (q, k, v), seed)):
        error = max(error, ((a.float() - b.float()).abs().max() / b.float().abs().max()).item())
    q, k, v = inputs(*shape)
    for i in range(steps + 1):
        if i == 1:
            torch.cuda.synchronize()
            start = time.perf_counter()
        torch.autograd.grad(run(q, k, v, 0.09).sum(), (q, k, v))
    torch.cuda.synchronize()
    return error, (time.perf_counter() - start) / steps


def choose(shape=(8, 4, 4096), log=print):
    """Time the candidates on this GPU and keep the fastest correct one. Call once before compiling."""
    best = None
    for name, run in CANDIDATES.items():
        if name == "math" and best:
            continue
        try:
            error, seconds = trial(run, shape)
        except Exception as reason:  # a kernel this build or GPU does not have
            log(f"attention {name}: not available ({str(reason).splitlines()[0][:80]})")
            continue
        log(f"attention {name}: error {error:.4f}, {seconds * 1e3:.2f} ms forward and backward at {shape}")
        if error < 0.03 and (best is None or seconds < best[1]):
            best = (name, seconds)
    chosen["cuda"] = CANDIDATES[best[0]] if best else CANDIDATES["math"]
    log(f"attention: using {best[0] if best else 'math'}")


def causal_attention(q, k, v, scale):
    """q, k [B, N, T, 192], v [B, N, T, 128] -> [B, N, T, 128]."""
    if q.is_cuda and chosen["cuda"]:
        return chosen["cuda"](q, k, v, scale)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)
