"""What ``foretell verify`` is asked to check: options looked at, the model loaded, and each check run with progress."""

from __future__ import annotations

from dataclasses import dataclass, replace
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

    from foretell.analysis.controls import Control
    from foretell.analysis.lossless import EqualityReport
    from foretell.analysis.model_law import ModelLaw
    from foretell.analysis.texts import BenchPrompt
    from foretell.config import DrafterKind, SamplingParams
    from foretell.decoding.drafter_config import DrafterConfig
    from foretell.models.mtp_model import MTPModel

_DEEPEST = 4
_LAW_ROWS = 8


@dataclass(frozen=True)
class Case:
    """One model, drafter and set of prompts, and the depths to check. ``params``: rules of the request, greedy or not.

    ``batch``: rows that are decoded together too; None = each prompt alone.
    """

    model: MTPModel
    drafter: DrafterConfig | None
    prompts: list[BenchPrompt]
    depths: list[DepthChoice]
    nodes: int
    exact: bool
    batch: int | None
    max_tokens: int
    params: SamplingParams

    def equality(self) -> EqualityReport:
        """Greedy text at every depth against plain decoding."""
        from foretell.analysis.lossless import check_greedy_equality

        with progress() as bar:
            task = bar.add_task("prompts compared", total=len(self.prompts))
            return check_greedy_equality(
                self.model,
                self.prompts,
                self.depths,
                self.max_tokens,
                drafter=self.drafter,
                on_progress=lambda done, total: bar.update(task, completed=done),
                num_nodes=self.nodes,
                exact=self.exact,
                batch=self.batch,
                params=replace(self.params, temperature=0.0),
            )

    def reasons_against(self, report: EqualityReport) -> list[str]:
        """Why equality of these texts proves little, a sentence each."""
        from foretell.analysis.measured_texts import reasons_against

        prompts = [prompt.token_ids for prompt in self.prompts]
        return reasons_against(self.model.trunk, prompts, report.plain_texts, self.params.ignore_eos)

    def controls(self) -> list[Control]:
        """Drafters whose acceptance is known."""
        from foretell.analysis.controls import check_controls

        with progress() as bar:
            bar.add_task("controls decoded", total=None)
            deepest = max((depth for depth in self.depths if depth != "auto"), default=2)
            rules = replace(self.params, temperature=0.0, max_tokens=self.max_tokens)
            return check_controls(
                self.model, self.prompts, self.max_tokens, deepest, self.exact, self.batch or 1, rules
            )

    def law(self, num_samples: int) -> list[ModelLaw]:
        """Samples at depth 0 and at every depth against the trunk's own distribution."""
        from foretell.analysis.model_law import check_model_law

        with progress() as bar:
            task = bar.add_task("depths sampled", total=None)
            return check_model_law(
                self.model,
                self.prompts,
                self.depths,
                replace(self.params, temperature=self.params.temperature or 1.0),
                num_samples,
                self.drafter,
                self.nodes,
                self.batch or _LAW_ROWS,
                self.exact,
                on_progress=lambda done, total: bar.update(task, completed=done, total=total),
            )


def load_case(
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
    params: SamplingParams,
) -> Case:
    """Look at the options of ``verify`` and load the model.

    Raises UsageError, naming the option, before the model is loaded where options alone show that they do not fit.
    """
    if params.n != 1:
        raise UsageError(f"--params n: {params.n} texts a prompt are no more to compare than one; leave n out")
    files = prompt_files(prompts)
    check_prompts(files)
    asked = None if depths is None else _drafted(parse_depths(depths))
    for depth in asked or ["auto"]:
        check_shape(depth, nodes, exact)
    check_model(model, heads, drafter, draft_model)
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
    return Case(loaded, drafting, taken, run_depths, nodes or 0, exact, batch, max_tokens, params)


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
