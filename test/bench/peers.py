"""Times what PyTorch offers for the shapes of `edgewise bench gpu`, as context for its table.

    bin/edgewise bench gpu --list > shapes.json
    python3 test/bench/peers.py shapes.json > peers.json
    bin/edgewise bench gpu --peers peers.json

Linear layers in bf16 are cuBLAS; attention is scaled_dot_product_attention over a contiguous bf16 cache. The method is
that of gpu-node/bench/gpu/measure.ts: at least 20 calls in a CUDA graph over buffers of at least 200 MB together, the
median of 21 replays. Needs a GPU and torch; says so and exits with 3 where one is missing.
"""
import json
import statistics
import sys

COLD_BYTES = 200e6
CALLS = 20
REPLAYS = 21


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        import torch
    except ImportError:
        print("peers: PyTorch is not installed", file=sys.stderr)
        return 3
    if not torch.cuda.is_available():
        print("peers: PyTorch sees no GPU", file=sys.stderr)
        return 3
    with open(sys.argv[1]) as file:
        shapes = json.load(file)
    prepare = {"linear": linear, "attention": attention}
    us = {}
    for shape in shapes:
        if "kind" not in shape:
            continue
        us[shape["name"]] = measure(torch, prepare[shape["kind"]](torch, shape))
        print(f"{shape['name']:48} {us[shape['name']]:9.1f} us", file=sys.stderr)
        torch.cuda.empty_cache()
    device = torch.cuda.get_device_name()
    json.dump({"device": device, "torch": torch.__version__, "cuda": torch.version.cuda, "us": us}, sys.stdout, indent=1)
    return 0


def copies_for(size: float) -> int:
    return max(2, min(64, -(-int(COLD_BYTES) // int(size))))


def linear(torch, s):
    m, n, k = s["m"], s["n"], s["k"]
    copies = copies_for(2 * n * k)
    x = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
    weights = [torch.randn(n, k, device="cuda", dtype=torch.bfloat16) for _ in range(copies)]
    out = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
    return copies, lambda i: torch.matmul(x, weights[i % copies].t(), out=out)


def attention(torch, s):
    batch, heads, kv_heads, dim, context = (s[key] for key in ("batch", "heads", "kvHeads", "dim", "context"))
    copies = copies_for(4 * batch * kv_heads * context * dim)
    make = lambda h, t: torch.randn(batch, h, t, dim, device="cuda", dtype=torch.bfloat16)
    q = make(heads, 1)
    caches = [(make(kv_heads, context), make(kv_heads, context)) for _ in range(copies)]
    attend = torch.nn.functional.scaled_dot_product_attention
    return copies, lambda i: attend(q, *caches[i % copies], enable_gqa=heads != kv_heads)


def measure(torch, prepared) -> float:
    """Microseconds per call."""
    copies, call = prepared
    calls = max(CALLS, copies)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):  # warm-up, as torch.cuda.graph wants it
        for i in range(3):
            call(i)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(calls):
            call(i)
    graph.replay()
    torch.cuda.synchronize()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(REPLAYS + 1)]
    marks[0].record()
    for mark in marks[1:]:
        graph.replay()
        mark.record()
    torch.cuda.synchronize()
    times = [a.elapsed_time(b) for a, b in zip(marks, marks[1:])]
    return 1000 * statistics.median(times) / calls


if __name__ == "__main__":
    sys.exit(main())
