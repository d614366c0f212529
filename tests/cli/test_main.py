from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest

from foretell.cli import main as main_module
from foretell.cli.loading import naming_option
from foretell.cli.main import app
from foretell.cli.options import MAX_EXACT_DEPTH
from foretell.errors import CheckpointError, UsageError

OPTIONS = {
    "bench": "batch depths draft-model drafter dtype heads json max-tokens nodes num-prompts on-busy prompts reference "
    "repeats",
    "chat": "depth draft-model drafter dtype heads max-tokens nodes seed system temperature top-p",
    "convert export": "fold-norm heads json modules no-reload overwrite to",
    "convert fold-norm": "heads json overwrite",
    "convert graft": "json original overwrite",
    "convert import": "json overwrite trunk",
    "convert strip": "json overwrite",
    "demo": "depth dtype heads json max-tokens model num-prompts prompts",
    "distill": "batch dtype json limit max-tokens min-p seed temperature top-k top-p",
    "generate": "chat depth draft-model drafter dtype exact heads json max-tokens min-p nodes params seed stop "
    "temperature top-k top-p",
    "compare": "batch depths draft-model dtype heads html json max-tokens no-ngram no-stacks nodes num-prompts on-busy "
    "prompts repeats",
    "eval": "batch chat depth dtype heads include-path json limit max-tokens num-fewshot num-prompts on-busy parse "
    "prompts stride tasks text window",
    "inspect": "json",
    "plan": "acceptance against batch context depth devices distinct draft-cost draft-vocab dtype efficiency hardware "
    "heads json layer-overhead-us measure nodes on-busy unconditional",
    "probe": "data dtype heads json max-records max-tokens num-prompts prompts served",
    "report": "html markdown overwrite title",
    "serve": "api-key-file depth draft-model drafter dtype grace heads host max-batch max-waiting memory name port "
    "timeout",
    "train": "json overwrite resume",
    "verify": "batch controls depths draft-model drafter dtype exact heads json max-tokens nodes num-prompts params "
    "prompts samples sampling",
}


def named(command: str) -> Any:
    """The app of a command, or of one within another."""
    found = app
    for name in command.split():
        found = found[name]
    return found


def test_options_are_frozen() -> None:
    """A new option is a decision: change this table with it, and keep to eighteen a command."""
    commands = [name for name in app if not name.startswith("-")]
    commands.remove("convert")
    commands += [f"convert {name}" for name in app["convert"] if not name.startswith("-")]
    found = {name: named(name).assemble_argument_collection() for name in commands}
    names = {
        command: sorted(n.removeprefix("--") for a in arguments for n in a.names if n.startswith("--"))
        for command, arguments in found.items()
    }
    assert names == {command: options.split() for command, options in OPTIONS.items()}
    assert max(map(len, names.values())) <= 19


@pytest.mark.parametrize("command", ["", *OPTIONS])
def test_help_teaches(run: Any, command: str) -> None:
    ran = run(*command.split(), "--help")
    assert ran.code == 0
    assert "foretell" in ran.out
    assert not command or f"foretell {command}" in ran.out.split("Try:")[1]


