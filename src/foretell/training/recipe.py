"""Recipe: what a training run reads, trains and writes; one TOML file (see recipe_file)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from foretell.config import HeadsConfig


@dataclass(frozen=True)
class DataConfig:
    """``files``: JSONL (.jsonl, .json, also .gz), .parquet or .txt; DocumentReader says what a record may hold, its
    text stands in ``text_field``. ``texts``: folders or globs of text files (``text_suffixes``), in which ``{stdlib}``
    stands for Python's standard library. ``max_documents`` caps the former, ``max_text_tokens`` the latter; 0 = no cap.

    Rows are ``max_length`` tokens; with ``packing`` several documents share one, without it each has its own, which
    trunks with recurrent state need. ``storage``: rows in "memory"; "cached" on disk, used again while files and
    settings stay; or "streaming", made while training reads them, for what fits neither (needs [train] max_steps).
    ``shuffle_buffer``: a streamed row is drawn from so many, 0 = file order.

    ``supervise``: "answer" = targets are answers, assistant turns and completions alone, "all" = what is before them
    too; of a text every token is one. ``append_eos``: a text ends with the tokenizer's EOS; "auto" = for a trunk from
    scratch. ``held_out``: share of documents kept for the report, every n-th; or all of ``held_out_files``, instead.
    ``draft_vocab_size``: heads guess among so many of the most frequent tokens, 0 = the whole vocabulary, "auto" = 8192
    beside a frozen trunk, unless rows are streamed. A target outside them is none, but counts in a logged mean.
    """

    files: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    text_field: str = "text"
    text_suffixes: tuple[str, ...] = (".py", ".md", ".rst", ".txt")
    max_text_tokens: int = 0
    max_documents: int = 0
    max_length: int = 256
    packing: bool = True
    storage: Literal["memory", "cached", "streaming"] = "memory"
    shuffle_buffer: int = 0
    supervise: Literal["answer", "all"] = "all"
    append_eos: bool | Literal["auto"] = "auto"
    held_out: float = 0.02
    held_out_files: tuple[str, ...] = ()
    draft_vocab_size: int | Literal["auto"] = "auto"


Target = Literal["argmax", "distribution", "data"]
LossName = Literal["ce", "kl", "soft_ce", "reverse_kl", "tv"]


@dataclass(frozen=True)
class ObjectiveConfig:
    """What the heads learn: L = L_main + lambda * sum_k weight_k L_k, without L_main where the trunk is frozen.

    ``target``: the trunk's argmax, the trunk's distribution (detached), or the data's tokens; ``loss`` against it (see
    losses); "ce_then_tv" goes over to "tv" after ``tv_from``, a share of the run. "auto": see the methods.

    weight_k: ``weights``, taken as they stand, or decay^(k-1), which ``reduction`` "mean" normalises to sum 1 (decay 1
    is the 1/D of DeepSeek-V3, arXiv 2412.19437) and "sum" does not. ``mtp_lambda``: "auto" = 1 for a frozen trunk, 0.3
    for a trained one; ``lambda_schedule``, ``lambda_end``, ``lambda_share`` and ``curriculum``: see schedule.

    ``detach``: what the heads' loss does not train though the trunk is trained: the "trunk" below its last state, the
    token "embedding" as the heads read it, the shared "output" head. Gradients between depths are never cut.
    ``gradient_share_steps``: every so many steps, report each depth's share in the trunk's gradient; 0 = never.
    """

    target: Literal["auto", "argmax", "distribution", "data"] = "auto"
    loss: Literal["auto", "ce", "kl", "soft_ce", "reverse_kl", "tv", "ce_then_tv"] = "auto"
    tv_from: float = 0.75
    decay: float = 0.8
    weights: tuple[float, ...] = ()
    reduction: Literal["mean", "sum"] = "mean"
    mtp_lambda: float | Literal["auto"] = "auto"
    lambda_schedule: Literal["constant", "warmup", "step", "linear", "cosine"] = "constant"
    lambda_end: float = 0.1
    lambda_share: float | Literal["auto"] = "auto"
    curriculum: Literal["none", "forward", "reverse"] = "none"
    curriculum_share: float = 1.0
    detach: tuple[Literal["trunk", "embedding", "output"], ...] = ()
    gradient_share_steps: int = 0

    def target_for(self, train_trunk: bool) -> Target:
        """``target``; "auto": what ``loss`` needs, and where it leaves a choice what the trunk says if it is frozen
        (its distribution; its argmax where ``loss`` needs tokens), or the data if it is trained.
        """
        if self.target != "auto":
            return self.target
        if self.loss in ("kl", "soft_ce", "reverse_kl", "tv"):
            return "distribution"
        if train_trunk:
            return "data"
        return "distribution" if self.loss == "auto" else "argmax"

    def loss_for(self, train_trunk: bool) -> LossName | Literal["ce_then_tv"]:
        """``loss``; "auto": "kl" to a distribution, "ce" of tokens."""
        if self.loss != "auto":
            return self.loss
        return "kl" if self.target_for(train_trunk) == "distribution" else "ce"

    def lambda_for(self, train_trunk: bool) -> float:
        """``mtp_lambda``; "auto": 0.3 beside a trained trunk (DeepSeek-V3), 1 where there is no other loss."""
        if self.mtp_lambda != "auto":
            return self.mtp_lambda
        return 0.3 if train_trunk else 1.0


MIN_VOCAB_SIZE = 260
"""The least a tokenizer holds: 256 bytes and the special tokens."""


@dataclass(frozen=True)
class TokenizerConfig:
    """Tokenizer of a trunk from scratch (training/tokenizer). ``kind``: "bpe" with ``vocab_size`` tokens, trained on
    the run's own data; "bytes"; or "folder": the one of a model folder. ``chat``: with a chat template, for SFT.
    """

    kind: Literal["bpe", "bytes", "folder"] = "bpe"
    vocab_size: int = 4096
    folder: str = ""
    chat: bool = False


@dataclass(frozen=True)
class ModelConfig:
    """A trunk from scratch. ``preset``: a size by name (training/scratch lists them), or ``config``: what transformers'
    config class of ``model_type`` takes; keys given beside a preset change it.
    """

    preset: str = ""
    config: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TrainConfig:
    """What is trained and how. ``trunk``: "frozen" = the heads alone, "joint" = trunk and heads together.

    ``batch_rows`` a micro-batch, over all processes; ``accumulation`` of them a step. ``heads_learning_rate``: the
    heads' own, 0 = ``learning_rate``. ``clip``: gradient norms of trunk and heads are cut to ``max_grad_norm`` each for
    itself ("separate"), or as one. ``precision``: "auto" = bf16 where this CPU or GPU computes in it; weights that
    train are kept in float32. ``checkpointing``: recompute activations in the backward pass. ``compile``: compile each
    layer. ``sharding``: "fsdp" splits weights, gradients and optimizer state among processes. ``cache_states``: keep a
    frozen trunk's states on disk; "auto" = when more than one epoch reads them and there is room.
    """

    trunk: Literal["frozen", "joint"] = "frozen"
    epochs: float = 3.0
    max_steps: int = 0
    batch_rows: int = 16
    accumulation: int = 1
    learning_rate: float = 1e-3
    heads_learning_rate: float = 0.0
    lr_schedule: Literal["cosine", "linear", "constant"] = "cosine"
    warmup_ratio: float = 0.05
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    clip: Literal["separate", "together"] = "separate"
    precision: Literal["auto", "bfloat16", "float32"] = "auto"
    checkpointing: bool = False
    compile: bool = False
    sharding: Literal["none", "fsdp"] = "none"
    cache_states: bool | Literal["auto"] = "auto"
    save_steps: int = 500
    keep_checkpoints: int = 2
    log_steps: int = 20
    seed: int = 0


NATIVE = "native"
"""``init_from``: the heads that a checkpoint of the trunk's family ships with."""


