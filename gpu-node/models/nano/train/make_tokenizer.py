"""Train the tokenizer on the books and on generated tasks, and write tokenizer.json and tokenizer_config.json.

    python make_tokenizer.py --corpus BOOKS --out gpu-node/models/nano
"""

import argparse
import json
import random

import books
import tokenizer
from chat import TOKENIZER_CONFIG
from data import EVALUATED
from stories import small_talk


def task_texts(count=1500):
    """Text of every kind of task but copying, whose random letters hold no words."""
    rng = random.Random("tokenizer")
    for name, make in [*EVALUATED.items(), ("talk", small_talk)]:
        for _ in range(count if name != "copy" else 0):
            task = make(rng, 0.5)
            yield json.dumps(task.tools) if task.tools else ""
            for message in task.messages():
                yield message["role"]
                yield message["content"]
                for call in message.get("tool_calls", []):
                    yield f"{call['id']} {call['arguments']}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    merges = tokenizer.train([*books.load(args.corpus).values(), *task_texts(), "tool_declare user assistant system tool " * 50])
    with open(f"{args.out}/tokenizer.json", "w", encoding="utf-8") as f:
        f.write(json.dumps(tokenizer.tokenizer_json(merges), ensure_ascii=False, indent=0) + "\n")
    with open(f"{args.out}/tokenizer_config.json", "w", encoding="utf-8") as f:
        f.write(json.dumps(TOKENIZER_CONFIG, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
