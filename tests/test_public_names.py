import subprocess
import sys

import pytest

import foretell


def test_every_public_name_resolves() -> None:
    for name in foretell.__all__:
        assert getattr(foretell, name) is not None
    assert foretell.__all__ == sorted(foretell.__all__) == dir(foretell)
    assert foretell.load.__module__ == "foretell.checkpoints.load"
    assert foretell.Engine.__module__ == "foretell.decoding.engine"
    assert foretell.__version__[0].isdigit()


def test_another_name_is_an_error_that_lists_them() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Engin'; it has .*Engine"):
        foretell.Engin  # noqa: B018


def test_the_package_and_its_settings_start_without_torch() -> None:
    code = (
        "import sys, foretell; foretell.SamplingParams(); foretell.HeadsConfig(); foretell.ForetellError; "
        "foretell.__version__; sys.exit(bool({'torch', 'transformers'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
