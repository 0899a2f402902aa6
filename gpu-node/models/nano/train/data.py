"""Batches: tasks and books packed into rows, made by worker processes ahead of the training loop."""

import multiprocessing
import queue as queues
import random
import re
from collections import Counter

import numpy as np

import arithmetic
import books
import lists
import stories
import toolcalls
from architecture import ID, TRAINED_LENGTH
from chat import Encoder

EVALUATED = {
    "sum": arithmetic.problem("+"),
    "difference": arithmetic.problem("-"),
    "product": arithmetic.problem("x"),
    "word problem": arithmetic.word_problem,
    "recall": lists.recall,
    "multiple choice": lists.multiple_choice,
    "sort": lists.sort,
    "count": lists.count,
    "copy": lists.copy,
    "tool call": toolcalls.tool_call,
}


class Source:
    """Everything a worker needs to make rows: the encoded books and the generators."""

    def __init__(self, tokenizer, corpus, shares, longest):
        texts = [books.split(text)[0] for text in books.load(corpus).values()]
        vocabulary = Counter(re.findall(r"\b[a-z]{3,9}\b", " ".join(texts)))
        more = [word for word, n in vocabulary.items() if n >= 20]
        self.encoder = Encoder(tokenizer)
        self.books = [np.array([*tokenizer.encode(t), ID["[EOS]"]], dtype=np.int16) for t in texts]
        self.makers = dict(EVALUATED)
        self.makers["sort"] = lambda rng, size: lists.sort(rng, size, more=more)
        self.makers["recall"] = lambda rng, size: lists.recall(rng, size, longest=self.longest["recall"] * self.stretch)
        self.makers["copy"] = lambda rng, size: lists.copy(rng, size, longest=self.longest["copy"])
        self.makers["story"] = stories.continuation(texts)
        self.makers["talk"] = stories.small_talk
        total = sum(shares.values())
        self.shares = {name: share / total for name, share in shares.items()}
        self.longest, self.stretch = longest, 1
        self.made, self.total = Counter(), 1

    def book_piece(self, rng, length):
        book = rng.choices(self.books, weights=[len(b) for b in self.books])[0]
        start = rng.randrange(max(1, len(book) - length))
        return book[start : start + length].tolist()

    def row(self, rng, length, size, book_weight, fingerprints=None):
        """One row of `length` + 1 ids and, for each, the weight of its loss. The kind that lags most behind its share is next."""
        ids, weights = [], []
        # Rows beyond the trained length are there for recall over long distances.
        self.stretch = length // TRAINED_LENGTH if length > TRAINED_LENGTH and rng.random() < 0.7 else 1
        too_long = set()
        while len(ids) <= length:
            room = length + 1 - len(ids)
            behind = {n: s * self.total - self.made[n] for n, s in self.shares.items() if n not in too_long}
            name = max(behind, key=behind.get) if behind and room >= 48 else "books"
            if name == "books":
                piece = self.book_piece(rng, min(room, 512))
                new, w = piece, [book_weight] * len(piece)
            else:
                task = self.makers[name](rng, size * rng.random() ** 0.5)
                if fingerprints and task.turns[0][0] in fingerprints:  # cannot be, by task.held_out; and must not
                    continue
                new, w = self.encoder.messages(task.messages(), task.tools)
                if len(new) > room:  # tasks are never cut: another kind may fit, and book text always does
                    too_long.add(name)
                    continue
            self.made[name] += len(new)
            self.total += len(new)
            ids += new
            weights += w
        return ids[: length + 1], weights[: length + 1]


def batch(source, seed, step, rows, length, size, book_weight, fingerprints):
    rng = random.Random(f"train {seed} {step}")
    made = [source.row(rng, length, size, book_weight, fingerprints) for _ in range(rows)]
    return np.array([m[0] for m in made], dtype=np.int16), np.array([m[1] for m in made], dtype=np.float16)


def held_out_instances(name, count, seed="held out"):
    """The evaluation set of one task: `count` different instances."""
    rng, out, seen = random.Random(f"{seed} {name}"), [], set()
    make = EVALUATED.get(name, lists.long_recall)
    for _ in range(count * 50):
        task = make(rng, 1.0, True)
        key = task.turns[0][0] + repr(task.tools)
        if key not in seen:
            seen.add(key)
            out.append(task)
        if len(out) == count:
            break
    return out


class Feed:
    """Worker processes, each making every n-th batch. The plan gives (rows, length, size) for the current progress.

    Queues are short, so that a change of plan arrives within two batches of each worker.
    """

    def __init__(self, source, seed, first, plan, progress, workers, book_weight, fingerprints):
        context = multiprocessing.get_context("fork")
        self.progress = context.Value("d", progress)
        self.queues = [context.Queue(maxsize=1) for _ in range(workers)]
        self.step, self.workers = first, []
        for w, queue in enumerate(self.queues):
            arguments = (source, seed, first + w, workers, plan, self.progress, queue, book_weight, fingerprints)
            process = context.Process(target=work, args=arguments, daemon=True)
            process.start()
            self.workers.append(process)
        self.first = first

    def next(self):
        out = self.queues[(self.step - self.first) % len(self.queues)].get(timeout=300)
        if isinstance(out, Exception):
            raise out
        self.step += 1
        return out

    def close(self):
        for process in self.workers:
            process.terminate()


def work(source, seed, step, stride, plan, progress, queue, book_weight, fingerprints):
    """A worker's loop. It ends by itself when the training process is gone."""
    parent = multiprocessing.parent_process()
    try:
        while True:
            rows, length, size = plan(progress.value)
            made = batch(source, seed, step, rows, length, size, book_weight, fingerprints)
            while True:
                try:
                    queue.put(made, timeout=5)
                    break
                except queues.Full:
                    if not parent.is_alive():
                        return
            step += stride
    except Exception as reason:
        queue.put(reason)
