"""``--params NAME=VALUE``: every field of SamplingParams, typed by the field; the common ones have options too."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

from cyclopts import Parameter, UnknownOptionError

from foretell.cli.loading import as_typed
from foretell.config import SamplingParams
from foretell.errors import SamplingError, UsageError

Params = Annotated[
    list[str] | None,
    Parameter(
        name="--params",
        negative=(),
        help="NAME=VALUE, may be repeated: any other sampling parameter, such as repetition_penalty=1.3, min_tokens=5, "
        'n=3, logprobs=5 or json_schema=@schema.json. Lists and mappings are JSON: bad_words=["foo"]; @FILE is read.',
    ),
]

_IN_PYTHON_ONLY = "logits_processors"
_NAMES = [f.name for f in fields(SamplingParams) if f.name != _IN_PYTHON_ONLY]
_EXAMPLES = {
    "stop": '["\\n\\n"]',
    "logit_bias": '{"42": -100}',
    "bad_words": '["foo", [12, 7]]',
    "choice": '["yes", "no"]',
}


def build_params(pairs: Sequence[str] | None, **options: Any) -> SamplingParams:
    """SamplingParams from ``pairs`` ("NAME=VALUE") and from the ``options`` that a command has for some fields.

    Raises UsageError for a pair that cannot be read, and for a field that an option has set to another value than its
    default; SamplingError as SamplingParams does, but UsageError that names ``--params`` where the value came by it.
    """
    given = _parsed(pairs or ())
    defaults = SamplingParams()
    for name in given:
        if name in options and options[name] not in (getattr(defaults, name), None):
            option = name.replace("_", "-")
            raise UsageError(f"--params {name}: --{option} gives it too; leave one of the two out")
    with naming_params(pairs):
        return SamplingParams(**{**options, **given})


def idle_at_0(params: SamplingParams) -> str | None:
    """A hint at what greedy decoding has no use for; None where everything that was given matters."""
    names = {"seed": None, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
    idle = [f"--{name.replace('_', '-')}" for name, off in names.items() if getattr(params, name) != off]
    if not params.greedy or not idle:
        return None
    return (
        f"hint: at temperature 0 the likeliest token is taken, so {' and '.join(idle)} changes nothing; give "
        "--temperature above 0 to sample"
    )


@contextmanager
def naming_params(pairs: Sequence[str] | None) -> Iterator[None]:
    """A SamplingError about a field that ``pairs`` set becomes a UsageError that names ``--params``."""
    try:
        yield
    except SamplingError as error:
        if error.field in [_split(pair)[0] for pair in pairs or ()]:
            raise UsageError(f"--params {error.field}: {as_typed(error.message)}") from error
        raise


def params_hint(error: UnknownOptionError) -> str | None:
    """How to give a sampling parameter for which the command has no option; None where it is none."""
    option = (error.token.keyword or error.token.value or "").split("=")[0]
    name = option.removeprefix("--").replace("-", "_")
    takes_params = any("--params" in argument.names for argument in error.argument_collection)
    return f"{option} is no option of its own; give --params {name}=VALUE" if takes_params and name in _NAMES else None


def _parsed(pairs: Sequence[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for pair in pairs:
        name, text = _split(pair)
        if name == _IN_PYTHON_ONLY:
            raise UsageError(f"--params {name}: these are Python callables; use foretell.Engine from Python")
        if name not in _NAMES or text is None:
            raise UsageError(f"--params: {_what_is_wrong(pair, name)}")
        if name in values:
            raise UsageError(f"--params {name}: given twice; give it once")
        values[name] = _value(name, text)
    return values


def _split(pair: str) -> tuple[str, str | None]:
    name, equals, text = pair.partition("=")
    return name.strip().replace("-", "_"), text if equals else None


def _what_is_wrong(pair: str, name: str) -> str:
    if "=" not in pair and name not in _NAMES:
        return f'"{pair}" is not allowed; give NAME=VALUE, such as repetition_penalty=1.3'
    if name in _NAMES:
        return f'"{pair}" has no value; give {name}=VALUE'
    near = get_close_matches(name, _NAMES, n=1)
    return f'"{name}" is no sampling parameter; ' + (
        f"did you mean {near[0]}?" if near else f"there are {', '.join(_NAMES)}"
    )


def _value(name: str, text: str) -> Any:
    """``text`` as the field's type wants it. Whether the value is any good, SamplingParams sees."""
    kinds = set(get_args(hint := get_type_hints(SamplingParams)[name])) or {hint}
    if text.startswith("@@"):
        text = text[1:]
    elif text.startswith("@"):
        text = _read(name, text[1:])
    if bool in kinds:
        if text.lower() not in ("true", "false"):
            raise UsageError(f'--params {name}: "{text}" is not allowed; give true or false')
        return text.lower() == "true"
    for kind, what in ((int, "an integer"), (float, "a number")):
        if kind in kinds:
            try:
                return kind(text)
            except ValueError as error:
                raise UsageError(f'--params {name}: "{text}" is not allowed; give {what}') from error
    if name not in _EXAMPLES:  # a schema stays text too: SamplingParams reads it
        return text
    try:
        value = json.loads(text)
    except ValueError as error:
        raise UsageError(f"--params {name}: \"{text}\" is no JSON; give it like '{name}={_EXAMPLES[name]}'") from error
    if name == "logit_bias" and isinstance(value, dict):  # JSON has no integer keys
        return {int(key) if key.isdecimal() else key: bias for key, bias in value.items()}
    return value


def _read(name: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").rstrip("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise UsageError(
            f"--params {name}: {path} cannot be read ({reason}); give a file after @, or @@ for a value that begins so"
        ) from error
