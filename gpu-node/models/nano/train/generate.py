"""Batched greedy generation with a cache of latents: weight-absorbed decode, as an MLA engine does it."""

import torch


@torch.no_grad()
def greedy(model, prompts, max_new, stop):
    """prompts: lists of ids of any lengths; stop: ids that end a row. Returns the new ids of each, without the stop id."""
    device = model.embed_tokens.weight.device
    lengths = torch.tensor([len(p) for p in prompts], device=device)
    rows, longest = len(prompts), int(lengths.max())
    ids = torch.zeros(rows, longest, dtype=torch.long)
    for i, p in enumerate(prompts):
        ids[i, : len(p)] = torch.tensor(p)
    prefill = []
    hidden = model(ids.to(device), cache=prefill)
    last = model.logits(hidden[torch.arange(rows, device=device), lengths - 1])
    cache = []
    for latent, k_rope in prefill:
        room = torch.zeros(rows, longest + max_new, latent.shape[-1] + k_rope.shape[-1], dtype=latent.dtype, device=device)
        room[:, :longest] = torch.cat([latent, k_rope], dim=-1)
        cache.append(room)
    out, alive = [[] for _ in prompts], list(range(rows))
    stop = set(stop)
    token = last.argmax(-1)
    for step in range(max_new):
        ended = []
        for i, t in zip(alive, token.tolist()):
            if t in stop:
                ended.append(i)
            else:
                out[i].append(t)
        if ended:  # rows that have ended leave the batch
            gone = set(ended)
            keep = torch.tensor([n for n, i in enumerate(alive) if i not in gone], dtype=torch.long, device=device)
            alive = [i for i in alive if i not in gone]
            token, lengths = token[keep], lengths[keep]
            cache = [c[keep] for c in cache]
        if not alive or step == max_new - 1:
            break
        token = decode(model, token, lengths, cache).argmax(-1)
        lengths = lengths + 1
    return out


def decode(model, token, lengths, cache):
    """One token per row at position lengths[row]; writes its latent row into the cache. Returns logits [rows, vocab]."""
    rows = torch.arange(len(token), device=token.device)
    end = int(lengths.max()) + 1
    cos, sin = model.angles(lengths[:, None])
    future = torch.arange(end, device=token.device)[None] > lengths[:, None]
    x = model.embed_tokens(token)[:, None].to(model.dtype)
    for layer, c in zip(model.layers, cache):
        a = layer.self_attn
        h = layer.input_layernorm(x)
        c[rows, lengths] = torch.cat(a.latents(h, cos, sin), dim=-1)[:, 0]
        q_nope, q_rope = a.queries(h, cos, sin)  # [rows, N, 1, ...]
        up = a.kv_b_proj.weight.to(x.dtype).view(a.heads, a.nope + a.value, a.latent)
        q = torch.cat([torch.einsum("bnqd,ndr->bnqr", q_nope, up[:, : a.nope]), q_rope], dim=-1)[:, :, 0]
        scores = (torch.einsum("bnr,btr->bnt", q, c[:, :end])).float() * a.scale
        p = scores.masked_fill(future[:, None], float("-inf")).softmax(-1).to(x.dtype)
        y = torch.einsum("bnr,ndr->bnd", torch.einsum("bnt,btr->bnr", p, c[:, :end, : a.latent]), up[:, a.nope :])
        x = x + a.o_proj(y.reshape(len(token), 1, -1))
        x = x + layer.mlp(layer.post_attention_layernorm(x))
    return model.logits(model.norm(x))[:, 0]
