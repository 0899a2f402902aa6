"""Tasks over text in the prompt: recall from a list of facts, multiple choice, sorting, counting, copying."""

import string

from task import Task, held_out
from words import ADJECTIVES, ANIMALS, CITIES, COLOURS, NAMES, PLACES, SORTABLE, THINGS, TRADES

ALPHABET = string.ascii_letters + string.digits


def code(rng):
    return "".join(rng.choice(string.digits) for _ in range(4))


# Each kind of fact: (how many there can be, subject, value, sentence, question).
FACTS = [
    (lambda r: f"{r.choice(ADJECTIVES)} {r.choice(THINGS)}", code,
     "The number written on the {s} is {v}.", "What is the number written on the {s}?"),
    (lambda r: f"{r.choice(NAMES)} the {r.choice(TRADES)}", lambda r: f"{r.choice(COLOURS)} {r.choice(ANIMALS)}",
     "{s} keeps a {v} at home and feeds it every morning.", "What does {s} keep at home?"),
    (lambda r: f"{r.choice(COLOURS)} {r.choice(PLACES)}", code,
     "To enter the {s} one must say the word {v} at the gate.", "Which word must one say to enter the {s}?"),
    (lambda r: f"{r.choice(NAMES)} from {r.choice(CITIES)}", lambda r: f"{r.choice(ADJECTIVES)} {r.choice(THINGS)}",
     "For the birthday, {s} was given a {v} wrapped in paper.", "What was {s} given for the birthday?"),
    (lambda r: f"{r.choice(ADJECTIVES)} {r.choice(TRADES)}", lambda r: f"{r.choice(COLOURS)} {r.choice(PLACES)}",
     "On most evenings the {s} can be found near the {v}.", "Where can the {s} be found on most evenings?"),
    (lambda r: f"{r.choice(NAMES)} and {r.choice(NAMES)}", lambda r: r.choice(CITIES) + " at " + str(r.randrange(1, 13)),
     "It was agreed that {s} would meet in {v} o'clock sharp.", "Where and when would {s} meet?"),
]
OPENINGS = ["Read these facts.", "Here is a list of facts.", "Remember the following facts.", "Facts:"]


def facts(rng, count, minimum_characters=0):
    """Distinct [(subject, value, sentence, question)], at least `count` and at least so many characters."""
    out, seen, characters = [], set(), 0
    kinds = FACTS if minimum_characters > 20_000 or rng.random() < 0.7 else rng.sample(FACTS, rng.randrange(1, 4))
    while len(out) < count or characters < minimum_characters:
        subject, value, sentence, question = rng.choice(kinds)
        s = subject(rng)
        if s in seen:
            continue
        seen.add(s)
        v = value(rng)
        text = sentence.format(s=s, v=v)
        text = text[0].upper() + text[1:]
        out.append((s, v, text, question.format(s=s)))
        characters += len(text)
    return out


