"""Write the model cards (README.md of nano and nano-int4) from scores.json and the training log, so that they cannot disagree.

    python card.py gpu-node/models
"""

import argparse
import json
import os

FORMATS = {
    "nano": "FP8 (e4m3) in blocks of 128 x 128 with `weight_scale_inv`, as DeepSeek-V3 ships; embeddings, head, norms and routers are bfloat16",
    "nano-int4": "routed experts in INT4 (compressed-tensors pack-quantized, groups of 32, symmetric, rounded to nearest), as Kimi K2 Thinking ships; the rest is bfloat16",
}
CARD = """---
license: apache-2.0
pipeline_tag: text-generation
---

# {name}

A demonstration model of 20.6 million parameters in the architecture of Kimi K2 (DeepSeek-V3: multi-head latent attention, mixture of
experts). It exists so that the default of Edgewise exercises what a large model exercises: the latent row of 576 values, paged FP8 KV,
routing, FP8 and INT4 weights, a chat template, tool calls. It is no assistant: it knows no facts, and outside its
tasks it writes nonsense that sounds like a book for children.

{status}

## Scores on held-out instances

{table}

Greedy decoding, exact match of the answer, weights as stored in this folder. {measured}
Recall asks for one of at least 64 facts over at least 2,000 tokens, copying is of 200 random letters and digits, sorting is of 8 words,
sums and differences are of 3 digits, products of 2 by 1 digits. `scores.json` has the numbers and examples of wrong answers.
Overlap with training: {found} of {samples} freshly drawn training tasks of each kind equal a held-out instance or use a held-out pair of numbers.
{books}
## Shape

6 layers (the first dense), hidden 256, 4 heads, q_lora 128, kv_lora 512, rope 64, nope and v 128, 24 routed experts of width 128 (4 per
token) and one shared, sigmoid router with a correction bias, vocabulary 4,096. About 9.7 million parameters work on a token.
Context: 4,096 tokens, YaRN factor 4 to 16,384. Weights: {form}.

## Training

{training}
Text: 26 public-domain English books for children and generated tasks in chat form. Code, data rules and commands:
[train/]({train}). The log is [training-log.jsonl]({log}).
"""


def status(scores):
    if scores["floors_met"]:
        return "All tasks with a floor (over 90 % of 1,000 held-out instances) meet it."
    missed = [n for n in scores["tasks_with_a_floor"] if scores["scores"].get(n, {}).get("score", 0) <= scores["floor"]]
    return ("**These are interim weights.** The floors set for this model (over 90 % of 1,000 held-out instances on "
            f"{len(scores['tasks_with_a_floor'])} tasks) are NOT met"
            + (f": {len(missed)} of them are missed" if missed else ", since fewer than 1,000 instances were scored")
            + f". {scores['note']}")


def table(scores):
    lines = ["| task | right | of | share | floor |", "|---|---:|---:|---:|---:|"]
    for name, s in scores["scores"].items():
        floor = "90 %" if name in scores["tasks_with_a_floor"] else ""
        lines.append(f"| {name} | {s['right']} | {s['of']} | {100 * s['score']:.1f} % | {floor} |")
    return "\n".join(lines)


def training(log):
    """What the log says: devices, steps, tokens, seconds, the last loss."""
    with open(log, encoding="utf-8") as f:
        lines = [json.loads(line) for line in f]
    reports = [l for l in lines if "tokens_per_s" in l]
    pieces = [l["note"] for l in lines if l.get("note", "").startswith("piece ") and " on " in l["note"]]
    end = next((l["note"] for l in reversed(lines) if l.get("note", "").startswith(("finished", "piece ended"))), "the log has no end")
    last = reports[-1]
    return (f"{len(pieces)} piece(s), the last one: {pieces[-1]}. The end: {end}. Last loss reported: {last['loss']} "
            f"(mean over replies and book text, in nats per token).")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", help="the folder that holds nano and nano-int4")
    args = parser.parse_args()
    for name, form in FORMATS.items():
        folder = f"{args.models}/{name}"
        if not os.path.exists(f"{folder}/scores.json"):
            print(f"{folder}: no scores.json, no card")
            continue
        with open(f"{folder}/scores.json", encoding="utf-8") as f:
            scores = json.load(f)
        books = scores.get("books")
        card = CARD.format(
            name=name, form=form, status=status(scores), table=table(scores), training=training(f"{args.models}/nano/training-log.jsonl"),
            measured=f"Measured {scores['date']} on {scores['device']}, {scores['arithmetic'].split(',')[0]}.",
            found=scores["overlap_with_training"]["found"], samples=scores["overlap_with_training"]["training_tasks_of_each_kind"],
            books=f"Held-out ends of the books: {books['nats_per_token']} nats per token, {books['bits_per_byte']} bits per byte.\n" if books else "",
            train="train/README.md" if name == "nano" else "../nano/train/README.md",
            log="training-log.jsonl" if name == "nano" else "../nano/training-log.jsonl")
        with open(f"{folder}/README.md", "w", encoding="utf-8") as f:
            f.write(card)
        print(f"{folder}/README.md")


if __name__ == "__main__":
    main()
