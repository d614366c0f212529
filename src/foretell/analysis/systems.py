"""Systems a bench compares: the engine at one depth, and transformers' own generate. Each times decoding alone."""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass
from typing import Any

import torch
from transformers import GenerationConfig
from transformers.generation.streamers import BaseStreamer

from foretell.config import SamplingParams
from foretell.decoding.drafter_config import DrafterConfig
from foretell.decoding.engine import Engine
from foretell.decoding.step import StepTimes
from foretell.models.mtp_model import MTPModel
from foretell.models.trunk import Trunk
from foretell.types import AcceptanceStats, Completion


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

    @property
    def decode_tokens_per_s(self) -> float | None:
        """Tokens after the first over the seconds they took; None where there are none."""
        return (len(self.token_ids) - 1) / self.decode_s if len(self.token_ids) > 1 and self.decode_s > 0 else None

    @property
    def stats(self) -> AcceptanceStats:
        """Counts of the drafts; empty for a system that has none."""
        return self.completion.stats if self.completion else AcceptanceStats()


class EngineSystem:
    """Our decode step at one depth."""

    name = "foretell"

    def __init__(self, model: MTPModel, depth: int, drafter: DrafterConfig | None = None) -> None:
        self.depth = depth
        self._model = model
        self._drafter = drafter
        Engine(model, drafter=drafter).check_depth(depth)

    def run(self, prompt_token_ids: list[int], max_tokens: int) -> Sample:
        """Greedy; the first step, which reads the prompt, is not in the times."""
        engine = Engine(self._model, drafter=self._drafter)
        [done] = engine.generate([prompt_token_ids], SamplingParams(max_tokens=max_tokens), depth=self.depth)
        times = engine.decode_times
        return Sample(
            done.token_ids, times.draft_s + times.verify_s + times.other_s, times, done, engine.drafter_num_bytes
        )


class TransformersSystem:
    """``generate()`` of transformers on the same weight tensors, greedy.

    Its layers are a copy of the trunk's, with ordinary linear ones where those are packed.
    """

    name = "transformers"
    depth = 0

    def __init__(self, trunk: Trunk) -> None:
        self._model: Any = copy.deepcopy(trunk.model, {id(p): p for p in trunk.model.parameters()})
        for module in self._model.modules():
            module._forward_pre_hooks.clear()  # the trunk's own listener
        self._model.set_attn_implementation("sdpa")
        self._eos_token_ids = sorted(trunk.eos_token_ids)

    @torch.inference_mode()
    def run(self, prompt_token_ids: list[int], max_tokens: int) -> Sample:
        """A streamer notes when each token arrives, so that prefill is left out here too."""
        config = GenerationConfig(
            max_new_tokens=max_tokens,
            do_sample=False,
            eos_token_id=self._eos_token_ids or None,
            pad_token_id=self._eos_token_ids[0] if self._eos_token_ids else 0,
        )
        clock = _Clock()
        input_ids = torch.tensor([prompt_token_ids], device=self._model.device)
        mask = torch.ones_like(input_ids)
        output = self._model.generate(input_ids, attention_mask=mask, generation_config=config, streamer=clock)
        token_ids = output[0, len(prompt_token_ids) :].tolist()
        arrivals = clock.arrivals_s[1:]  # the first is the prompt itself
        return Sample(token_ids, arrivals[-1] - arrivals[0], StepTimes())


class _Clock(BaseStreamer):
    def __init__(self) -> None:
        self.arrivals_s: list[float] = []

    def put(self, value: torch.Tensor) -> None:
        self.arrivals_s.append(time.perf_counter())

    def end(self) -> None:
        pass