def test_help_is_fast_because_it_imports_nothing_heavy() -> None:
    code = (
        "import sys; from foretell.cli.main import main; [main([a, '--help']) for a in ('demo', 'train')]; "
        "main(['--help']); main(['--version']); "
        "sys.exit(' '.join({'torch', 'transformers', 'datasets'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_mistyped_model_is_found_before_anything_heavy_is_imported() -> None:
    code = (
        "import sys; from foretell.cli.main import main; "
        "codes = [main(['generate', 'dmeo', 'hi']), main(['verify', 'dmeo', '--num-prompts', '1'])]; "
        "sys.exit(codes != [1, 1] or ' '.join({'torch', 'transformers', 'datasets'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr.count("dmeo: no such file or folder")) == (0, 2), done.stderr


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("bench m --promts x", 2, ["--promts", "Did you mean --prompts"]),
        ("generate m hi --dept 2", 2, ["--dept", "Did you mean --depth"]),
        ("generate m hi --depth -1", 2, ["--depth", '"-1"', ">= 0"]),
        ("generate m hi --depth two", 2, ["--depth", '"two"']),
        ("generate m hi --dtype bfloat61", 2, ["--dtype", '"bfloat61"', 'Did you mean "bfloat16"']),
        ("generate m hi there", 2, ['"there"', "quotes"]),
        ("generate m", 2, ["PROMPT"]),
        ("generate m hi --temperature -1", 2, ["--temperature", "-1", "0 (greedy) to 100"]),
        ("generate m hi --temperature nan", 2, ["--temperature", "nan"]),
        ("generate m hi --top-p nan", 2, ["--top-p", "nan", "above 0"]),
        ("generate m hi --params min_tokens=-1", 2, ["--params min_tokens", "-1", "from 0"]),
        ("generate m hi --min-tokens 3", 2, ["--min-tokens", "--params min_tokens=VALUE"]),
        ("verify m --top-p 0.9", 2, ["--top-p is no option", "--params top_p=VALUE"]),
        ("generate m hi --nodes 1", 2, ["--nodes", '"1"', ">= 2"]),
        ("verify m --batch 1 --prompts {prompts}", 2, ["--batch", '"1"', ">= 2"]),
        ("generate m hi --depth 65", 2, ["--depth", '"65"', "<= 64"]),
        ("verify m --depths 1,65 --prompts {prompts}", 2, ["--depths", '"1,65"', "0 to 64"]),
        ("generate m hi --nodes 513", 2, ["--nodes", '"513"', "<= 512"]),
        ("generate m hi --nodes 8 --depth 0", 2, ["--nodes", "nothing is drafted at depth 0"]),
        ("generate m hi --nodes 2 --depth 3", 2, ["--nodes: 2 nodes at depth 3", "at least 4"]),
        ("generate m hi --nodes 8 --exact", 2, ["--nodes", "--exact"]),
        ("generate m hi --depth 8 --exact", 2, ["--exact", "at most 7"]),
        ("verify m --depths 0 --prompts {prompts}", 2, ["--depths", "above 0"]),
        ("verify m --depths 8 --exact --prompts {prompts}", 2, ["--exact", "at most 7"]),
        ("verify m --depths 2,3 --nodes 3 --prompts {prompts}", 2, ["--nodes: 3 nodes at depth 3"]),
        ("bench m --depths 3 --nodes 2 --prompts {prompts}", 2, ["--nodes: 2 nodes at depths 3"]),
        ("bench m --max-tokens 1", 2, ["--max-tokens", '"1"', ">= 2"]),
        (
            "generate m hi --max-tokens 4 --params min_tokens=5",
            2,
            ["--params min_tokens", "from 0 to --max-tokens (4)"],
        ),
        ("generate m hi --params foo", 2, ["--params", '"foo"', "NAME=VALUE"]),
        ("generate m hi --stop=", 2, ["--stop", '""']),
        ("generate", 2, ["MODEL is missing", "foretell generate demo"]),
        ("distill m", 2, ["PROMPTS is missing", "foretell distill demo"]),
        ("probe m", 2, ["--data: give JSONL files", "--served"]),
        ("generate m hi --depth", 2, ["--depth needs a value", "foretell generate --help"]),
        ("generate m \udcff", 2, ["'\\udcff'", "UTF-8"]),
        ("generate m hi --stop \udcff", 2, ["'\\udcff'", "UTF-8"]),
        ("verify --sampling --batch 4", 2, ["MODEL", "--batch"]),
        ("verify m --depths 1,two --prompts {prompts}", 2, ["--depths", "1,two", "auto"]),
        ("generate m hi --max-tokens 0", 2, ["--max-tokens", '"0"', ">= 1"]),
        ("bench m --depths 1,-2 --prompts {prompts}", 2, ["--depths", "1,-2", "0,1,2,3"]),
        ("bench m --repeats 0", 2, ["--repeats", '"0"']),
        ("bench m --prompts {folder}/none.jsonl", 1, ["none.jsonl", "no such file"]),
        ("bench m --prompts {folder}/broken.jsonl", 1, ["broken.jsonl:3", "JSON"]),
        ("probe m --data {folder}/none.jsonl", 1, ["none.jsonl", "no such file"]),
        ("train {folder}/none.toml", 1, ["none.toml", "no such file"]),
        ("inspect {folder}/none", 1, ["none", "no such file or folder"]),
        ("generate {folder}/none hi", 1, ["none", "no such file or folder"]),
        ("generate dmeo hi", 1, ["dmeo: no such file or folder", 'did you mean "demo"']),
        ("bench {folder}/none --prompts {prompts}", 1, ["none", "no such file or folder"]),
        ("verify {folder}/none --prompts {prompts}", 1, ["none", "no such file or folder"]),
        ("distill {folder}/none {prompts} {folder}/out.jsonl", 1, ["none", "no such file or folder"]),
        ("verify", 2, ["MODEL", "--sampling"]),
        ("bnech m", 2, ['"bnech"', 'Did you mean "bench"']),
        ("--nonsense", 2, ["--nonsense"]),
    ],
)
def test_errors_are_one_line(run: Any, tmp_path: Path, prompts: Path, line: str, code: int, words: list[str]) -> None:
    (tmp_path / "broken.jsonl").write_text('{"prompt": "a"}\n\n{"prompt": \n', encoding="utf-8")
    ran = run(*line.format(folder=tmp_path, prompts=prompts).split())
    assert ran.code == code
    assert ran.out == ""
    assert ran.err.startswith("error: ") and ran.err.count("\n") == 1
    for word in words:
        assert word in ran.err


