"""Entry point: the list of commands, and how errors become one line and an exit code.

0    done                     2    usage error (misspelt option, wrong value)
1    any other error, or a check that failed (verify)     130  interrupted
"""

from __future__ import annotations

import logging
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence

from cyclopts import App, CycloptsError, MissingArgumentError, UnknownOptionError, UnusedCliTokensError

from foretell.cli.bench import bench
from foretell.cli.chat import chat
from foretell.cli.compare import compare
from foretell.cli.convert import convert
from foretell.cli.demo import demo
from foretell.cli.distill import distill
from foretell.cli.eval import evaluate
from foretell.cli.generate import generate
from foretell.cli.inspect import inspect
from foretell.cli.loading import as_typed
from foretell.cli.params import params_hint
from foretell.cli.plan import plan
from foretell.cli.probe import probe
from foretell.cli.report import report
from foretell.cli.serve import serve
from foretell.cli.targets import COMMAND
from foretell.cli.train import train
from foretell.cli.verify import verify
from foretell.errors import ForetellError, PlainDecodingWarning, SamplingError, UsageError

_HELP = """\
Multi-token prediction for Hugging Face causal LMs: train heads, decode losslessly with them, measure the gain.

Start with `foretell demo`. **Heads** are a small part that guesses tokens ahead; the **trunk**, the model itself, keeps
the guesses it would have written itself. **Depth** is the number of tokens guessed a step; 0 is plain decoding.
"""
_EPILOGUE = "--debug, with any command, shows the traceback of an error."


def _version() -> str:
    from foretell.analysis.environment import package_version

    return package_version("foretell")


app = App(
    name="foretell",
    help=_HELP,
    help_format="markdown",
    help_epilogue=_EPILOGUE,
    version=_version,
    result_action="return_value",
    exit_on_error=False,
    print_error=False,
    suppress_keyboard_interrupt=False,
)
_COMMANDS: tuple[Callable[..., int | None], ...] = (
    demo,
    generate,
    chat,
    verify,
    bench,
    compare,
    distill,
    train,
    probe,
    plan,
    inspect,
    report,
    serve,
)
for _place, _command in enumerate(_COMMANDS):
    app.command(_command, sort_key=_place)
app.command(evaluate, name="eval", sort_key=len(_COMMANDS))
app.command(convert)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    debug, tokens = _take_debug(list(sys.argv[1:] if argv is None else argv))
    _quiet_libraries()
    for token in tokens:
        if not _is_text(token):
            message = f"{ascii(token)} is no text in UTF-8; give UTF-8, and rename a file whose name is none"
            return _fail(message, UsageError.exit_code, debug)
    COMMAND.set(" ".join(tokens[: 2 if tokens[:1] == ["convert"] else 1]))
    try:
        result = app(tokens)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except CycloptsError as error:
        return _fail(_usage_text(error), UsageError.exit_code, debug)
    except SamplingError as error:
        return _fail(f"--{error.field.replace('_', '-')}: {as_typed(error.message)}", error.exit_code, debug)
    except ForetellError as error:
        if os.environ.get("RANK", "0") != "0":  # under torchrun every process finds the same: the first one says it
            return error.exit_code
        return _fail(str(error), error.exit_code, debug)
    except BrokenPipeError:
        # The reader has gone (foretell ... | head). Nothing may be flushed into the pipe at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        return _fail("interrupted", 130, debug)
    except Exception as error:
        hint = "" if debug else "  (not expected; --debug shows where)"
        return _fail(f"{type(error).__name__}: {error}{hint}", 1, debug)


def _usage_text(error: CycloptsError) -> str:
    error.verbose = False
    if isinstance(error, UnusedCliTokensError) and error.unused_tokens:
        return f'"{error.unused_tokens[0]}" is one argument too many; put a text with spaces in quotes'
    if isinstance(error, MissingArgumentError) and error.argument is not None:
        return _missing_text(error.keyword, error.argument.name, error.command_chain or ())
    if isinstance(error, UnknownOptionError) and (hint := params_hint(error)):
        return hint
    return str(error)


def _missing_text(keyword: str | None, name: str, chain: Sequence[str]) -> str:
    command = _command_of(chain)
    if keyword is not None or command is None:
        return f"{keyword or name} needs a value; foretell {' '.join([*chain, '--help'])} says which"
    examples = [line.strip() for line in (command.__doc__ or "").partition("Try:")[2].splitlines() if line.strip()]
    example = next((line for line in examples if line.startswith(f"foretell {' '.join(chain)} ")), examples[0])
    return f"{name} is missing; for example: {example}"


def _command_of(chain: Sequence[str]) -> Callable[..., object] | None:
    found = app
    for name in chain:
        found = found[name]
    return found.default_command


def _is_text(token: str) -> bool:
    try:
        token.encode()
    except UnicodeEncodeError:
        return False
    return True


def _take_debug(tokens: list[str]) -> tuple[bool, list[str]]:
    """``--debug`` may stand anywhere before a ``--``."""
    end = tokens.index("--") if "--" in tokens else len(tokens)
    return "--debug" in tokens[:end], [t for i, t in enumerate(tokens) if i >= end or t != "--debug"]


def _quiet_libraries() -> None:
    """Loading bars and advice of the libraries below would drown our own lines; read when they are imported."""
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    for name in ("HF_HUB_VERBOSITY", "TRANSFORMERS_VERBOSITY"):
        os.environ.setdefault(name, "error")
    for name in ("torchao", "torch.utils._pytree"):  # kernels for other machines, internals of its tensors
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.simplefilter("ignore", PlainDecodingWarning)  # commands hint at it in their own words


def _fail(message: str, exit_code: int, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    return exit_code
