"""Both languages read the same plans: these fixtures, here and in the launcher's own tests."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema_rs
import pytest

from remit.contracts import schema_of
from remit.errors import UsageError
from remit.plan.launch_plan import LaunchPlan, Mask

FIXTURES = Path(__file__).parent / "fixtures"
PLANS = sorted((FIXTURES / "plans").glob("*.json"))
BAD = sorted((FIXTURES / "bad-plans").glob("*.json"))
_BEYOND_A_SCHEMA = (
    "dotdot",
    "landlock-dotdot",
    "cgroup-dotdot",
    "own-place",
    "half-an-identity",
    "keep-nothing",
)
"""Normalised paths and what one field says of another: the launcher's own test refuses these."""


def test_there_are_fixtures():
    assert len(PLANS) >= 3
    assert len(BAD) >= 30


@pytest.mark.parametrize("path", PLANS, ids=lambda p: p.stem)
def test_a_golden_plan_keeps_the_contract_and_survives_the_round_trip(path):
    document = json.loads(path.read_text())
    schema_of("launch-plan.v1").validate(document)
    assert LaunchPlan.from_document(document).as_document() == document


@pytest.mark.parametrize("path", BAD, ids=lambda p: p.stem)
def test_a_bad_plan_is_refused_by_the_contract(path):
    document = json.loads(path.read_text())
    if path.stem in _BEYOND_A_SCHEMA:
        return
    with pytest.raises(jsonschema_rs.ValidationError):
        schema_of("launch-plan.v1").validate(document)


@pytest.mark.parametrize("name", ["another-version", "unknown-key", "no-landlock", "unknown-step"])
def test_a_bad_plan_is_refused_by_the_reader(name):
    with pytest.raises(UsageError):
        LaunchPlan.from_document(json.loads((FIXTURES / "bad-plans" / f"{name}.json").read_text()))


def test_a_mask_of_a_name_that_is_no_text_goes_there_and_back():
    plan = LaunchPlan.from_document(json.loads(PLANS[0].read_text()))
    for path in ("/workspace/\udcff.pem", "/workspace/é.pem"):
        document = plan._replace(root=(Mask(path),)).as_document()
        json.dumps(document, ensure_ascii=False).encode()
        schema_of("launch-plan.v1").validate(document)
        assert LaunchPlan.from_document(document).root == (Mask(path),)
        assert ("bytes" in document["root"][0]) == ("\udcff" in path)