def recall(rng, size=1.0, evaluate=False, longest=13_000, evaluated=(96, 9600)):
    """Evaluation: at least 64 facts in at least 2,000 tokens (9,600 characters are at least that; score.py asserts it). Training: up to `longest` characters."""
    while True:
        if evaluate:
            known = facts(rng, *evaluated)
        else:
            known = facts(rng, 2, rng.uniform(100, 200 + (longest - 200) * size**1.5))
        lines = "\n".join(k[2] for k in known)
        if held_out(lines) != evaluate:
            continue
        # Long lists get more questions, or so few of their tokens would teach anything.
        asked = rng.sample(known, 1 if evaluate else rng.randrange(1, min(len(known), 5 + len(known) // 5) + 1))
        opening = rng.choice(OPENINGS)
        turns = [(f"{opening}\n{lines}\n{asked[0][3]}", asked[0][1])] + [(k[3], k[1]) for k in asked[1:]]
        return Task("recall", turns, asked[0][1])


def long_recall(rng, size=1.0, evaluate=True):
    """Recall far beyond the 4,096 tokens of training: some 12,000 tokens, within YaRN's range. Only evaluated."""
    return recall(rng, size, evaluate, evaluated=(400, 42000))


def multiple_choice(rng, size=1.0, evaluate=False):
    """Four options, one of them stated. The reply names the value first, then the letter."""
    while True:
        known = facts(rng, 8 if evaluate else rng.randrange(2, 4 + int(10 * size)))
        lines = "\n".join(k[2] for k in known)
        if held_out(lines) != evaluate:
            continue
        turns = []
        for i, (_, value, _, question) in enumerate(rng.sample(known, 1 if evaluate else min(len(known), rng.randrange(1, 4)))):
            same = [k[1] for k in known if k[3][:9] == question[:9] and k[1] != value]
            options = {value, *rng.sample(same, min(len(same), 3))}
            while len(options) < 4:
                options.add(next(f[1] for f in FACTS_BY_QUESTION[question[:9]](rng)))
            # Sorted first: the order of a set differs from process to process.
            options = sorted(sorted(options), key=lambda o: rng.random())
            letter = "ABCD"[options.index(value)]
            text = f"{question}\n" + "\n".join(f"{l}) {o}" for l, o in zip("ABCD", options))
            turns.append((f"{lines}\n\n{text}" if i == 0 else text, f"{value}. Answer: {letter}"))
        return Task("multiple choice", turns, turns[0][1][-1], lambda reply: reply.rpartition("Answer:")[2].strip()[:1])


def another(kind):
    def values(rng):
        yield ("", kind[1](rng))

    return values


FACTS_BY_QUESTION = {kind[3].format(s="")[:9]: another(kind) for kind in FACTS}


def sort(rng, size=1.0, evaluate=False, more=()):
    """Evaluation: 8 words. Training: 2 to 10, some of them from the books where `more` is given."""
    while True:
        count = 8 if evaluate else rng.randrange(2, 4 + int(7 * size))
        pool = more if more and not evaluate and rng.random() < 0.25 else SORTABLE
        words = rng.sample(pool, count)
        if held_out(",".join(words)) != evaluate:
            continue
        ask = rng.choice(["Sort these words: {w}", "Put these words in alphabetical order: {w}", "Sort alphabetically: {w}"])
        answer = ", ".join(sorted(words))
        return Task("sort", [(ask.format(w=", ".join(words)), answer)], answer)


def count(rng, size=1.0, evaluate=False):
    """How many words, or how often one word: the reply counts aloud."""
    while True:
        words = [rng.choice(SORTABLE) for _ in range(8 if evaluate else rng.randrange(1, 4 + int(9 * size)))]
        if rng.random() < 0.5:
            question = f"How many words are in this list? {', '.join(words)}"
            reply = ", ".join(f"{i + 1} {w}" for i, w in enumerate(words)) + f". Answer: {len(words)}"
        else:
            target = rng.choice(words)
            words = [target if rng.random() < 0.3 else w for w in words]
            hits = words.count(target)
            question = f"How often is {target} in this list? {', '.join(words)}"
            reply = (", ".join(f"{i + 1} {target}" for i in range(hits)) or "none") + f". Answer: {hits}"
        if held_out(question) == evaluate:
            return Task("count", [(question, reply)], reply.rpartition(" ")[2], lambda r: r.rpartition("Answer:")[2].strip())


def copy(rng, size=1.0, evaluate=False, longest=320):
    """Evaluation: 200 random letters and digits. Training: also words, and pieces with punctuation."""
    while True:
        length = 200 if evaluate else rng.randrange(4, 8 + int((longest - 8) * size))
        kind = 0.0 if evaluate else rng.random()
        if kind < 0.7:
            text = "".join(rng.choices(ALPHABET, k=length))
        elif kind < 0.85:
            text = "".join(rng.choices(ALPHABET + "-_+/=.:#@!?", k=length))
        else:
            text = " ".join(rng.choices(SORTABLE + NAMES, k=max(2, length // 6)))
        if held_out(text) == evaluate:
            ask = rng.choice(["Copy this exactly:", "Repeat this text exactly:", "Copy the following line:"])
            return Task("copy", [(f"{ask}\n{text}", text)], text)
