"""The two courses: the full one on a GPU, and a short one for two CPU cores."""

from dataclasses import dataclass
from typing import Callable


@dataclass
class Preset:
    """plan(progress) -> (rows, tokens per row, size of the tasks from 0 to 1); shares: of tokens, by kind of text."""

    plan: Callable
    shares: dict
    longest: dict
    total_seconds: float
    matrix_lr: float
    adam_lr: float
    warmup: float
    decay_from: float
    balance_rate: float
    book_weight: float
    workers: int
    compile: bool
    report_every: float


def gpu_plan(progress):
    """131,072 tokens a step. Tasks grow over the first sixth; the last 4 % are four times longer, for YaRN's range."""
    if progress < 0.96:
        return 32, 4096, min(1.0, 0.25 + progress / 0.16 * 0.75)
    return 8, 16384, 1.0


def cpu_plan(progress):
    """2,048 tokens a step in rows of 256; tasks stay small."""
    return 8, 256, min(0.4, 0.1 + progress * 0.5)


PRESETS = {
    "gpu": Preset(
        plan=gpu_plan,
        shares={"books": 0.06, "story": 0.05, "talk": 0.01, "recall": 0.30, "multiple choice": 0.10, "copy": 0.12, "tool call": 0.12,
                "sort": 0.08, "count": 0.03, "sum": 0.05, "difference": 0.05, "product": 0.02, "word problem": 0.05},
        longest={"recall": 125, "copy": 330},
        total_seconds=900, matrix_lr=4e-3, adam_lr=4e-3, warmup=0.02, decay_from=0.55, balance_rate=1e-3, book_weight=0.5,
        workers=10, compile=True, report_every=10),
    "cpu": Preset(
        plan=cpu_plan,
        shares={"books": 0.10, "story": 0.05, "talk": 0.10, "copy": 0.09, "tool call": 0.10, "sort": 0.04,
                "sum": 0.20, "difference": 0.14, "product": 0.18},
        longest={"recall": 10, "copy": 80},
        total_seconds=3600, matrix_lr=6e-3, adam_lr=4e-3, warmup=0.02, decay_from=0.5, balance_rate=4e-3, book_weight=0.5,
        workers=1, compile=False, report_every=20),
}