def integer_options() -> list[tuple[str, str]]:
    return [
        (command, argument.name)
        for command in OPTIONS
        for argument in named(command).assemble_argument_collection()
        if int in (argument.hint, *get_args(argument.hint))
    ]


@pytest.mark.parametrize(("command", "option"), integer_options())
def test_an_integer_is_no_fraction(run: Any, command: str, option: str) -> None:
    needed = {"distill": ("m", "p", "o"), "generate": ("m", "hi"), "probe": ("m", "--data", "d"), "demo": ()}
    needed["convert export"] = ("m", "o", "--heads", "a", "--to", "mimo")
    for value in ("2.5", "200.0", "2e2", "0x10", ""):
        ran = run(*command.split(), *needed.get(command, ("m",)), f"{option}={value}")
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.startswith(f'error: {option}: "{value}" is not allowed; give an integer')


def test_every_integer_option_was_found() -> None:
    assert len(integer_options()) >= 18 and {option for _, option in integer_options()} >= {
        *("--max-tokens", "--seed", "--top-k", "--batch", "--nodes", "--num-prompts", "--repeats", "--samples"),
        *("--limit", "--max-records"),
    }


def test_the_deepest_exact_draft_is_the_engines() -> None:
    from foretell.decoding.core import EXACT_WIDTH

    assert MAX_EXACT_DEPTH == EXACT_WIDTH - 1


def test_messages_of_the_library_speak_of_options() -> None:
    with pytest.raises(UsageError) as caught, naming_option("--nodes"):
        raise UsageError("num_nodes 8: too many; leave num_nodes out")
    assert str(caught.value) == "--nodes: 8 nodes: too many; leave --nodes out"


@pytest.mark.parametrize(
    ("raised", "code", "message"),
    [
        (CheckpointError("two\n lines"), 1, "error: two lines\n"),
        (ZeroDivisionError("oh"), 1, "error: ZeroDivisionError: oh  (not expected; --debug shows where)\n"),
        (KeyboardInterrupt(), 130, "error: interrupted\n"),
    ],
)
def test_what_escapes_a_command(
    run: Any, monkeypatch: pytest.MonkeyPatch, raised: BaseException, code: int, message: str
) -> None:
    def fail(tokens: list[str]) -> None:
        raise raised

    monkeypatch.setattr(main_module, "app", fail)
    ran = run("inspect", "x")
    assert (ran.code, ran.err.replace("  ", " ")) == (code, message.replace("  ", " "))
    debugged = run("inspect", "x", "--debug")
    assert debugged.code == code and "Traceback" in debugged.err


def test_a_reader_that_goes_away_is_no_error() -> None:
    code = "import sys, foretell.cli.main as m; m.app = lambda _: print('x' * 10**6); sys.exit(m.main([]))"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    errors = process.stderr.read()
    assert (process.wait(60), errors) == (141, b"")


def test_ctrl_c_inside_a_command_is_said(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command-line library would end the process without a word."""

    def interrupted(path: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("foretell.inspection.inspect.inspect_checkpoint", interrupted)
    ran = run("inspect", "x")
    assert (ran.code, ran.err) == (130, "error: interrupted\n")
