"""Muon for the matrices of the layers, AdamW for embeddings, head, norms and routers."""

import torch


def orthogonalize(g, steps):
    """Newton-Schulz iteration towards the nearest orthogonal matrix, for a bfloat16 stack [n, rows, columns], rows <= columns."""
    x = g / (g.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        a = torch.bmm(x, x.mT)
        b = torch.bmm(a, a).mul_(2.0315).add_(a, alpha=-4.7750)
        x = torch.bmm(b, x).add_(x, alpha=3.4445)
    return x


class Muon(torch.optim.Optimizer):
    """Momentum, orthogonalised per matrix; scaled so that the update's root mean square is 0.2 (arXiv:2502.16982).

    A parameter of three dimensions is a stack of matrices, and so is one of two that has a `stack` attribute (its heads).
    Matrices of one shape, whichever way they lie, go through one batched iteration.
    """

    def __init__(self, parameters, lr, momentum=0.95, decay=0.1, iterations=5):
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "decay": decay, "iterations": iterations})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            shapes = {}
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if "momentum" not in state:
                    state["momentum"] = torch.zeros_like(p)
                m = state["momentum"]
                m.lerp_(p.grad, 1 - group["momentum"])
                update = p.grad.lerp(m, group["momentum"]).to(torch.bfloat16)
                update = update.view(-1, *p.shape[1:]) if p.dim() == 3 else update.view(getattr(p, "stack", 1), -1, p.shape[1])
                flipped = update.shape[1] > update.shape[2]
                update = update.mT if flipped else update
                shapes.setdefault(tuple(update.shape[1:]), []).append((p, update, flipped))
            for (_, columns), entries in shapes.items():
                result = orthogonalize(torch.cat([u for _, u, _ in entries]), group["iterations"])
                scale = 0.2 * columns**0.5
                for (p, _, flipped), part in zip(entries, result.split([len(u) for _, u, _ in entries])):
                    part = (part.mT if flipped else part).reshape(p.shape)
                    p.mul_(1 - group["lr"] * group["decay"])
                    p.add_(part, alpha=-group["lr"] * scale)


def build(model, matrix_lr, adam_lr):
    """[Muon, AdamW], each group with its peak rate under `peak`."""
    matrices, embeddings, rest = [], [], []
    for name, p in model.named_parameters():
        if name.startswith(("embed_tokens", "lm_head")):
            embeddings.append(p)
        elif p.dim() < 2 or name.endswith("gate.weight"):
            rest.append(p)
        else:
            matrices.append(p)
    cuda = matrices[0].is_cuda
    adam = torch.optim.AdamW(
        [{"params": embeddings, "lr": adam_lr, "weight_decay": 0.01}, {"params": rest, "lr": adam_lr, "weight_decay": 0.0}],
        betas=(0.9, 0.95), eps=1e-10, fused=cuda)
    # A CPU pays for the iterations with a third of a step, and three of them do most of the work.
    optimizers = [Muon(matrices, matrix_lr, iterations=5 if cuda else 3), adam]
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["peak"] = group["lr"]
    return optimizers
