"""Train nano, in pieces that can be stopped and resumed.

    python train.py --corpus BOOKS --checkpoint FILE --seconds 520          # repeat until it says it is finished
    python train.py --corpus BOOKS --checkpoint FILE --preset cpu --seconds 4500

The schedule is a function of the seconds spent in steps, not of their number: whatever the machine's speed, the run goes
through its whole course in `--total-seconds`. Text is read from a folder of .txt files, never from this repository.
"""

import argparse
import json
import os
import time

import torch

import attention
import optimizer as optimizers
from data import EVALUATED, Feed, Source, held_out_instances
from model import Nano
from presets import PRESETS
from probe import probe
from tokenizer import Tokenizer

HERE = os.path.dirname(os.path.abspath(__file__))


def rate(progress, warmup, decay_from):
    """Warm up, hold, then fall linearly to nothing."""
    if progress < warmup:
        return max(progress / warmup, 0.02)
    return min(1.0, max(0.0, (1 - progress) / (1 - decay_from)))


def save(path, model, optimizer_list, state):
    torch.save({"model": model.state_dict(), "optimizers": [o.state_dict() for o in optimizer_list], "state": state}, path + ".part")
    os.replace(path + ".part", path)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", required=True, help="folder of .txt files")
    parser.add_argument("--checkpoint", required=True, help="file to resume from and to save to")
    parser.add_argument("--preset", choices=PRESETS, default="gpu")
    parser.add_argument("--seconds", type=float, default=520, help="this piece ends after so many seconds, start-up included")
    parser.add_argument("--total-seconds", type=float, help="seconds of training steps in the whole course")
    parser.add_argument("--tokenizer", default=f"{HERE}/../tokenizer.json")
    parser.add_argument("--log", help="file of one JSON line per report, appended to; beside the checkpoint if not given")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--save-every", type=float, default=240, help="seconds")
    return parser.parse_args()


def main():
    began = time.perf_counter()
    args = arguments()
    preset = PRESETS[args.preset]
    total_seconds = args.total_seconds or preset.total_seconds
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if args.threads:
        torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    resumed = os.path.exists(args.checkpoint)
    saved = torch.load(args.checkpoint, map_location="cpu", weights_only=True) if resumed else None
    state = saved["state"] if saved else {"step": 0, "tokens": 0, "seconds": 0.0, "pieces": 0}
    state["pieces"] += 1

    # Workers are forked before the first use of the GPU.
    tokenizer = Tokenizer.load(args.tokenizer)
    source = Source(tokenizer, args.corpus, preset.shares, preset.longest)
    held_out = {name: held_out_instances(name, 1000) for name in EVALUATED}
    fingerprints = {t.turns[0][0] for name, tasks in held_out.items() if name != "tool call" for t in tasks}
    probed = {name: tasks[: preset.probed] for name, tasks in held_out.items()}
    workers = args.workers or preset.workers
    feed = Feed(source, args.seed, state["step"], preset.plan, state["seconds"] / total_seconds, workers, preset.book_weight, fingerprints)

    log_file = open(args.log or os.path.splitext(args.checkpoint)[0] + ".jsonl", "a", encoding="utf-8")

    def log(line):
        print(line if isinstance(line, str) else json.dumps(line), flush=True)
        log_file.write(json.dumps({"note": line} if isinstance(line, str) else line) + "\n")
        log_file.flush()

    model = Nano().to(device)
    if device == "cuda":
        torch.set_float32_matmul_precision("high")
        attention.choose(log=log)
        name = torch.cuda.get_device_name()
    else:
        name = f"CPU, {torch.get_num_threads()} threads"
    log(f"piece {state['pieces']} at step {state['step']} on {name}, torch {torch.__version__}, preset {args.preset}, {total_seconds:.0f} s in all")
    optimizer_list = optimizers.build(model, preset.matrix_lr, preset.adam_lr)
    if saved:
        model.load_state_dict(saved["model"])
        for optimizer, values in zip(optimizer_list, saved["optimizers"]):
            optimizer.load_state_dict(values)
        del saved
    if preset.compile and not args.no_compile:
        model = compiled(model, preset, device, log)
    loop(args, preset, model, optimizer_list, state, feed, total_seconds, device, began, lambda: probe(model, source.encoder, probed), log)
    feed.close()


