"""Score an exported folder on held-out instances: 1,000 per task, greedy, exact match; and the books' held-out ends.

    python score.py gpu-node/models/nano --corpus BOOKS --out gpu-node/models/nano/scores.json

The instances come from a seed and from a class of keys that training never draws from (task.held_out). The check for
overlap is made again here: `--training-samples` training tasks are drawn and compared with the instances.
"""

import argparse
import datetime
import json
import os
import random
import time

import torch

import arithmetic
import books
import safetensors_file
from architecture import ID
from chat import Encoder
from data import EVALUATED, held_out_instances
from export import module_state, restore
from generate import greedy
from model import Nano
from tokenizer import Tokenizer

# The tasks with a floor, and how long a right reply can get, in tokens.
FLOOR = 0.9
FLOORS = ["sum", "difference", "product", "recall", "multiple choice", "sort", "copy", "tool call"]
LONGEST = {"recall": 16, "long recall": 16, "multiple choice": 24, "sort": 32, "count": 48, "copy": 220, "tool call": 64, "word problem": 160}


def score_task(model, encoder, name, tasks, device, budget, deadline):
    """Share of exact answers over as many batches as fit before the deadline; the batches hold at most `budget` tokens."""
    tokenizer = encoder.tok
    prompts = [encoder.messages(t.prompt(), t.tools, generate=True)[0] for t in tasks]
    assert len(tasks) == len({t.turns[0][0] + repr(t.tools) for t in tasks})
    if name == "recall":
        assert all(len(p) >= 2000 and t.turns[0][0].count("\n") >= 65 for p, t in zip(prompts, tasks)), "recall prompts are too short"
    if name == "long recall":
        assert all(8192 < len(p) < 16384 for p in prompts)
    if name == "copy":
        assert all(len(t.answer) >= 200 for t in tasks), "copy strings are too short"
    right, wrong, done, at = 0, [], 0, 0
    new = LONGEST.get(name, 80)
    while at < len(tasks) and time.time() < deadline:
        size = max(1, min(512, budget // (max(len(p) for p in prompts[at:]) + new)))
        replies = greedy(model, prompts[at : at + size], new, (ID["<|im_end|>"], ID["[EOS]"]))
        for task, ids in zip(tasks[at : at + size], replies):
            reply = tokenizer.decode(ids)
            if task.read(reply) == task.answer:
                right += 1
            elif len(wrong) < 3:
                wrong.append({"asked": task.turns[0][0][-160:], "wanted": task.answer[:120], "got": reply[:160]})
            done += 1
        at += size
    return {"right": right, "of": done, "score": round(right / max(done, 1), 4), "wrong": wrong}


@torch.no_grad()
def book_loss(model, tokenizer, corpus, device, pieces, length=1024):
    """Mean nats per token and bits per byte over the held-out ends of the books, in windows of `length` tokens."""
    total = tokens = size = 0.0
    for text in books.load(corpus).values():
        ids = tokenizer.encode(books.split(text)[1])
        for start in range(0, min(len(ids) - 1, pieces * length), length):
            window = torch.tensor([ids[start : start + length + 1]], device=device)
            logits = model.logits(model(window[:, :-1])).float()
            total += torch.nn.functional.cross_entropy(logits[0], window[0, 1:], reduction="sum").item()
            tokens += window.shape[1] - 1
            size += len(tokenizer.decode(window[0, 1:].tolist()).encode())
    return {"nats_per_token": round(total / tokens, 4), "bits_per_byte": round(total / size / 0.693147, 4), "tokens": int(tokens)}


def overlap(instances, samples):
    """How many of `samples` training tasks of each kind equal a held-out instance; and whether any pair of numbers does."""
    asked = {name: {t.turns[0][0] + repr(t.tools) for t in tasks} for name, tasks in instances.items()}
    rng, found = random.Random("overlap"), 0
    for name, make in EVALUATED.items():
        for _ in range(samples):
            task = make(rng, 1.0)
            found += task.turns[0][0] + repr(task.tools) in asked[name]
    for op in "+-x":
        for _ in range(samples):
            a, b = arithmetic.operands(rng, op, 1.0, False)
            found += a >= 10 and arithmetic.held_out_pair(op, a, b)
    return found


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="an exported model: nano, nano-int4 or nano-bf16")
    parser.add_argument("--corpus", help="folder of the books, for the loss on their held-out ends")
    parser.add_argument("--count", type=int, default=1000, help="instances per task")
    parser.add_argument("--tasks", help="only these, separated by commas")
    parser.add_argument("--dtype", choices=["bfloat16", "float32"], default="bfloat16")
    parser.add_argument("--seconds-per-task", type=float, default=600)
    parser.add_argument("--training-samples", type=int, default=2000)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--note", default="", help="a sentence that goes into the file")
    parser.add_argument("--out", help="write scores.json here")
    return parser.parse_args()


def main():
    args = arguments()
    if args.threads:
        torch.set_num_threads(args.threads)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokenizer = Tokenizer.load(f"{args.folder}/tokenizer.json")
    encoder = Encoder(tokenizer)
    model = Nano(dtype=getattr(torch, args.dtype))
    model.load_state_dict(module_state(restore(safetensors_file.load(f"{args.folder}/model.safetensors"))))
    model = model.to(device).eval()
    names = args.tasks.split(",") if args.tasks else [*EVALUATED, *(["long recall"] if device == "cuda" else [])]
    instances = {name: held_out_instances(name, min(args.count, 200) if name == "long recall" else args.count) for name in {*EVALUATED, *names}}
    scores = {}
    for name in names:
        start = time.time()
        budget = 400_000 if device == "cuda" else 16_000
        scores[name] = score_task(model, encoder, name, instances[name], device, budget, start + args.seconds_per_task)
        s = scores[name]
        print(f"{name}: {s['right']} of {s['of']} = {s['score']:.1%}  ({time.time() - start:.0f} s)", flush=True)
    result = {
        "model": os.path.basename(os.path.abspath(args.folder)),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
        "device": torch.cuda.get_device_name() if device == "cuda" else "CPU",
        "arithmetic": f"{args.dtype}, weights as stored in the folder",
        "decoding": "greedy, exact match of the answer",
        "note": args.note,
        "floor": FLOOR,
        "tasks_with_a_floor": FLOORS,
        "floors_met": all(n in scores and scores[n]["of"] >= 1000 and scores[n]["score"] > FLOOR for n in FLOORS),
        "overlap_with_training": {"found": overlap(instances, args.training_samples), "training_tasks_of_each_kind": args.training_samples},
        "scores": scores,
    }
    if args.corpus:
        result["books"] = book_loss(model, tokenizer, args.corpus, device, 8 if device == "cuda" else 1, 1024 if device == "cuda" else 512)
        print(f"books: {result['books']}")
    print(f"floors met: {result['floors_met']}; overlap with training: {result['overlap_with_training']['found']}")
    if args.out:
        with open(args.out, "w", encoding="utf-8") as f:
            f.write(json.dumps(result, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
