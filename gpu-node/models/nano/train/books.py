"""The books: read from a folder, quotes and dashes brought to ASCII, some passages held out."""

import glob
import os
import re

ASCII = str.maketrans({"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u2014": "--", "\u2013": "-",
                       "\u2026": "...", "\ufeff": None, "\u00a0": " ", "\r": None})


def clean(text):
    """One line per paragraph's wrap is a print artefact: lines are joined, paragraphs stay apart by an empty line."""
    text = text.translate(ASCII)
    paragraphs = [re.sub(r"\s*\n\s*", " ", p.strip()) for p in re.split(r"\n\s*\n+", text)]
    return "\n\n".join(re.sub(r"  +", " ", p).replace("_", "") for p in paragraphs if p)


def load(folder):
    """{title: text} of every .txt in the folder, in the order of their names."""
    books = {}
    for path in sorted(glob.glob(os.path.join(folder, "*.txt"))):
        with open(path, encoding="utf-8") as f:
            books[os.path.basename(path)[:-4]] = clean(f.read())
    if not books:
        raise SystemExit(f"no .txt files in {folder}")
    return books


def split(text, held_out=0.02):
    """(training text, held-out text): the last 2 % of a book is never trained on."""
    cut = text.rfind("\n\n", 0, int(len(text) * (1 - held_out)))
    return text[:cut], text[cut + 2 :]
