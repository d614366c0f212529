"""Check that no held-out prompt is in a file of training prompts: print counts and overlaps, exit 1 if there are any.

Two texts overlap when, as lower-case words without punctuation, one equals or contains the other, or they share
a run of ten words (eight, where either text has fewer than forty words). Only user turns and raw prefixes count.

Usage: python prompts/check_disjoint.py [FILE ...]     (default: the two training files here)
"""

import gzip
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).parent
HELD_OUT = ("chat", "code", "structured")
TRAINING = ("train.jsonl", "self-prompts.jsonl.gz")
RUN, SHORT_RUN, SHORT_TEXT = 10, 8, 40
MIN_CONTAINED = 3  # a shorter text, such as "Why?", is in almost everything


def read(path: Path) -> Iterator[tuple[str, str, list[str]]]:
    """Yield id, domain and the user turns (or the raw prefix)."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    for line in data.decode("utf-8").splitlines():
        item = json.loads(line)
        turns = [m["content"] for m in item.get("messages", []) if m["role"] == "user"] or [item["prompt"]]
        yield item["id"], item["domain"], turns


def normalised(text: str) -> list[str]:
    """Lower-case words without punctuation."""
    return re.findall(r"\w+", text.lower())


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


def _keys(words: list[str]) -> set[tuple[str, ...]]:
    """Every kind of overlap shares at least three words in a row, or both texts are that short and equal."""
    return runs(words, min(MIN_CONTAINED, max(len(words), 1)))


class HeldOut:
    """The held-out prompts, found by any three words in a row."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._turns: list[tuple[str, list[str]]] = []
        self._by_run: defaultdict[tuple[str, ...], set[int]] = defaultdict(set)
        for domain in HELD_OUT:
            for name, _, turns in read(FOLDER / f"{domain}.jsonl"):
                self.counts[domain] += 1
                for turn in turns:
                    self._add(name, normalised(turn))

    def _add(self, name: str, words: list[str]) -> None:
        for run in _keys(words):
            self._by_run[run].add(len(self._turns))
        self._turns.append((name, words))

    def overlaps(self, text: str) -> list[str]:
        """Names of the held-out prompts that ``text`` is too close to."""
        words = normalised(text)
        near = {i for run in _keys(words) for i in self._by_run.get(run, ())}
        return sorted({self._turns[i][0] for i in near if overlap(words, self._turns[i][1])})


def main() -> int:
    """Compare each training turn with the held-out turns."""
    held_out, found = HeldOut(), 0
    print("held out", dict(held_out.counts))
    for path in [Path(a) for a in sys.argv[1:]] or [FOLDER / name for name in TRAINING]:
        train = list(read(path))
        print(path.name, dict(sorted(Counter(domain for _, domain, _ in train).items())))
        for name, _, turns in train:
            for held_out_name in {n for turn in turns for n in held_out.overlaps(turn)}:
                print(f"{held_out_name} overlaps with {name}")
                found += 1
    print("no overlaps" if not found else f"{found} overlaps")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
