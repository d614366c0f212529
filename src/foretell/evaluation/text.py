"""Bits per byte of local texts: the trunk's, and the heads' at every depth where the text itself is fed to them.

A text of n bytes, whose tokens have log-probabilities l_i (nats), takes -sum l_i / (n ln 2) bits a byte. The bytes are
the file's own, so trunks with different tokenizers can be compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from foretell.errors import UsageError
from foretell.evaluation.nll import batches, label_logprobs, padded
from foretell.evaluation.windows import Window, check_window, windows
from foretell.models.heads import Heads
from foretell.models.mtp_model import MTPModel
from foretell.models.trunk import Trunk
from foretell.training.targets import ahead_of, valid_mask


@dataclass
class DepthNll:
    """One depth's score; depth 0 is the trunk. ``nll`` in nats, over ``num_covered`` of ``num_targets`` tokens.

    The rest are not in the heads' draft vocabulary: heads give them no probability at all. Depth k has no guess of a
    text's first k tokens.
    """

    num_targets: int = 0
    num_covered: int = 0
    nll: float = 0.0

    def add(self, other: DepthNll) -> None:
        """Sum another text's score into this one."""
        self.num_targets += other.num_targets
        self.num_covered += other.num_covered
        self.nll += other.nll

    @property
    def bits_per_token(self) -> float | None:
        """Mean over the covered tokens."""
        return self.nll / math.log(2) / self.num_covered if self.num_covered else None

    @property
    def coverage(self) -> float | None:
        """Share of the targets that the draft vocabulary holds."""
        return self.num_covered / self.num_targets if self.num_targets else None


@dataclass
class TextScore:
    """Scores of one text, or of several together; ``depths[0]`` is the trunk's.

    ``keeps_text``: decoding the tokens gives the text back; a tokenizer that drops or folds characters has less to
    predict than the bytes hold.
    """

    file: str
    num_bytes: int = 0
    num_tokens: int = 0
    keeps_text: bool = True
    depths: list[DepthNll] = field(default_factory=list)

    def bits_per_byte(self, depth: int = 0) -> float | None:
        """Bits a target times tokens a byte; None where tokens are not covered (their bits are infinite)."""
        score = self.depths[depth]
        if not score.num_targets or score.num_covered < score.num_targets or not self.num_bytes:
            return None
        return score.nll / math.log(2) / score.num_targets * self.num_tokens / self.num_bytes

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "file": self.file,
            "num_bytes": self.num_bytes,
            "num_tokens": self.num_tokens,
            "keeps_text": self.keeps_text,
            "depths": [
                {
                    "depth": k,
                    "num_targets": score.num_targets,
                    "nll": score.nll,
                    "bits_per_token": score.bits_per_token,
                    "coverage": score.coverage,
                    "bits_per_byte": self.bits_per_byte(k),
                }
                for k, score in enumerate(self.depths)
            ],
        }


def score_texts(
    model: MTPModel,
    texts: Sequence[tuple[str, str]],
    window: int,
    stride: int,
    max_rows: int = 8,
    on_progress: Callable[[int, int], None] | None = None,
) -> list[TextScore]:
    """One score for each (name, text), each text on its own. See ``windows`` for ``window`` and ``stride``, in tokens.

    BOS, or EOS where there is none, stands before a text, so that its first token is predicted too.
    ``on_progress(num_done, num_total)`` counts windows. Raises UsageError for a window that does not fit.
    """
    trunk, heads = model.trunk, model.heads
    num_depths = 0 if heads is None else heads.config.num_depths
    check_window(window, stride, trunk.max_positions, num_depths)
    prefix = prefix_token(trunk)
    scores, parts = [], []
    for name, text in texts:
        token_ids = trunk.tokenizer(text, add_special_tokens=False)["input_ids"]
        kept = trunk.tokenizer.decode(token_ids, clean_up_tokenization_spaces=False) == text
        depths = [DepthNll() for _ in range(num_depths + 1)]
        scores.append(TextScore(name, len(text.encode()), len(token_ids), kept, depths))
        whole = [prefix, *token_ids]
        parts += [(scores[-1], whole[w.start : w.stop], w) for w in windows(len(whole), window, stride)]
    num_done = 0
    for indices in batches([len(row) for _, row, _ in parts], max_rows):
        _score_batch(trunk, heads, [parts[i] for i in indices])
        num_done += len(indices)
        if on_progress:
            on_progress(num_done, len(parts))
    return scores


def total(scores: Sequence[TextScore]) -> TextScore:
    """All texts together: sums of bytes, tokens and nats, so a long text counts for more."""
    found = TextScore("all", depths=[DepthNll() for _ in scores[0].depths])
    for score in scores:
        found.num_bytes += score.num_bytes
        found.num_tokens += score.num_tokens
        found.keeps_text &= score.keeps_text
        for mine, theirs in zip(found.depths, score.depths, strict=True):
            mine.add(theirs)
    return found


def prefix_token(trunk: Trunk) -> int:
    """BOS, or the first EOS where there is none. Raises UsageError where there is no tokenizer, or neither."""
    if trunk.tokenizer is None:
        raise UsageError(f"{trunk.name} has no tokenizer, so text cannot be read; use a folder with its tokenizer")
    for token_id in (trunk.tokenizer.bos_token_id, trunk.tokenizer.eos_token_id, *sorted(trunk.eos_token_ids)):
        if token_id is not None:
            return int(token_id)
    raise UsageError(
        f"{trunk.name}: its tokenizer has neither BOS nor EOS, so nothing predicts a text's first token; set one"
    )


@torch.inference_mode()
def _score_batch(trunk: Trunk, heads: Heads | None, parts: Sequence[tuple[TextScore, list[int], Window]]) -> None:
    token_ids_BT, doc_ids_BT = padded([row for _, row, _ in parts], trunk.device)
    scored_BT = torch.zeros_like(doc_ids_BT, dtype=torch.bool)
    for b, (_, row, window) in enumerate(parts):
        scored_BT[b, window.scored_from - window.start : len(row)] = True
    states = trunk.text_states(token_ids_BT, doc_ids_BT)
    by_depth = [states.post_BTD]
    if heads is not None:
        by_depth += heads.training_states(states, trunk.embed(token_ids_BT), doc_ids_BT)
    for k, states_BTD in enumerate(by_depth):
        valid_BT = valid_mask(doc_ids_BT, scored_BT, k)
        labels_N = ahead_of(token_ids_BT, valid_BT, k + 1)
        project: Callable[[torch.Tensor], torch.Tensor] = trunk.project
        if heads is not None and k:
            project, labels_N = partial(heads.project, depth=k), heads.to_draft_ids(labels_N)
        logprobs_N, _ = label_logprobs(project, states_BTD[valid_BT], labels_N)
        rows_N = valid_BT.nonzero(as_tuple=True)[0].cpu()
        for b, (score, _, _) in enumerate(parts):
            mine_N = rows_N == b
            covered = int((labels_N.cpu()[mine_N] >= 0).sum())
            score.depths[k].add(DepthNll(int(mine_N.sum()), covered, -float(logprobs_N.cpu()[mine_N].double().sum())))
