import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from foretell import errors


def tree(cls: type[errors.ForetellError]) -> list[type[errors.ForetellError]]:
    return [cls] + [found for child in cls.__subclasses__() for found in tree(child)]


def test_only_usage_errors_exit_with_2() -> None:
    codes = {cls.__name__: cls.exit_code for cls in tree(errors.ForetellError) if cls.__module__ == errors.__name__}
    assert codes == {
        "ForetellError": 1,
        "UsageError": 2,
        "SamplingError": 2,
        "CheckpointError": 1,
        "AdapterMismatch": 1,
        "UnsupportedModel": 1,
        "DataError": 1,
        "ContextLengthError": 1,
    }
    assert issubclass(errors.AdapterMismatch, errors.CheckpointError)


def test_messages_name_the_place() -> None:
    assert str(errors.DataError("no field 'prompt'", Path("prompts.jsonl"), 3)) == "prompts.jsonl:3: no field 'prompt'"
    assert str(errors.DataError("empty", "prompts.jsonl")) == "prompts.jsonl: empty"
    assert str(errors.SamplingError("1.5 is not in (0, 1]", "top_p")) == "top_p: 1.5 is not in (0, 1]"


@pytest.mark.parametrize(
    "error",
    [
        errors.UsageError("depth -1"),
        errors.DataError("bad JSON", Path("a.jsonl"), 2),
        errors.SamplingError("-1 is negative", field="temperature"),
    ],
)
def test_errors_survive_pickling(error: errors.ForetellError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert (str(copy), vars(copy)) == (str(error), vars(error))


def test_errors_do_not_import_torch() -> None:
    code = "import runpy, sys; runpy.run_path(sys.argv[1]); sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code, str(errors.__file__)], check=True)
