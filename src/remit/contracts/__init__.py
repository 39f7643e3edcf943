"""The published contracts: JSON Schemas for the remit, the launch plan, the launcher's events and the receipt."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def schema_of(name: str) -> Any:
    """A validator of the contract `name`, e.g. 'receipt.v1': `.validate(data)` raises jsonschema_rs.ValidationError."""
    import jsonschema_rs

    text = files("remit.contracts").joinpath(f"{name}.schema.json").read_text("utf-8")
    return jsonschema_rs.Draft202012Validator(json.loads(text))
