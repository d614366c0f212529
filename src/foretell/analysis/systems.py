"""Systems a bench compares on one prompt at a time: the engine, and transformers' generate; decoding alone is timed."""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from transformers import GenerationConfig
from transformers.generation.streamers import BaseStreamer

from foretell.analysis.records import Setting
from foretell.analysis.step_costs import StepCosts
from foretell.config import SamplingParams
from foretell.decoding.drafter_config import DrafterConfig
from foretell.decoding.engine import Engine
from foretell.decoding.scheduler import Work
from foretell.decoding.step import StepTimes
from foretell.models.mtp_model import MTPModel
from foretell.models.trunk import Trunk
from foretell.types import AcceptanceStats, Completion, Depth


@dataclass
class Sample:
    """One prompt decoded once by one system. ``decode_s`` runs from the first token to the last: prefill is outside.

    ``drafter_num_bytes``: weights, keys and values that the drafter had come to hold.
    """

    token_ids: list[int]
    decode_s: float
    times: StepTimes
    completion: Completion | None = None
    drafter_num_bytes: int = 0
    prefill_s: float = 0.0

    @property
    def texts(self) -> list[list[int]]:
        """The one output."""
        return [self.token_ids]

    @property
    def decode_tokens_per_s(self) -> float | None:
        """Tokens after the first over the seconds they took; None where there are none."""
        return (len(self.token_ids) - 1) / self.decode_s if len(self.token_ids) > 1 and self.decode_s > 0 else None

    @property
    def request_tokens_per_s(self) -> list[float]:
        """The same: there is one request."""
        rate = self.decode_tokens_per_s
        return [] if rate is None else [rate]

    @property
    def num_passes(self) -> int:
        """Passes of the trunk that gave tokens; 0 for a system that does not say."""
        return self.completion.num_rounds if self.completion else 0

    @property
    def stats(self) -> AcceptanceStats:
        """Counts of the drafts; empty for a system that has none."""
        return self.completion.stats if self.completion else AcceptanceStats()


class EngineSystem:
    """Our decode step at one depth, or at what the policy finds best.

    It keeps its engine, and with it what a policy learns, from prompt to prompt; no prompt reuses what was computed for
    an earlier one. The policy is told each prompt's domain as its request class.
    """

    def __init__(
        self,
        model: MTPModel,
        depth: Depth,
        drafter: DrafterConfig | None = None,
        num_nodes: int = 0,
        costs: StepCosts | None = None,
    ) -> None:
        self.depth = depth
        self.setting = Setting("foretell", depth, num_nodes)
        self._engine = Engine(model, drafter=drafter, reuse_prefixes=False)
        self._engine.check_depth(depth, num_nodes)
        self._arrivals_s: list[float] = []
        self._engine.watch(self._note_arrival)
        if costs is not None:
            costs.watch(self._engine)

    def run(self, prompt_token_ids: list[int], max_tokens: int, label: str = "") -> Sample:
        """Greedy; the first step, which reads the prompt, is not in the times. What is decided between steps is."""
        engine, params = self._engine, SamplingParams(max_tokens=max_tokens)
        before = replace(engine.decode_times)
        self._arrivals_s.clear()
        [done] = engine.generate([prompt_token_ids], params, self.depth, num_nodes=self.setting.num_nodes, label=label)
        times = times_since(engine.decode_times, before)
        decode_s = self._arrivals_s[-1] - self._arrivals_s[0]
        return Sample(done.token_ids, decode_s, times, done, engine.drafter_num_bytes)

    def _note_arrival(self, works: Sequence[Work], times: StepTimes) -> None:
        if works[0].row.token_ids:
            self._arrivals_s.append(time.perf_counter())


class TransformersSystem:
    """``generate()`` of transformers on the same weight tensors, greedy."""

    setting = Setting("transformers", 0)

    def __init__(self, trunk: Trunk) -> None:
        self._model = plain_copy(trunk)
        self._config = greedy_config(trunk)

    @torch.inference_mode()
    def run(self, prompt_token_ids: list[int], max_tokens: int, label: str = "") -> Sample:
        """A streamer notes when each token arrives, so that prefill is left out here too."""
        clock = _Clock()
        self._config.max_new_tokens = max_tokens
        input_ids = torch.tensor([prompt_token_ids], device=self._model.device)
        output = self._model.generate(
            input_ids,
            attention_mask=torch.ones_like(input_ids),
            generation_config=self._config,
            streamer=clock,
        )
        token_ids = output[0, len(prompt_token_ids) :].tolist()
        arrivals = clock.arrivals_s[1:]  # the first is the prompt itself
        return Sample(token_ids, arrivals[-1] - arrivals[0], StepTimes())


def plain_copy(trunk: Trunk) -> Any:
    """The trunk's model as transformers runs it, on the same weight tensors.

    Its layers are a copy of the trunk's, with ordinary linear ones where those are packed.
    """
    model: Any = copy.deepcopy(trunk.model, {id(p): p for p in trunk.model.parameters()})
    for module in model.modules():
        module._forward_pre_hooks.clear()  # the trunk's own listener
    model.set_attn_implementation("sdpa")
    return model


def greedy_config(trunk: Trunk) -> GenerationConfig:
    """Greedy, and the trunk's ends of text."""
    eos_token_ids = sorted(trunk.eos_token_ids)
    return GenerationConfig(
        do_sample=False,
        eos_token_id=eos_token_ids or None,
        pad_token_id=eos_token_ids[0] if eos_token_ids else 0,
    )


def times_since(now: StepTimes, before: StepTimes) -> StepTimes:
    """What has been added to ``before``."""
    return StepTimes(
        now.draft_s - before.draft_s,
        now.verify_s - before.verify_s,
        now.other_s - before.other_s,
        now.num_steps - before.num_steps,
    )


class _Clock(BaseStreamer):
    def __init__(self) -> None:
        self.arrivals_s: list[float] = []

    def put(self, value: torch.Tensor) -> None:
        self.arrivals_s.append(time.perf_counter())

    def end(self) -> None:
        pass
