"""Tasks made from the books, and a few lines of small talk."""

import re

from task import Task

ASKS = ["Continue this story:", "Go on with this story:", "What happens next?", "Continue:"]
TALK = [
    (["Hello", "Hi", "Hello!", "Hi there!", "Good morning"], "Hello! How can I help you?"),
    (["Who are you?", "What are you?", "What is your name?", "Tell me about yourself."],
     "I am nano, a very small language model of twenty million parameters. I was trained for demonstrations."),
    (["What can you do?", "How can you help me?", "What are you good at?"],
     "I can add, subtract and multiply small numbers, find a fact in a list, sort and count words, copy text, call a tool and go on with a story."),
    (["Thank you", "Thanks!", "Thanks", "Thank you very much."], "You are welcome."),
    (["Goodbye", "Bye", "Bye!", "See you"], "Goodbye!"),
    (["How are you?", "How do you do?"], "I am well, thank you."),
    (["Are you a person?", "Are you human?"], "No, I am a small language model."),
    (["Who is the president?", "What is the capital of Peru?", "What is the news today?", "Explain physics."],
     "I am a very small model and do not know that."),
]
SENTENCE = re.compile(r'[.!?]["\']?\s+')


def small_talk(rng, size=1.0):
    turns = []
    for questions, answer in rng.sample(TALK, rng.randrange(1, 4)):
        turns.append((rng.choice(questions), answer))
    return Task("talk", turns, turns[0][1])


def continuation(texts):
    """A generator over books: some sentences, and the sentences that follow them."""

    def make(rng, size=1.0):
        text = rng.choice(texts)
        start = rng.randrange(max(1, len(text) - 1600))
        piece = text[start : start + 1600]
        cuts = [m.end() for m in SENTENCE.finditer(piece)]
        if len(cuts) < 4:
            return small_talk(rng)
        middle = rng.randrange(1, len(cuts) - 1)
        last = min(len(cuts) - 1, middle + rng.randrange(2, 8))
        given, wanted = piece[cuts[0] : cuts[middle]].strip(), piece[cuts[middle] : cuts[last]].strip()
        if not given or not wanted:
            return small_talk(rng)
        return Task("story", [(f"{rng.choice(ASKS)}\n{given}", wanted)], wanted)

    return make
