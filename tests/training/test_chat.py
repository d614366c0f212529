"""Chats as training data: the ids that decoding gives, and flags on what the assistant wrote, its EOS included."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tokenizers.processors import TemplateProcessing

from foretell.decoding.prompts import encode_prompt
from foretell.errors import DataError, UsageError
from foretell.training.chat import Chat, chat_targets
from foretell.training.data import read_documents
from foretell.training.documents import DocumentReader
from foretell.training.recipe import DataConfig
from foretell.training.sources import Record
from foretell.training.tokenizer import CHAT_TEMPLATE, byte_tokenizer

LLAMA = (
    "{{ '<s>' }}{% for m in messages %}"
    "{{ '<h>' + m['role'] + '</h>\n\n' + m['content'] | trim + '<eot>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<h>assistant</h>\n\n' }}{% endif %}"
)
MARKED = (
    "{% for m in messages %}{% if m['role'] == 'assistant' %}{{ 'A:' }}"
    "{% generation %}{{ m['content'] }}{% endgeneration %}{{ '<|im_end|>' }}"
    "{% else %}{{ m['role'] + ':' + m['content'] + '\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'A:' }}{% endif %}"
)
CHAT = [
    {"role": "system", "content": "s"},
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": "yo!"},
    {"role": "user", "content": "é?"},
    {"role": "assistant", "content": ""},
]


def tokenizer_for(template: str, *special: str, bos: bool = False) -> Any:
    """The chat byte tokenizer with more special tokens, and where ``bos`` with `<s>` put before every text."""
    tokenizer = byte_tokenizer(chat=True)
    tokenizer.chat_template = template
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", *special]})
    if bos:
        tokenizer.add_special_tokens({"bos_token": "<s>"})
        tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", tokenizer.bos_token_id)]
        )
    return tokenizer


def marked_text(tokenizer: Any, messages: list[dict[str, Any]], **kw: Any) -> str:
    """The chat's text with [ and ] around each run of flagged tokens."""
    ids, flags = chat_targets(tokenizer, Chat(messages), **kw)
    assert len(ids) == len(flags)
    text, run, before = "", [], False
    for token, flag in [*zip(ids, flags, strict=True), (None, False)]:
        if flag != before or token is None:
            text += tokenizer.decode(run) + ("" if flag == before else "[" if flag else "]")
            run, before = [], flag
        run.append(token)
    return text


def test_chatml() -> None:
    """The newline after the end of a turn is the template's: no one generates it."""
    assert marked_text(tokenizer_for(CHAT_TEMPLATE), CHAT) == (
        "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n"
        "<|im_start|>assistant\n[yo!<|im_end|>]\n<|im_start|>user\né?<|im_end|>\n<|im_start|>assistant\n[<|im_end|>]\n"
    )


def test_a_template_with_bos() -> None:
    tokenizer = tokenizer_for(LLAMA, "<h>", "</h>", "<eot>", bos=True)
    assert marked_text(tokenizer, CHAT) == (
        "<s><h>system</h>\n\ns<eot><h>user</h>\n\nhi<eot><h>assistant</h>\n\n[yo!<eot>]"
        "<h>user</h>\n\né?<eot><h>assistant</h>\n\n[<eot>]"
    )


def test_a_template_that_marks_generation() -> None:
    """Its own marks, and the EOS right behind them."""
    assert marked_text(tokenizer_for(MARKED), CHAT[:-1]) == "system:s\nuser:hi\nA:[yo!<|im_end|>]user:é?\n"


def test_all_is_flagged_on_request() -> None:
    text = marked_text(tokenizer_for(CHAT_TEMPLATE), CHAT, answers_alone=False)
    assert text.startswith("[<|im_start|>system") and text.endswith("<|im_end|>\n]") and text.count("[") == 1


def test_tools_reach_the_template() -> None:
    template = "{% if tools %}{{ tools[0]['name'] + '\n' }}{% endif %}" + CHAT_TEMPLATE
    tokenizer = tokenizer_for(template)
    ids, flags = chat_targets(tokenizer, Chat(CHAT[1:3], [{"name": "find"}]))
    assert tokenizer.decode(ids).startswith("find\n<|im_start|>user")
    assert tokenizer.decode([t for t, f in zip(ids, flags, strict=True) if f]) == "yo!<|im_end|>"


# C09: one tokenisation of a chat, whoever asks


