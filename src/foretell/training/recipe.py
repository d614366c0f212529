"""Recipe: what a training run reads, trains and writes; one TOML file (see recipe_file)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from foretell.config import HeadsConfig


@dataclass(frozen=True)
class DataConfig:
    """``files``: JSONL of distilled answers or of {"text": ...}. ``texts``: folders or globs of text files, in which
    ``{stdlib}`` stands for Python's standard library; ``max_text_tokens`` caps them.

    Rows are ``max_length`` tokens of packed documents. ``supervise``: "answer" = only the trunk's answers are targets,
    "all" = prompts too; texts always are. ``held_out``: share of documents kept for the
    report. ``draft_vocab_size``: heads guess among so many of the most frequent tokens, 0 = the whole vocabulary.
    """

    files: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    text_suffixes: tuple[str, ...] = (".py", ".md", ".rst", ".txt")
    max_text_tokens: int = 0
    max_documents: int = 0
    max_length: int = 256
    supervise: Literal["answer", "all"] = "all"
    held_out: float = 0.02
    draft_vocab_size: int = 8192


@dataclass(frozen=True)
class ObjectiveConfig:
    """``target``: what a depth should predict: the trunk's argmax, its distribution (KL), or the data's tokens.

    ``weights`` per depth, or ``decay``: weight_k = decay^(k-1), normalised.
    """

    target: Literal["argmax", "distribution", "data"] = "distribution"
    decay: float = 0.8
    weights: tuple[float, ...] = ()


@dataclass(frozen=True)
class TrainConfig:
    """What transformers' Trainer is told. ``precision``: "auto" = bf16 where this CPU or GPU computes in it.

    ``cache_states``: keep the trunk's states on disk; "auto" = when more than one epoch reads them and there is room.
    """

    epochs: float = 3.0
    max_steps: int = 0
    batch_rows: int = 16
    accumulation: int = 1
    learning_rate: float = 1e-3
    warmup_ratio: float = 0.05
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    precision: Literal["auto", "bfloat16", "float32"] = "auto"
    cache_states: bool | Literal["auto"] = "auto"
    save_steps: int = 500
    log_steps: int = 20
    seed: int = 0


@dataclass(frozen=True)
class Recipe:
    """A whole run. ``output`` becomes the adapter; ``run_dir`` holds checkpoints, metrics.jsonl and cached states.

    ``init_from``: an adapter to continue from; its conventions and draft vocabulary are kept.
    """

    trunk: str
    output: str
    run_dir: str
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    init_from: str = ""
    heads: HeadsConfig = field(default_factory=HeadsConfig)
    data: DataConfig = field(default_factory=DataConfig)
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
