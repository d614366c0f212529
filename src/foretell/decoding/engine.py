"""Engine: lists of prompts in, completions out."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Items

import torch

from foretell.config import DrafterKind, SamplingParams
from foretell.decoding.drafter_config import DrafterConfig
from foretell.decoding.prompts import encode_prompt
from foretell.decoding.sequence import Sequence
from foretell.decoding.step import DecodeStep, StepTimes
from foretell.errors import UsageError
from foretell.models.mtp_model import MTPModel
from foretell.types import Completion, Prompt


class Engine:
    """Decodes with ``model``, at most ``max_batch`` rows at a time; rows join and leave between steps.

    ``drafter``: who guesses ahead; by default the heads, where the model has some. A name, or a DrafterConfig, which
    also takes a draft model. ``prefill_times`` and ``decode_times`` add up over all calls; ``drafter_num_bytes`` is
    the memory that the last call's drafter had come to.
    """

    def __init__(self, model: MTPModel, max_batch: int = 1, drafter: DrafterKind | DrafterConfig | None = None) -> None:
        if isinstance(max_batch, bool) or not isinstance(max_batch, int) or max_batch < 1:
            raise UsageError(f"max_batch is {max_batch!r}; give an integer of at least 1")
        self.model = model
        self.max_batch = max_batch
        self.drafter = DrafterConfig.resolve(drafter, model)
        self.drafter_num_bytes = 0
        self.prefill_times = StepTimes()
        self.decode_times = StepTimes()

    def generate(
        self,
        prompts: Items[Prompt],
        params: SamplingParams | Items[SamplingParams] | None = None,
        depth: int = 0,
        on_finish: Callable[[int, Completion], None] | None = None,
    ) -> list[Completion]:
        """Complete every prompt, in order. ``depth``: drafted tokens a step, 0 = plain decoding.

        A prompt is text, token ids, or chat messages. ``params`` is one for all or one a prompt. ``on_finish`` is
        called with (prompt index, completion) as soon as each is done. Raises UsageError for a depth the drafter
        cannot reach and ContextLengthError for a prompt that leaves no room for a token.
        """
        self.check_depth(depth)
        if isinstance(prompts, (str, dict)):
            raise UsageError(f"prompts is one {type(prompts).__name__}; give a list of prompts: [prompt]")
        if params is None or isinstance(params, SamplingParams):
            params = [params or SamplingParams()] * len(prompts)
        elif not isinstance(params, (list, tuple)):
            raise UsageError(f"params is {params!r}; give one SamplingParams for all prompts, or a list of them")
        elif len(params) != len(prompts):
            raise UsageError(
                f"{len(params)} sampling parameters for {len(prompts)} prompts; give one for all or one each"
            )
        pairs = zip(prompts, params, strict=True)
        rows = [self._sequence(prompt, p, depth, index) for index, (prompt, p) in enumerate(pairs)]
        self._run(rows, on_finish)
        return [row.completion() for row in rows]

    def check_depth(self, depth: int) -> None:
        """Raise UsageError where this model cannot draft ``depth`` tokens a step."""
        if isinstance(depth, bool) or not isinstance(depth, int) or depth < 0:
            raise UsageError(f"depth {depth!r} is not allowed; give an integer of at least 0 (0 = plain decoding)")
        if depth and self.drafter is None:
            raise UsageError(
                f"depth {depth} asked for, but {self.model.trunk.name} has no heads; give heads (an adapter folder), "
                "another drafter (ngram needs nothing else), or depth 0 for plain decoding"
            )
        limit = None if self.drafter is None else self.drafter.max_depth(self.model)
        if limit is not None and depth > limit:
            raise UsageError(
                f"depth {depth} is more than the {limit} trained modules of these heads (not unrolled, so none is "
                f"used twice); give a depth from 0 to {limit}"
            )

    def encode(self, prompt: Prompt) -> list[int]:
        """Prompt -> token ids; see ``encode_prompt``."""
        return encode_prompt(prompt, self.model.trunk)

    def _sequence(self, prompt: Prompt, params: SamplingParams, depth: int, index: int) -> Sequence:
        trunk = self.model.trunk
        if not isinstance(params, SamplingParams):
            raise UsageError(f"sampling parameters of prompt {index} are {params!r}; give foretell.SamplingParams(...)")
        token_ids = encode_prompt(prompt, trunk, f"prompt {index}")
        if params.stop and trunk.tokenizer is None:
            raise UsageError("stop strings need a tokenizer, and this model folder has none")
        return Sequence(token_ids, params, depth, trunk.max_positions, trunk.eos_token_ids, trunk.tokenizer)

    @torch.inference_mode()
    def _run(self, rows: list[Sequence], on_finish: Callable[[int, Completion], None] | None) -> None:
        num_slots = min(self.max_batch, len(rows))
        config = self.drafter if any(row.depth for row in rows) else None
        drafter = None if config is None else config.build(self.model, num_slots)
        step = DecodeStep(self.model.trunk, drafter, num_slots)
        waiting = list(enumerate(rows))[::-1]
        active: list[tuple[int, Sequence]] = []
        while waiting or active:
            fresh = []
            # Rows join in groups: a prefill pass stalls the rows that decode, whatever it brings in.
            num_free = num_slots - len(active)
            while waiting and len(active) < num_slots and (num_free >= num_slots // 8 or not active):
                index, row = waiting.pop()
                step.admit(row, len(active))
                active.append((index, row))
                fresh.append(row)
            if fresh:
                step(fresh, self.prefill_times)
            else:
                step([row for _, row in active], self.decode_times)
            for index, row in active:
                if row.finish_reason and on_finish:
                    on_finish(index, row.completion())
            active = _close_gaps(active, step)
        self.drafter_num_bytes = 0 if drafter is None else drafter.num_bytes


def _close_gaps(active: list[tuple[int, Sequence]], step: DecodeStep) -> list[tuple[int, Sequence]]:
    """Drop finished rows and move the last ones into their slots, so that active rows fill the first slots."""
    remaining = [item for item in active if item[1].finish_reason is None]
    taken = {row.slot for _, row in remaining}
    free = sorted(set(range(len(remaining))) - taken)
    for _, row in remaining:
        if row.slot >= len(remaining):
            step.move(row, free.pop(0))
    return sorted(remaining, key=lambda item: item[1].slot)
