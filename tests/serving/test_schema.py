"""Fuzzed with schemathesis: whatever fits the OpenAPI document, and much that does not, gets an answer it names."""

from __future__ import annotations

import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis import Case
from schemathesis.checks import load_all_checks
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from foretell.serving.app import make_app
from tests.serving.live import scripted

load_all_checks()
SERVICE = scripted(window=64, max_waiting=4)
SCHEMA = schemathesis.openapi.from_asgi("/openapi.json", make_app(SERVICE))


@SCHEMA.parametrize()
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_answers_are_as_documented(case: Case) -> None:
    """But for rules between fields, and the window, which no schema can say: those are told with 400. Nulls pass."""
    if isinstance(case.body, dict):
        case.body.pop("model", None)  # a made-up name would end at 404 what should reach the engine
    case.call_and_validate(excluded_checks=[positive_data_acceptance, negative_data_rejection])
    assert SERVICE.failure is None
