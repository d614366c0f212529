"""The greedy half of ``foretell verify``: options checked, model loaded, every text compared with plain decoding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretell.cli.assets import prompt_files
from foretell.cli.depths import check_draft, check_shape
from foretell.cli.loading import check_depths, check_model, default_depths, load_drafter, load_model
from foretell.cli.options import DepthChoice, DtypeName, parse_depths
from foretell.cli.output import progress
from foretell.cli.prompts import check_prompts, load_prompts
from foretell.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from foretell.analysis.lossless import EqualityReport
    from foretell.config import DrafterKind
    from foretell.decoding.drafter_config import DrafterConfig
    from foretell.models.mtp_model import MTPModel

_DEEPEST = 4


def check_greedy(
    model: str,
    heads: str | None,
    drafter: DrafterKind | None,
    draft_model: str | None,
    prompts: list[Path] | None,
    depths: str | None,
    nodes: int | None,
    exact: bool,
    batch: int | None,
    max_tokens: int,
    num_prompts: int | None,
    dtype: DtypeName,
) -> EqualityReport:
    """Load the model and compare its drafted text with plain decoding; the arguments are the options of ``verify``.

    Raises UsageError, naming the option, before the model is loaded where options alone show that they do not fit.
    """
    files = prompt_files(prompts)
    check_prompts(files)
    asked = None if depths is None else _drafted(parse_depths(depths))
    for depth in asked or ["auto"]:
        check_shape(depth, nodes, exact)
    check_model(model, heads, drafter, draft_model)

    from foretell.analysis.lossless import check_greedy_equality

    loaded = load_model(model, heads, dtype)
    drafting = load_drafter(loaded, drafter, draft_model, dtype)
    if loaded.heads is None and drafting is None:
        raise UsageError(
            f"{model} has no heads, so there is nothing to verify; --heads names an adapter folder, --drafter ngram "
            "needs none"
        )
    run_depths = _depths(loaded, asked, nodes, drafting)
    check_depths(loaded, run_depths, drafter=drafting)
    for depth in run_depths:
        check_draft(loaded, depth, nodes, exact, drafting)
    taken = load_prompts(loaded, files, num_prompts)
    with progress() as bar:
        task = bar.add_task("prompts compared", total=len(taken))
        return check_greedy_equality(
            loaded,
            taken,
            run_depths,
            max_tokens,
            drafter=drafting,
            on_progress=lambda done, total: bar.update(task, completed=done),
            num_nodes=nodes or 0,
            exact=exact,
            batch=batch,
        )


def _depths(
    model: MTPModel, asked: list[DepthChoice] | None, nodes: int | None, drafter: DrafterConfig | None
) -> list[DepthChoice]:
    """The depths to compare with plain decoding; by default 1 to 4, below the number of nodes where that is given."""
    if asked is None:
        deepest = _DEEPEST if nodes is None else min(_DEEPEST, nodes - 1)
        return [*default_depths(model, deepest, first=1, drafter=drafter)]
    return asked


def _drafted(asked: list[DepthChoice]) -> list[DepthChoice]:
    if not (drafted := [depth for depth in asked if depth]):
        raise UsageError("--depths: give a depth above 0 to compare with plain decoding")
    return drafted
