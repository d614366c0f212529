"""Fuzzed with schemathesis: whatever fits the OpenAPI document, and much that does not, gets an answer it names.

A longer run: FORETELL_FUZZ=1000 make test ARGS=tests/serving/test_schema.py
"""

from __future__ import annotations

import os

import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis import Case
from schemathesis.checks import load_all_checks
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from foretell.serving.app import make_app
from tests.serving.live import scripted

load_all_checks()
EXAMPLES = int(os.environ.get("FORETELL_FUZZ", "25"))
SERVICE = scripted(window=64, max_waiting=4)
SCHEMA = schemathesis.openapi.from_asgi("/openapi.json", make_app(SERVICE))


@SCHEMA.parametrize()
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
def test_answers_are_as_documented(case: Case) -> None:
    """But for rules between fields, and the window, which no schema can say: those are told with 400. Nulls pass."""
    if isinstance(case.body, dict):
        case.body.pop("model", None)  # a made-up name would end at 404 what should reach the engine
    case.call_and_validate(excluded_checks=[positive_data_acceptance, negative_data_rejection])
    assert SERVICE.failure is None