@pytest.mark.parametrize(
    ("template", "special", "num_bos"), [(LLAMA, ("<h>", "</h>", "<eot>"), 1), (CHAT_TEMPLATE, (), 0)]
)
def test_training_and_decoding_see_the_same_ids(template: str, special: tuple[str, ...], num_bos: int) -> None:
    tokenizer = tokenizer_for(template, *special, bos=True)
    trunk: Any = SimpleNamespace(tokenizer=tokenizer, vocab_size=len(tokenizer), max_positions=1000)
    ids, flags = chat_targets(tokenizer, Chat(CHAT[:3]))
    prompt = encode_prompt(CHAT[:2], trunk)
    assert ids[: len(prompt)] == prompt
    assert flags.index(True) == len(prompt)
    assert ids.count(tokenizer.bos_token_id) == num_bos
    answer = tokenizer.decode([t for t, f in zip(ids, flags, strict=True) if f])
    assert answer == ("yo!<eot>" if num_bos else "yo!<|im_end|>")


def test_raw_text_and_completions_have_one_bos() -> None:
    tokenizer = tokenizer_for(LLAMA, bos=True)
    trunk: Any = SimpleNamespace(tokenizer=tokenizer, vocab_size=len(tokenizer), max_positions=1000)
    reader = DocumentReader(tokenizer, len(tokenizer), "answer", append_eos=True)
    bos, eos = tokenizer.bos_token_id, tokenizer.eos_token_id
    prompt = encode_prompt("ab", trunk)
    text = reader.read(Record({"text": "ab"}, "a"))
    assert text.token_ids == [*prompt, eos] and text.token_ids.count(bos) == 1 and all(text.supervised)
    pair = reader.read(Record({"prompt": "ab", "completion": "c"}, "a"))
    assert pair.token_ids == [*prompt, *tokenizer("c", add_special_tokens=False)["input_ids"], eos]
    assert pair.supervised == [False] * 3 + [True] * 2
    assert (text.num_bytes, pair.num_bytes) == (2, 3)


# What cannot be masked is refused

STRIPS = (  # as Qwen3 does with what was thought in earlier turns
    "{% for m in messages %}{{ m['role'] + ':' }}"
    "{{ m['content'][:1] if m['role'] == 'assistant' and not loop.last else m['content'] }}{{ '<|im_end|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}"
)
PICKY = (
    "{% for m in messages %}{{ raise_exception('no system') if m['role'] == 'system' else m['content'] }}{% endfor %}"
)


@pytest.mark.parametrize(
    ("template", "record", "message"),
    [
        (
            STRIPS,
            {"messages": CHAT[1:]},
            r"a\.jsonl:2: the chat template writes what comes up to the end of message 2 d",
        ),
        (STRIPS, {"messages": [CHAT[4], *CHAT[1:]]}, r"a\.jsonl:2: the chat begins with the assistant"),
        (PICKY, {"messages": CHAT}, r"a\.jsonl:2: the model's chat template refuses these messages \(no system"),
        (CHAT_TEMPLATE, {"messages": []}, r"a\.jsonl:2: messages must be a list"),
        (CHAT_TEMPLATE, {"messages": "hi"}, r"a\.jsonl:2: messages must be a list of role and content, got 'hi'"),
        (CHAT_TEMPLATE, {"messages": [CHAT[0], {"role": "user"}]}, r"a\.jsonl:2: message 2 needs text for"),
        (CHAT_TEMPLATE, {"messages": [{"role": 1, "content": ""}]}, r"a\.jsonl:2: message 1 needs text for"),
        (CHAT_TEMPLATE, {"messages": CHAT, "tools": {}}, r"a\.jsonl:2: tools must be a list"),
        (None, {"messages": CHAT}, r"a\.jsonl:2: is a chat, and the tokenizer has no chat template"),
        (None, {"prompt": "a", "completion": 3}, r'a\.jsonl:2: "prompt" and "completion" must both be text'),
        (None, {"completion": "b"}, r'a\.jsonl:2: "prompt" and "completion" must both be text'),
    ],
)
def test_a_chat_that_cannot_be_used_is_named(
    tmp_path: Path, template: str | None, record: dict[str, Any], message: str
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "fine"}\n' + json.dumps(record) + "\n", encoding="utf-8")
    trunk: Any = SimpleNamespace(tokenizer=tokenizer_for(template or ""), vocab_size=300)
    with pytest.raises(DataError, match=message) as caught:
        read_documents(DataConfig(files=(str(path),), supervise="answer"), trunk)
    assert "\n" not in str(caught.value)


def test_a_chat_that_cannot_be_masked_can_be_learnt_whole() -> None:
    tokenizer = tokenizer_for(STRIPS)
    with pytest.raises(UsageError, match="supervise"):
        chat_targets(tokenizer, Chat(CHAT[1:]))
    assert all(chat_targets(tokenizer, Chat(CHAT[1:]), answers_alone=False)[1])
    assert marked_text(tokenizer, CHAT[1:3]) == "user:hi<|im_end|>assistant:[yo!<|im_end|>]"
