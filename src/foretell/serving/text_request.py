"""The body of POST /v1/completions."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from foretell.serving.fields import SamplingFields, refusal

TokenIds = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1, fail_fast=True)]
_MOST = 4096
"""Prompts in one request."""


class TextRequest(SamplingFields):
    """OpenAI's fields. ``prompt``: text, token ids, or a list of either; ``suffix`` is refused.

    ``max_tokens`` is 16 by default, as there; 0 goes with ``echo``, for the prompt's log-probabilities alone.
    """

    prompt: (
        str
        | TokenIds
        | Annotated[list[str], Field(min_length=1, max_length=_MOST, fail_fast=True)]
        | Annotated[list[TokenIds], Field(min_length=1, max_length=_MOST, fail_fast=True)]
    )
    max_tokens: Annotated[int, Field(ge=0)] | None = 16
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    echo: bool = False
    best_of: int | None = None
    suffix: Literal[""] | None = None

    @model_validator(mode="before")
    @classmethod
    def _no_suffix(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("suffix"):
            raise refusal("suffix", "text is not filled in before a suffix; leave it out")
        return values

    @model_validator(mode="after")
    def _counts(self) -> TextRequest:
        if self.best_of is not None and self.best_of != self.n:
            raise refusal("best_of", f"{self.best_of} is not n ({self.n}); completions are not ranked, so leave it out")
        if self.max_tokens == 0 and not self.echo:
            raise refusal("max_tokens", "0 goes with echo: true alone; give at least 1")
        return self

    @property
    def prompts(self) -> list[str | list[int]]:
        """One or several, each as text or token ids."""
        given: Any = self.prompt
        return given if isinstance(given, list) and not isinstance(given[0], int) else [given]
