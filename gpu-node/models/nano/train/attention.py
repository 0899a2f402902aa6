"""Causal attention with keys of 192 and values of 128, through the fastest of PyTorch's kernels that is right.

Which of them takes unequal head sizes, and how fast it is, depends on the build; so the first call on a GPU times the
candidates forward and backward and keeps the winner.
"""

import time

import torch
import torch.nn.functional as F


# name: (the one kernel that is allowed, whether values are padded to the keys' size for kernels that want one head size)
CANDIDATES = {
    "flash, padded": ("flash", True),
    "cudnn": ("cudnn", False),
    "cudnn, padded": ("cudnn", True),
    "efficient": ("mem_efficient", False),
    "efficient, padded": ("mem_efficient", True),
    "math": ("math", False),
}
KERNELS = ["flash", "cudnn", "mem_efficient", "math"]
settings = {"pad": True}  # on a CPU, too, the fused kernel wants one head size


def use(candidate):
    kernel, settings["pad"] = CANDIDATES[candidate]
    for name in KERNELS:
        getattr(torch.backends.cuda, f"enable_{name}_sdp")(name == kernel)


def causal_attention(q, k, v, scale):
    """q, k [B, N, T, 192], v [B, N, T, 128] -> [B, N, T, 128]."""
    if not settings["pad"]:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)
    wide = F.pad(v, (0, k.shape[-1] - v.shape[-1]))
    return F.scaled_dot_product_attention(q, k, wide, is_causal=True, scale=scale)[..., : v.shape[-1]]


def reference(q, k, v, scale):
    scores = (q.float() @ k.float().transpose(-1, -2)) * scale
    future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
    return scores.masked_fill(future, float("-inf")).softmax(-1) @ v.float()


def inputs(batch, heads, length):
    return [torch.randn(batch, heads, length, size, device="cuda", dtype=torch.bfloat16, requires_grad=True) for size in (192, 192, 128)]


def error_of(shape):
    """Largest error of output and gradients against the reference, relative to the largest value."""
    q, k, v = inputs(*shape)
    seed = torch.randn(*shape, 128, device="cuda")
    want = reference(q, k, v, 0.09)
    got = causal_attention(q, k, v, 0.09).float()
    pairs = [(got, want), *zip(torch.autograd.grad(got, (q, k, v), seed), torch.autograd.grad(want, (q, k, v), seed))]
    errors = [((a.float() - b.float()).abs().max() / b.float().abs().max()).item() for a, b in pairs]
    return max(e if e == e else float("inf") for e in errors)


def seconds_of(shape, steps=3):
    q, k, v = inputs(*shape)
    for i in range(steps + 1):
        if i == 1:  # the first is for warming up
            torch.cuda.synchronize()
            start = time.perf_counter()
        torch.autograd.grad(causal_attention(q, k, v, 0.09).sum(), (q, k, v))
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / steps


def choose(shape=(8, 4, 4096), log=print):
    """Time the candidates on this GPU and keep the fastest correct one. Call once, before compiling."""
    best = None
    for name in CANDIDATES:
        if name == "math" and best:
            continue
        try:
            use(name)
            error = max(error_of((2, 4, 300)), error_of((1, 1, 8192)))
            seconds = seconds_of(shape)
        except Exception as reason:  # a kernel that this build or GPU does not have
            log(f"attention {name}: not available ({str(reason).splitlines()[0][:80]})")
            continue
        log(f"attention {name}: error {error:.4f}, {seconds * 1e3:.2f} ms forward and backward at {shape}")
        if error < 0.03 and (best is None or seconds < best[1]):
            best = (name, seconds)
    use(best[0] if best else "math")
    torch.cuda.empty_cache()
    log(f"attention: using {best[0] if best else 'math'}")