@dataclass(frozen=True)
class Recipe:
    """A whole run. ``trunk`` is loaded, or ``model`` and ``tokenizer`` say how to make one from scratch.

    ``output`` becomes an adapter, or with a trained trunk a model folder with its heads in it; ``run_dir`` holds
    checkpoints, metrics.jsonl and what is cached. ``heads`` None (``kind = "none"``): plain next-token training.
    ``init_from``: heads to continue from, an adapter, a model folder of ours, or "native" for the MTP layers that the
    trunk ships with; their conventions and draft vocabulary are kept. ``dtype``: of a frozen trunk, and of a trained
    one's output ("auto" = float32).
    """

    output: str
    run_dir: str
    trunk: str = ""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    init_from: str = ""
    model: ModelConfig | None = None
    tokenizer: TokenizerConfig | None = None
    heads: HeadsConfig | None = field(default_factory=HeadsConfig)
    data: DataConfig = field(default_factory=DataConfig)
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    train: TrainConfig = field(default_factory=TrainConfig)


SECTIONS: dict[str, type] = {
    "model": ModelConfig,
    "tokenizer": TokenizerConfig,
    "heads": HeadsConfig,
    "data": DataConfig,
    "objective": ObjectiveConfig,
    "train": TrainConfig,
}
"""The tables of a recipe, each a field of that name in ``Recipe``."""
