"""The courses: the full one on a GPU, a short one for a CPU, and one of seconds that only tries every piece out."""

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
    probe_every: float
    probed: int  # held-out instances of each task


def gpu_plan(progress):
    """131,072 tokens a step. Tasks grow over the first sixth; a stretch of rows four times as long, for YaRN's range, has time to heal."""
    if 0.83 <= progress < 0.875:
        return 8, 16384, 1.0
    return 32, 4096, min(1.0, 0.25 + progress / 0.16 * 0.75)


def cpu_plan(progress):
    """2,048 tokens a step in rows of 256; tasks stay small."""
    return 8, 256, min(0.4, 0.1 + progress * 0.5)


def smoke_plan(progress):
    return 2, 256 if progress < 0.5 else 384, 0.5


PRESETS = {
    "gpu": Preset(
        plan=gpu_plan,
        shares={"books": 0.06, "story": 0.05, "talk": 0.01, "recall": 0.30, "multiple choice": 0.10, "copy": 0.12, "tool call": 0.12,
                "sort": 0.08, "count": 0.03, "sum": 0.05, "difference": 0.05, "product": 0.02, "word problem": 0.05},
        longest={"recall": 13_000, "copy": 330},
        total_seconds=960, matrix_lr=4e-3, adam_lr=4e-3, warmup=0.02, decay_from=0.55, balance_rate=1e-3, book_weight=0.5,
        workers=8, compile=True, report_every=10, probe_every=60, probed=100),
    "cpu": Preset(
        plan=cpu_plan,
        shares={"books": 0.10, "story": 0.05, "talk": 0.10, "copy": 0.09, "tool call": 0.10, "sort": 0.04,
                "sum": 0.20, "difference": 0.14, "product": 0.18},
        longest={"recall": 600, "copy": 80},
        total_seconds=3600, matrix_lr=6e-3, adam_lr=4e-3, warmup=0.02, decay_from=0.5, balance_rate=4e-3, book_weight=0.5,
        workers=1, compile=False, report_every=60, probe_every=1200, probed=8),
    "smoke": Preset(
        plan=smoke_plan,
        shares={"books": 0.2, "talk": 0.2, "recall": 0.2, "copy": 0.2, "product": 0.2},
        longest={"recall": 300, "copy": 40},
        total_seconds=20, matrix_lr=4e-3, adam_lr=4e-3, warmup=0.1, decay_from=0.5, balance_rate=1e-3, book_weight=0.5,
        workers=2, compile=False, report_every=1, probe_every=15, probed=2),
}
