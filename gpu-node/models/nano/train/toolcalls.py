"""Tool calls: one to four declared tools, a request, the call in JSON, often its result and the closing sentence."""

import json

from task import Task, held_out
from words import ADJECTIVES, CITIES, COLOURS, NAMES, NOUNS, PARAMETERS, THINGS, VERBS


def integer(rng):
    return rng.randrange(1, 100)


def text(rng):
    return rng.choice([rng.choice(THINGS), f"{rng.choice(ADJECTIVES)} {rng.choice(THINGS)}", rng.choice(NAMES), rng.choice(CITIES)])


def boolean(rng):
    return rng.random() < 0.5


# name, description, {parameter: (type, values)}, requests
KNOWN = [
    ("get_weather", "Get the weather in a city", {"city": ("string", lambda r: r.choice(CITIES))},
     ["What is the weather in {city}?", "How is the weather in {city} today?", "Tell me the weather in {city}."]),
    ("set_timer", "Set a timer", {"minutes": ("integer", integer)},
     ["Set a timer for {minutes} minutes.", "Wake me in {minutes} minutes.", "Start a timer of {minutes} minutes."]),
    ("send_message", "Send a message to a person", {"to": ("string", lambda r: r.choice(NAMES)), "text": ("string", text)},
     ["Send {to} the message: {text}", "Write to {to}: {text}", "Message {to}: {text}"]),
    ("book_table", "Book a table at a restaurant", {"name": ("string", lambda r: r.choice(NAMES)), "people": ("integer", integer)},
     ["Book a table for {people} people under the name {name}.", "Reserve a table for {people} for {name}."]),
    ("find_route", "Find a route between two cities", {"start": ("string", lambda r: r.choice(CITIES)), "end": ("string", lambda r: r.choice(CITIES))},
     ["How do I get from {start} to {end}?", "Find a route from {start} to {end}."]),
    ("buy_item", "Buy an item", {"item": ("string", lambda r: f"{r.choice(COLOURS)} {r.choice(THINGS)}"), "count": ("integer", integer)},
     ["Buy {count} of the item {item}.", "Order {count} times the {item}."]),
]
TYPES = {"string": text, "integer": integer, "boolean": boolean}


def invented(rng):
    """A tool that the model has not seen: its name, its parameters and a request that states their values."""
    name = f"{rng.choice(VERBS)}_{rng.choice(NOUNS)}"
    parameters = {p: (t := rng.choice(list(TYPES)), TYPES[t]) for p in rng.sample(PARAMETERS, rng.randrange(1, 4))}
    wish = rng.choice(["Please {n} with {p}.", "{n}: {p}", "Use {n} with {p}.", "Call {n} with {p}."])
    listed = ", ".join(f"{p} {{{p}}}" for p in parameters)
    request = wish.format(n=name if rng.random() < 0.6 else name.replace("_", " "), p=listed)
    return name, name.replace("_", " ").capitalize(), parameters, [request]


def declare(tool):
    name, description, parameters, _ = tool
    return {"type": "function", "function": {"name": name, "description": description, "parameters": {
        "type": "object", "properties": {p: {"type": t} for p, (t, _) in parameters.items()}, "required": list(parameters)}}}


def spoken(value):
    return str(value).lower() if isinstance(value, bool) else str(value)


def tool_call(rng, size=1.0, evaluate=False):
    while True:
        count = rng.randrange(1, 5) if evaluate else rng.randrange(1, 2 + int(4 * size))
        tools = [rng.choice(KNOWN) if rng.random() < 0.45 else invented(rng) for _ in range(count)]
        if len({t[0] for t in tools}) < count:
            continue
        tool = rng.choice(tools)
        values = {p: make(rng) for p, (_, make) in tool[2].items()}
        request = rng.choice(tool[3]).format(**{p: spoken(v) for p, v in values.items()})
        declared = [declare(t) for t in tools]
        if held_out(request + json.dumps(declared)) != evaluate:
            continue
        arguments = json.dumps(values, ensure_ascii=False)
        call = {"id": f"functions.{tool[0]}:0", "arguments": arguments}
        after = []
        if not evaluate and rng.random() < 0.3:
            result = rng.choice([text, integer])(rng)
            after = [{"role": "tool", "tool_call_id": call["id"], "content": str(result)},
                     {"role": "assistant", "content": f"The result is {result}."}]
        return Task("tool call", [(request, "")], f"{tool[0]} {json.dumps(values, sort_keys=True)}", read_call, declared, call=call, after=after)


def read_call(reply):
    """`reply` holds the markers as text. The section must have the one call, with arguments that are JSON."""
    begin, middle, end = "<|tool_calls_section_begin|><|tool_call_begin|>functions.", ":0<|tool_call_argument_begin|>", "<|tool_call_end|><|tool_calls_section_end|>"
    if not reply.startswith(begin) or not reply.endswith(end):
        return ""
    name, _, arguments = reply[len(begin) : -len(end)].partition(middle)
    try:
        return f"{name} {json.dumps(json.loads(arguments), sort_keys=True)}"
    except ValueError:
        return ""