def compiled(model, preset, device, log):
    """Compile layer by layer, so that equal layers share their code; without a working compiler, go on without."""
    # Two kinds of layer, two shapes, training and not: more variants than the default limit where layers do not share.
    torch._dynamo.config.recompile_limit = 64
    try:
        for layer in model.layers:
            layer.compile(dynamic=False)
        rows, length, _ = preset.plan(0.0)
        ids = torch.zeros(rows, length, dtype=torch.long, device=device)
        start = time.perf_counter()
        model.loss(ids, ids, torch.ones(rows, length, device=device)).backward()
        log(f"compiled in {time.perf_counter() - start:.0f} s")
    except Exception as reason:
        log(f"not compiled: {str(reason).splitlines()[0][:120]}")
        for layer in model.layers:
            layer._compiled_call_impl = None
    model.zero_grad(set_to_none=True)
    for layer in model.layers:
        if hasattr(layer.mlp, "gate"):
            layer.mlp.gate.load.zero_()
    return model


def loop(args, preset, model, optimizer_list, state, feed, total_seconds, device, began, look, log):
    routers = [layer.mlp.gate for layer in model.layers if hasattr(layer.mlp, "gate")]
    model.train()
    last_save = last_report = last_look = time.perf_counter()
    shape, window = None, {"loss": 0.0, "steps": 0, "tokens": 0, "seconds": 0.0}
    losses = torch.zeros((), device=device)
    while True:
        progress = state["seconds"] / total_seconds
        now = time.perf_counter()
        if progress >= 1 or now - began > args.seconds:
            break
        start = now
        feed.progress.value = progress
        ids, weights = feed.next()
        ids = torch.from_numpy(ids).to(device, non_blocking=True).long()
        weights = torch.from_numpy(weights).to(device, non_blocking=True).float()
        inputs, targets = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
        factor = rate(progress, preset.warmup, preset.decay_from)
        for optimizer in optimizer_list:
            for group in optimizer.param_groups:
                group["lr"] = group["peak"] * factor
        loss = model.loss(inputs, targets, weights[:, 1:].contiguous())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizer_list:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        worst = [router.balance(preset.balance_rate * max(factor, 0.1)) for router in routers]
        losses += loss.detach()
        if device == "cuda" and state["step"] % 8 == 0:
            torch.cuda.synchronize()
        spent = time.perf_counter() - start
        # The first step of a shape may compile: its time is not part of the course.
        state["seconds"] += spent if inputs.shape == shape else 0.0
        shape = inputs.shape
        state["step"] += 1
        state["tokens"] += inputs.numel()
        window["steps"] += 1
        window["tokens"] += inputs.numel()
        window["seconds"] += spent
        now = time.perf_counter()
        if now - last_report > preset.report_every:
            value = losses.item() / window["steps"]
            log({"step": state["step"], "tokens": state["tokens"], "seconds": round(state["seconds"], 1), "progress": round(progress, 4),
                 "loss": round(value, 4), "rate": round(factor, 3), "tokens_per_s": round(window["tokens"] / window["seconds"]),
                 "rows": list(inputs.shape), "worst_load": round(max(w.item() for w in worst), 2)})
            if value != value:
                raise SystemExit("the loss is not a number: the last checkpoint stands")
            losses.zero_()
            window = {"loss": 0.0, "steps": 0, "tokens": 0, "seconds": 0.0}
            last_report = now
        if now - last_look > preset.probe_every:
            log({"step": state["step"], "held_out_replies_right": look()})
            last_look = time.perf_counter()
        if now - last_save > args.save_every:
            save(args.checkpoint, model, optimizer_list, state)
            last_save = time.perf_counter()
    save(args.checkpoint, model, optimizer_list, state)
    done = state["seconds"] >= total_seconds
    log({"step": state["step"], "held_out_replies_right": look()})
    log(f"{'finished' if done else 'piece ended'} at step {state['step']}, {state['tokens'] / 1e6:.1f} M tokens, {state['seconds']:.0f} of {total_seconds:.0f} s")


if __name__ == "__main__":
    main()
