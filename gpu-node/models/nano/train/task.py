"""What a generated task is, and the rule that keeps held-out instances out of training."""

import zlib
from dataclasses import dataclass, field
from typing import Callable


def held_out(key, share=10):
    """True for one in `share` keys. Training takes only keys for which this is false, evaluation only the others."""
    return zlib.crc32(key.encode()) % share == 0


def exact(reply):
    return reply


@dataclass
class Task:
    """turns: [(user text, assistant text)], of which evaluation asks only the first; answer: what `read(reply)` must give."""

    name: str
    turns: list
    answer: str
    read: Callable = exact
    tools: list | None = None
    system: str | None = None
    call: dict | None = None  # the tool call of the first turn: {id, arguments}
    after: list = field(default_factory=list)  # messages that follow the first turn, as after a tool call

    def prompt(self):
        """The messages that evaluation sends."""
        system = [{"role": "system", "content": self.system}] if self.system else []
        return [*system, {"role": "user", "content": self.turns[0][0]}]

    def messages(self):
        out = [{"role": "system", "content": self.system}] if self.system else []
        for i, (user, assistant) in enumerate(self.turns):
            reply = {"role": "assistant", "content": assistant}
            if i == 0 and self.call:
                reply["tool_calls"] = [self.call]
            out += [{"role": "user", "content": user}, reply]
            if i == 0:
                out += self.after
        return out
