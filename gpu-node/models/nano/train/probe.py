"""A cheap look at held-out tasks during training: is every token of the reply the most likely one, given those before it?

That is when greedy decoding would write the whole reply as the generator does, so it never flatters the scores.
"""

import torch


@torch.no_grad()
def probe(model, encoder, instances, budget=200_000):
    """{task: share of replies that are right in every token}. Runs without compiled code: its shapes come only once."""
    device = model.embed_tokens.weight.device
    compiled = [layer._compiled_call_impl for layer in model.layers]
    for layer in model.layers:
        layer._compiled_call_impl = None
    model.eval()
    scores = {}
    for name, tasks in instances.items():
        rows, right = [], 0
        for task in tasks:
            before = len(encoder.messages(task.prompt(), task.tools, generate=True)[0])
            count = 3 if task.system else 2
            rows.append((encoder.messages(task.messages()[:count], task.tools)[0], before))
        longest = max(len(ids) for ids, _ in rows)
        size = max(1, budget // longest)
        for at in range(0, len(rows), size):
            part = rows[at : at + size]
            ids = torch.zeros(len(part), longest, dtype=torch.long)
            taught = torch.zeros(len(part), longest, dtype=torch.bool)
            for i, (row, before) in enumerate(part):
                ids[i, : len(row)] = torch.tensor(row)
                taught[i, before : len(row)] = True
            ids, taught = ids.to(device), taught[:, 1:].to(device)
            hidden = model(ids[:, :-1])
            wrong = torch.zeros_like(taught)
            wrong[taught] = model.logits(hidden[taught]).argmax(-1) != ids[:, 1:][taught]
            right += int((~wrong.any(1)).sum())
        scores[name] = round(right / len(rows), 3)
    model.train()
    for layer, call in zip(model.layers, compiled):
        layer._compiled_call_impl = call
    return scores
