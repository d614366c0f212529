"""A tokenizer for a trunk from scratch: bytes, byte-level BPE trained on the run's own texts, or one that exists."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from foretell.checkpoints.tokenizer import read_tokenizer
from foretell.errors import CheckpointError, DataError, UsageError
from foretell.training.recipe import MIN_VOCAB_SIZE, TokenizerConfig

END, PAD = "<eos>", "<pad>"
TURN, TURN_END = "<|im_start|>", "<|im_end|>"

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    f"{{{{ '{TURN}' + message['role'] + '\\n' + message['content'] + '{TURN_END}\\n' }}}}"
    "{% endfor %}"
    f"{{% if add_generation_prompt %}}{{{{ '{TURN}assistant\\n' }}}}{{% endif %}}"
)
"""ChatML."""


def make_tokenizer(config: TokenizerConfig, texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """The tokenizer a recipe asks for; ``texts`` are read for "bpe" alone.

    The same texts give the same tokenizer. Every text can be encoded and comes back unchanged. With ``config.chat``
    the token that ends a turn is EOS, so it ends texts too. Raises UsageError, DataError or CheckpointError.
    """
    if config.kind == "folder":
        return _from_folder(config.folder)
    if config.kind == "bytes":
        return byte_tokenizer(config.chat)
    if config.vocab_size < MIN_VOCAB_SIZE:
        raise UsageError(f"[tokenizer] vocab_size is {config.vocab_size}; allowed: {MIN_VOCAB_SIZE} or more")
    tokenizer = _byte_level({})
    trainer = trainers.BpeTrainer(
        vocab_size=config.vocab_size,
        special_tokens=_special_tokens(config.chat),
        initial_alphabet=_ALPHABET,
        show_progress=False,
    )
    tokenizer.train_from_iterator(_not_empty(texts), trainer)
    return _wrapped(tokenizer, config.chat)


def byte_tokenizer(chat: bool = False) -> PreTrainedTokenizerFast:
    """256 byte tokens, then EOS (256), PAD (257), and with ``chat`` what begins a turn (258). An emoji is 4 tokens."""
    tokenizer = _byte_level({char: i for i, char in enumerate(_ALPHABET)})
    tokenizer.add_special_tokens(_special_tokens(chat))
    return _wrapped(tokenizer, chat)


_ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())


def _special_tokens(chat: bool) -> list[str]:
    return [TURN_END, PAD, TURN] if chat else [END, PAD]


def _byte_level(vocab: dict[str, int]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _wrapped(tokenizer: Tokenizer, chat: bool) -> PreTrainedTokenizerFast:
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=TURN_END if chat else END,
        pad_token=PAD,
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = CHAT_TEMPLATE if chat else None
    return fast


def _not_empty(texts: Iterable[str]) -> Iterable[str]:
    empty = True
    for text in texts:
        empty = empty and not text
        yield text
    if empty:
        raise DataError("no text to train a tokenizer on; check files and texts of the recipe", "[data]")


def _from_folder(folder: str) -> PreTrainedTokenizerFast:
    if not Path(folder).is_dir():
        raise UsageError(f"[tokenizer] folder is {folder!r}; allowed: a folder with a tokenizer in it")
    tokenizer = read_tokenizer(folder)
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise CheckpointError(f"{folder}: {type(tokenizer).__name__} has no tokenizer.json; save a fast tokenizer")
    return tokenizer
