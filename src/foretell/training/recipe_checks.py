"""What a recipe's values must be, section by section; each refusal names the line, the value and what is allowed."""

from __future__ import annotations

from math import inf

from foretell.errors import UsageError
from foretell.training.objective_checks import check_objective
from foretell.training.place import Place
from foretell.training.recipe import MIN_VOCAB_SIZE, Recipe


def check(recipe: Recipe, place: Place) -> None:
    """All checks; raises UsageError."""
    _check_trunk(recipe, place)
    _check_data(recipe, place)
    _check_tokenizer(recipe, place)
    check_objective(recipe, place)
    _check_train(recipe, place)


def _check_trunk(recipe: Recipe, place: Place) -> None:
    """A trunk is loaded or made, and what trains is said without a contradiction."""
    train = recipe.train
    for name in ("output", "run_dir"):
        if not getattr(recipe, name):
            raise UsageError(f"{place.of('', name)}: {name} is empty; give a folder")
    if bool(recipe.trunk) == (recipe.model is not None):
        both = (
            "both are given; take out one"
            if recipe.trunk
            else 'give trunk = "FOLDER", or [model] to start from scratch'
        )
        raise UsageError(f"{place.of('', 'trunk')}: trunk or [model]: {both}")
    if recipe.tokenizer is not None and recipe.model is None:
        raise UsageError(f"{place.of('tokenizer')}: [tokenizer] goes with [model]; a loaded trunk brings its own")
    if recipe.model is not None:
        place.need(
            train.trunk == "joint", "train", "trunk", train.trunk, '"joint", since a trunk from scratch must train'
        )
        if recipe.init_from:
            raise UsageError(f"{place.of('', 'init_from')}: init_from goes with a loaded trunk, not with [model]")
    if train.trunk == "frozen" and recipe.heads is None:
        raise UsageError(f'{place.of("heads")}: nothing to train: trunk is "frozen" and there are no heads')


def _check_data(recipe: Recipe, place: Place) -> None:
    data = recipe.data

    def need(ok: bool, name: str, allowed: str) -> None:
        place.need(ok, "data", name, getattr(data, name), allowed)

    need(bool(data.files or data.texts), "files", "at least one data file (.jsonl, .parquet or .txt), or texts")
    need(data.max_length >= 8, "max_length", "8 tokens or more")
    need(0 <= data.held_out < 0.5, "held_out", "0 to 0.5")
    need(bool(data.text_field), "text_field", "the name of a field")
    for name in ("max_documents", "max_text_tokens", "shuffle_buffer"):
        need(getattr(data, name) >= 0, name, "0 or more")
    need(data.draft_vocab_size == "auto" or data.draft_vocab_size >= 0, "draft_vocab_size", '0 or more, or "auto"')
    streams = data.storage == "streaming"
    need(
        streams or not data.shuffle_buffer, "shuffle_buffer", '0, unless storage is "streaming": all rows are shuffled'
    )
    need(
        not streams or recipe.train.max_steps > 0,
        "storage",
        '"memory" or "cached", unless [train] max_steps says when to stop',
    )
    if data.held_out_files and place.has("data", "held_out"):
        raise UsageError(f"{place.of('data', 'held_out')}: [data] held_out or held_out_files: take out one")
    if recipe.heads is not None and recipe.heads.num_depths > data.max_length - 2:
        depths = recipe.heads.num_depths
        place.need(
            False, "heads", "num_depths", depths, f"at most {data.max_length - 2}, since rows are max_length long"
        )


def _check_tokenizer(recipe: Recipe, place: Place) -> None:
    tokenizer = recipe.tokenizer
    if tokenizer is None:
        return
    by_folder = tokenizer.kind == "folder"
    place.need(
        bool(tokenizer.folder) == by_folder,
        "tokenizer",
        "folder",
        tokenizer.folder,
        'a model folder, with kind = "folder" and no other kind',
    )
    place.need(not (by_folder and tokenizer.chat), "tokenizer", "chat", True, "false: the folder says it")
    if tokenizer.kind != "bpe" and place.has("tokenizer", "vocab_size"):
        where = place.of("tokenizer", "vocab_size")
        raise UsageError(f'{where}: [tokenizer] vocab_size goes with kind = "bpe"; take it out')
    place.need(
        tokenizer.vocab_size >= MIN_VOCAB_SIZE,
        "tokenizer",
        "vocab_size",
        tokenizer.vocab_size,
        f"{MIN_VOCAB_SIZE} (all bytes and the special tokens) or more",
    )


def _check_train(recipe: Recipe, place: Place) -> None:
    train = recipe.train

    def need(ok: bool, name: str, allowed: str) -> None:
        place.need(ok, "train", name, getattr(train, name), allowed)

    need(0 < train.learning_rate < inf, "learning_rate", "above 0, and finite")
    for name in ("batch_rows", "accumulation", "save_steps", "log_steps", "keep_checkpoints"):
        need(getattr(train, name) >= 1, name, "1 or more")
    for name in ("weight_decay", "max_grad_norm", "heads_learning_rate"):
        need(0 <= getattr(train, name) < inf, name, "0 or more, and finite")
    need(0 <= train.seed < 2**32, "seed", "0 to 2**32 - 1")
    need(0 <= train.warmup_ratio < 1, "warmup_ratio", "0 to below 1, a share of the steps")
    need(0 < train.epochs < inf, "epochs", "above 0, and finite")
    need(train.max_steps >= 0, "max_steps", "0 (= epochs decide) or more")
    need(
        recipe.dtype != "bfloat16" or train.precision != "float32",
        "precision",
        'bfloat16 or auto, where dtype is "bfloat16"',
    )
    need(train.trunk == "frozen" or train.cache_states is not True, "cache_states", "false where the trunk trains")
    if train.sharding == "fsdp" and (steps := recipe.objective.gradient_share_steps):
        place.need(False, "objective", "gradient_share_steps", steps, '0 with [train] sharding = "fsdp"')
