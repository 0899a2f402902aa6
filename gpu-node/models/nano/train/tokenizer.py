"""Byte-level BPE: training, encoding, and the `tokenizer.json` that carries it.

The merges are learned over pre-tokens (words with their leading space, single digits, runs of
punctuation), so that a number is always one token per digit and arithmetic has a fixed alphabet.
"""

import heapq
import json
import re
from collections import Counter, defaultdict

from architecture import FIRST_SPECIAL, ID, SPECIAL, TOOL_MARKERS

# The same split twice: Python's `re` has no \p{L}. `[^\W\d_]` is a letter there; the two differ only in
# numerals that are not decimal digits (such as Roman numeral signs), which the training text does not hold.
PATTERN = re.compile(r"'(?:s|t|re|ve|m|ll|d)| ?[^\W\d_]+|\d| ?(?:[^\s\w]|_)+|\s+(?!\S)|\s+")
JSON_PATTERN = r"'(?:s|t|re|ve|m|ll|d)| ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def byte_alphabet():
    """GPT-2's printable stand-in for each byte, in the order of the token ids 0..255."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {b: chr(b) for b in printable}
    spare = 256
    for b in range(256):
        if b not in letters:
            letters[b] = chr(spare)
            spare += 1
    return letters


LETTERS = byte_alphabet()
BYTES = {c: b for b, c in LETTERS.items()}


def train(texts, size=FIRST_SPECIAL):
    """Learn merges from an iterable of strings until there are `size` tokens. Returns [(left, right)] as ids."""
    counts = Counter()
    for text in texts:
        counts.update(PATTERN.findall(text))
    words = [(list(word.encode()), n) for word, n in counts.items()]
    pairs, where = Counter(), defaultdict(set)
    for w, (ids, n) in enumerate(words):
        for pair in zip(ids, ids[1:]):
            pairs[pair] += n
            where[pair].add(w)
    heap = [(-n, pair) for pair, n in pairs.items()]
    heapq.heapify(heap)
    merges = []
    while len(merges) + 256 < size:
        n, best = heapq.heappop(heap)
        if pairs[best] != -n:  # stale entry: the pair's count has changed since it was pushed
            if pairs[best] > 0:
                heapq.heappush(heap, (-pairs[best], best))
            continue
        new = 256 + len(merges)
        merges.append(best)
        changed = set()
        for w in where.pop(best):
            ids, n = words[w]
            for pair in zip(ids, ids[1:]):
                pairs[pair] -= n
            merged = merge(ids, best, new)
            for pair in zip(merged, merged[1:]):
                pairs[pair] += n
                where[pair].add(w)
                changed.add(pair)
            words[w] = (merged, n)
        for pair in changed:
            heapq.heappush(heap, (-pairs[pair], pair))
    return merges


def merge(ids, pair, new):
    out, i = [], 0
    while i < len(ids):
        if i + 1 < len(ids) and ids[i] == pair[0] and ids[i + 1] == pair[1]:
            out.append(new)
            i += 2
        else:
            out.append(ids[i])
            i += 1
    return out


class Tokenizer:
    """Encodes and decodes; special tokens are passed as ids and never come out of `encode`."""

    def __init__(self, merges):
        self.rank = {pair: i for i, pair in enumerate(merges)}
        self.bytes = [bytes([b]) for b in range(256)]
        for left, right in merges:
            self.bytes.append(self.bytes[left] + self.bytes[right])
        self.bytes += [name.encode() for name in SPECIAL]
        self.cache = {}

    @classmethod
    def load(cls, path):
        with open(path, encoding="utf-8") as f:
            model = json.load(f)["model"]
        vocab = model["vocab"]
        return cls([(vocab[left], vocab[right]) for left, right in model["merges"]])

    def encode(self, text):
        out, cache = [], self.cache
        for word in PATTERN.findall(text):
            ids = cache.get(word)
            if ids is None:
                ids = self.encode_word(word)
                if len(word) < 16 and len(cache) < 200_000:
                    cache[word] = ids
            out += ids
        return out

    def encode_word(self, word):
        ids, rank = list(word.encode()), self.rank
        while len(ids) > 1:
            best = min(zip(ids, ids[1:]), key=lambda pair: rank.get(pair, 1 << 30))
            if best not in rank:
                break
            ids = merge(ids, best, 256 + rank[best])
        return ids

    def decode(self, ids):
        return b"".join(self.bytes[i] for i in ids).decode("utf-8", "replace")


def tokenizer_json(merges):
    """The Hugging Face file: model BPE, split pattern, byte-level alphabet, special tokens."""
    names = ["".join(LETTERS[b] for b in token) for token in Tokenizer(merges).bytes[:FIRST_SPECIAL]]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": ID[name], "content": name, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": name not in TOOL_MARKERS}
            for name in SPECIAL
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": JSON_PATTERN}, "behavior": "Isolated", "invert": False},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
        ]},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {name: i for i, name in enumerate(names)},
                  "merges": [[names[left], names[right]] for left, right in merges]},
    }
