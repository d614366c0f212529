"""Check that no held-out prompt is in train.jsonl: print the counts, list overlaps and exit 1 if there are any.

Two texts overlap when, as lower-case words without punctuation, one equals or contains the other, or they share
a run of ten words (eight, where either text has fewer than forty words). Only user turns and raw prefixes count.

Usage: python prompts/check_disjoint.py
"""

import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).parent
HELD_OUT = ("chat", "code", "structured")
RUN, SHORT_RUN, SHORT_TEXT = 10, 8, 40
MIN_CONTAINED = 3  # a shorter training text, such as "Why?", is in almost everything


def read(path: Path) -> Iterator[tuple[str, str, list[list[str]]]]:
    """Yield id, domain and the normalised words of each user turn (or of the raw prefix)."""
    for line in path.read_text(encoding="utf-8").splitlines():
        item = json.loads(line)
        turns = [m["content"] for m in item.get("messages", []) if m["role"] == "user"] or [item["prompt"]]
        yield item["id"], item["domain"], [re.findall(r"\w+", turn.lower()) for turn in turns]


def runs(words: list[str], length: int) -> set[tuple[str, ...]]:
    """Return all runs of the given length."""
    return {tuple(words[i : i + length]) for i in range(len(words) - length + 1)}


def overlap(a: list[str], b: list[str]) -> bool:
    """Tell whether two texts are too close, as the top of the file defines it."""
    short, long = sorted((a, b), key=len)
    if len(short) >= MIN_CONTAINED and f" {' '.join(short)} " in f" {' '.join(long)} ":
        return True
    length = SHORT_RUN if len(short) < SHORT_TEXT else RUN
    return a == b or not runs(a, length).isdisjoint(runs(b, length))


def main() -> int:
    """Compare each held-out turn with the training turns."""
    train = list(read(FOLDER / "train.jsonl"))
    print("train      ", dict(sorted(Counter(domain for _, domain, _ in train).items())))
    by_run: defaultdict[tuple[str, ...], list[tuple[str, list[str]]]] = defaultdict(list)
    for name, _, turns in train:
        for words in turns:
            for run in runs(words, min(MIN_CONTAINED, max(len(words), 1))):
                by_run[run].append((name, words))
    found = 0
    for domain in HELD_OUT:
        prompts = list(read(FOLDER / f"{domain}.jsonl"))
        print(f"{domain:11}", len(prompts))
        for name, _, turns in prompts:
            for words in turns:
                # Every kind of overlap shares at least three words in a row, or both texts are that short and equal.
                near = {id(w): (n, w) for run in runs(words, min(MIN_CONTAINED, len(words))) for n, w in by_run[run]}
                for train_name in sorted(n for n, w in near.values() if overlap(words, w)):
                    print(f"{name} overlaps with {train_name}")
                    found += 1
    print("no overlaps" if not found else f"{found} overlaps")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
