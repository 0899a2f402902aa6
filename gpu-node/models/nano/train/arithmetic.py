"""Arithmetic with worked steps: digit by digit, as on paper, so that a small model can follow its own carries."""

from task import Task, held_out
from words import NAMES, PLURALS


def add_steps(a, b):
    """Column addition, from the right: each column's sum, the digit written, the carry."""
    steps, carry, x, y = [], 0, a, b
    while x or y:
        column = f"{x % 10} + {y % 10}" + (f" + {carry}" if carry else "")
        total = x % 10 + y % 10 + carry
        x, y, carry = x // 10, y // 10, total // 10
        steps.append(f"{column} = {total}" + (f", write {total % 10}, carry {carry}" if carry and (x or y) else ""))
    return ". ".join(steps or ["0 + 0 = 0"]) + "."


def subtract_steps(a, b):
    """Column subtraction for a >= b: a column that is too small borrows ten."""
    steps, borrow, x, y = [], 0, a, b
    while x or y:
        top, low = x % 10, y % 10
        if borrow:
            steps.append(f"{top} - 1 = {top - 1}")
            top -= 1
        borrow = top < low
        steps.append(f"borrow, {top + 10} - {low} = {top + 10 - low}" if borrow else f"{top} - {low} = {top - low}")
        x, y = x // 10, y // 10
    return ". ".join(steps or ["0 - 0 = 0"]) + "."


def multiply_steps(a, b):
    """A number of one or two digits times one digit: units, carry, tens."""
    units = a % 10 * b
    if a < 10:
        return f"{a} x {b} = {units}."
    carry, tens = units // 10, a // 10 * b
    first = f"{a % 10} x {b} = {units}" + (f", write {units % 10}, carry {carry}" if carry else "")
    return f"{first}. {a // 10} x {b} = {tens}." + (f" {tens} + {carry} = {tens + carry}." if carry else "")


OPERATIONS = {
    "+": (add_steps, lambda a, b: a + b, ["{a} + {b} = ?", "What is {a} + {b}?", "Add {a} and {b}.", "Work out {a} + {b}.",
                                          "What is {a} plus {b}?", "Calculate {a} + {b}.", "Find the sum of {a} and {b}."]),
    "-": (subtract_steps, lambda a, b: a - b, ["{a} - {b} = ?", "What is {a} - {b}?", "Subtract {b} from {a}.", "Work out {a} - {b}.",
                                               "What is {a} minus {b}?", "Calculate {a} - {b}.", "Take {b} away from {a}."]),
    "x": (multiply_steps, lambda a, b: a * b, ["{a} x {b} = ?", "What is {a} x {b}?", "Multiply {a} by {b}.", "Work out {a} x {b}.",
                                               "What is {a} times {b}?", "Calculate {a} * {b}.", "Find the product of {a} and {b}.", "How much is {a} x {b}?", "Tell me {a} times {b}."]),
}


def work(op, a, b):
    steps, result, _ = OPERATIONS[op]
    return f"{steps(a, b)} Answer: {result(a, b)}", str(result(a, b))


def operands(rng, op, size, evaluate):
    """Numbers for one problem. Whole pairs are held out: one in five products, one in ten sums and differences."""
    while True:
        if op == "x":
            a, b = rng.randrange(10 if evaluate else 1, 100), rng.randrange(2 if evaluate else 0, 10)
            if not evaluate and a >= 10 and rng.random() < 0.1:
                a %= 10
        elif evaluate:
            a, b = rng.randrange(100, 1000), rng.randrange(100, 1000)
        else:
            digits = rng.choice((1, 2, 2, 3) if size < 0.4 else (1, 2, 3, 3, 3, 3) if size < 0.97 else (2, 3, 3, 4))
            a, b = rng.randrange(10**digits), rng.randrange(10 ** (digits if rng.random() < 0.8 else 1))
        if op == "-" and a < b:
            a, b = b, a
        if a < 10 or held_out_pair(op, a, b) == evaluate:
            return a, b


def held_out_pair(op, a, b):
    if op == "+":
        a, b = max(a, b), min(a, b)
    return held_out(f"{op}:{a}:{b}", 5 if op == "x" else 10)


def problem(op):
    def make(rng, size=1.0, evaluate=False):
        a, b = operands(rng, op, size, evaluate)
        question = rng.choice(OPERATIONS[op][2]).format(a=a, b=b)
        reply, answer = work(op, a, b)
        return Task(op, [(question, reply)], answer, final_number)

    return make


def final_number(reply):
    return reply.rpartition("Answer:")[2].strip().rstrip(".")


STORIES = {
    "+": ["{n} has {a} {t}. {m} gives {n} {b} more. How many {t} does {n} have now?",
          "{n} found {a} {t} and {m} found {b} {t}. How many {t} did they find together?",
          "There are {a} {t} in one box and {b} {t} in another. How many {t} are there in all?"],
    "-": ["{n} has {a} {t}. {n} gives {b} of them to {m}. How many {t} are left?",
          "There were {a} {t} on the table. {m} took {b}. How many {t} remain?",
          "{n} has {a} {t} and {m} has {b} {t}. How many more {t} does {n} have than {m}?"],
    "x": ["{n} has {a} bags with {b} {t} in each. How many {t} does {n} have?",
          "Each of {a} boxes holds {b} {t}. How many {t} are there in all?",
          "{n} buys {b} {t} every day for {a} days. How many {t} does {n} buy?"],
}


def word_problem(rng, size=1.0, evaluate=False):
    """One step, or two: a product or sum first, then something taken or added."""
    op = rng.choice("+-x")
    while True:
        a, b = operands(rng, op, min(size, 0.9), False)
        n, m = rng.sample(NAMES, 2)
        t = rng.choice(PLURALS)
        question = rng.choice(STORIES[op]).format(a=a, b=b, n=n, m=m, t=t)
        reply, answer = work(op, a, b)
        reply = f"{a} {op} {b}: {reply}"
        if size > 0.5 and rng.random() < 0.3:
            c = rng.randrange(1, 100)
            head = question[: question.rindex(". ") + 1]
            question = f"{head} Then {c} more {t} are found. How many {t} is that in all?" if op != "-" else \
                f"There were {a} {t}. {m} took {b}. Then {n} brought {c} more. How many {t} are there now?"
            first = OPERATIONS[op][1](a, b)
            if held_out_pair("+", first, c):
                continue
            second, answer = work("+", first, c)
            reply = f"{a} {op} {b}: {OPERATIONS[op][0](a, b)} That makes {first}. {first} + {c}: {second}"
        if held_out(question, 10) == evaluate:
            return Task("word problem", [(question, reply)], answer, final_number)
