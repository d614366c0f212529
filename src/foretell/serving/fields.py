"""Fields that chat and text requests share. Unknown ones are refused by name; null is the default everywhere."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

Name = Annotated[str, Field(min_length=1, max_length=512)]


class Fields(BaseModel):
    """Strict types, no unknown fields, no NaN; a field that is null counts as left out."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, protected_namespaces=())

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        return {
            name: value
            for name, value in values.items()
            if value is not None or name not in cls.model_fields or cls.model_fields[name].is_required()
        }


def refusal(field: str, message: str) -> PydanticCustomError:
    """What a validator raises that looks at several fields: ``field`` is the one to name."""
    return PydanticCustomError("refused", "{message}", {"field": field, "message": message})


class Speculative(Fields):
    """Foretell's own: how this request is drafted for, and whether its answer tells what came of it.

    ``policy``: "auto" drafts as deep as pays, "fixed" always ``depth`` tokens, "off" none. ``details``: usage has the
    request's acceptance, and every choice its tokens with who guessed them.
    """

    depth: Annotated[int, Field(ge=0, le=64)] | None = None
    policy: Literal["auto", "fixed", "off"] | None = None
    details: bool = False


class StreamOptions(Fields):
    """``include_usage``: a last chunk with usage. ``include_obfuscation`` is of no use here and does nothing."""

    include_usage: bool = False
    include_obfuscation: bool = False


class SchemaFormat(Fields):
    """A JSON schema with a name, as OpenAI wants it."""

    name: Annotated[str, Field(max_length=64)] = "schema"
    description: str | None = None
    schema_: Annotated[dict[str, Any], Field(alias="schema")]
    strict: bool | None = None


class ResponseFormat(Fields):
    """text, json_object, or json_schema with a schema, which the answer then always fits."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: SchemaFormat | None = None

    @model_validator(mode="after")
    def _has_schema(self) -> ResponseFormat:
        if self.type == "json_schema" and self.json_schema is None:
            raise refusal("json_schema", 'is missing; type "json_schema" needs it: {"name": ..., "schema": {...}}')
        if self.type != "json_schema" and self.json_schema is not None:
            raise refusal("json_schema", f'type is "{self.type}"; give type "json_schema", or leave the schema out')
        return self


class SamplingFields(Fields):
    """What both kinds of requests may say. Not in OpenAI's API: top_k, min_p, repetition_penalty, min_tokens,
    ignore_eos, return_token_ids, speculative.
    """

    model: Name | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    n: Annotated[int, Field(ge=1, le=128)] = 1
    temperature: Annotated[float, Field(ge=0, le=2)] = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    top_k: Annotated[int, Field(ge=0)] = 0
    min_p: Annotated[float, Field(ge=0, le=1)] = 0.0
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    stop: str | Annotated[list[str], Field(fail_fast=True)] = []
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] = 0.0
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] = 0.0
    repetition_penalty: Annotated[float, Field(gt=0, le=100)] = 1.0
    logit_bias: Annotated[dict[str, Annotated[float, Field(ge=-100, le=100)]], Field(max_length=4096)] = {}
    min_tokens: Annotated[int, Field(ge=0)] = 0
    ignore_eos: bool = False
    stream: bool = False
    stream_options: StreamOptions | None = None
    response_format: ResponseFormat | None = None
    user: str | None = None
    metadata: Annotated[dict[str, str], Field(max_length=64)] | None = None
    return_token_ids: bool = False
    speculative: Speculative | None = None

    @model_validator(mode="after")
    def _fit_together(self) -> SamplingFields:
        if self.stream_options is not None and not self.stream:
            raise refusal("stream_options", "stream_options goes with stream: true alone")
        stops = [self.stop] if isinstance(self.stop, str) else self.stop
        if len(stops) > 4:
            raise refusal("stop", f"{len(stops)} strings, and at most 4 are allowed")
        if any(not 0 < len(stop) <= 1024 for stop in stops):
            raise refusal("stop", "a string that is empty, or longer than 1,024 characters")
        return self

    @property
    def wants_usage(self) -> bool:
        """True where a stream ends with usage."""
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def wants_details(self) -> bool:
        """True where the answer tells who guessed what."""
        return self.speculative is not None and self.speculative.details
