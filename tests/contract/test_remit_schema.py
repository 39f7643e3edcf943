"""The published schema is the single description of a remit's shape: it and the code say the same."""

import json

import jsonschema_rs
import pytest
import yaml

from remit.policy import bases, units
from remit.policy.document import parse
from remit.policy.fields import FIELDS, NEVER_WIDER
from remit.policy.model import Limits, Remit
from remit.policy.schema import schema, validate

SCHEMA = schema()


def nodes(node, path=""):
    """Every part of the schema that describes something, with where it stands."""
    yield path, node
    for name, inner in {**node.get("properties", {}), **node.get("patternProperties", {})}.items():
        yield from nodes(inner, f"{path}.{name}" if path else name)
    if "items" in node:
        yield from nodes(node["items"], f"{path}[]")
    for i, inner in enumerate(node.get("anyOf", [])):
        yield from nodes(inner, f"{path}|{i}")
    for name, inner in node.get("$defs", {}).items():
        yield from nodes(inner, f"$defs/{name}")


ALL = list(nodes(SCHEMA))


def test_it_is_a_schema_of_2020_12_with_a_name():
    assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert SCHEMA["$id"].endswith("/remit.v1.schema.json")
    assert jsonschema_rs.meta.is_valid(SCHEMA)
    assert "yaml-language-server" in SCHEMA["description"]


@pytest.mark.parametrize(
    ("path", "node"), [(p, n) for p, n in ALL if n.get("type") == "object"], ids=lambda v: str(v)[:30]
)
def test_no_mapping_takes_unknown_keys(path, node):
    assert node["additionalProperties"] is False


def test_what_a_person_writes_is_described():
    def described(node):
        return "description" in node or (
            "$ref" in node and "description" in SCHEMA["$defs"][node["$ref"].split("/")[-1]]
        )

    keys = [(p, n) for p, n in ALL if not p.endswith("]") and "|" not in p.rsplit(".", 1)[-1] and p != "$defs/tools"]
    assert [path for path, node in keys if not described(node)] == []


@pytest.mark.parametrize(
    ("path", "node"), [(p, n) for p, n in ALL if "examples" in n or "default" in n], ids=lambda v: str(v)[:30]
)
def test_examples_and_defaults_are_valid(path, node):
    closed = {**node, "$defs": SCHEMA["$defs"]}
    for value in [*node.get("examples", []), *([node["default"]] if "default" in node else [])]:
        assert jsonschema_rs.Draft202012Validator(closed).is_valid(value), value


def test_fields_that_can_be_widened_are_those_that_have_an_order():
    assert sorted(SCHEMA["properties"]["unsafe_widen"]["items"]["enum"]) == sorted(set(FIELDS) - set(NEVER_WIDER))


def test_every_field_of_the_schema_has_an_order_or_is_about_the_document_itself():
    about = {"apiVersion", "agent", "description", "extends", "unsafe_widen", "mode"}
    leaves = set()
    for path, _ in ALL:
        if path and path.count(".") < 3 and not set("[|$^") & set(path):
            leaves.add(path)
    # One thing in several words: it is another proxy or the same.
    leaves = {leaf for leaf in leaves if not leaf.startswith("network.upstream.")}
    groups = {path.rsplit(".", 1)[0] for path in leaves if "." in path}
    assert {leaf for leaf in leaves - groups - about if not leaf.endswith(".mode")} == set(FIELDS)


def test_the_defaults_that_editors_show_are_those_that_are_filled_in():
    shown = {name: node.get("default") for name, node in SCHEMA["properties"]["limits"]["properties"].items()}
    usual = Limits()
    assert shown == {
        "cpu": usual.cpu,
        "cpu_time": usual.cpu_time_ms,
        "memory": units.show_size(usual.memory).replace(" ", ""),
        "processes": usual.processes,
        "wall": units.show_duration(usual.wall_ms).replace(" ", ""),
        "disk": units.show_size(usual.disk).replace(" ", ""),
        "files": usual.files,
        "output": units.show_size(usual.output).replace(" ", ""),
        "open_files": usual.open_files,
    }
    remit = Remit("a")
    assert SCHEMA["properties"]["least_tier"]["default"] == remit.least_tier
    assert SCHEMA["properties"]["observe"]["default"] == remit.observe
    assert SCHEMA["properties"]["process"]["properties"]["work_code"]["default"] == remit.process.work_code


@pytest.mark.parametrize("name", bases.names())
def test_every_built_in_base_is_valid_for_any_validator(name):
    document = parse(bases.text(name), name)
    validate(document)
    # An editor reads the file with a YAML parser of its own, and must see the same.
    assert jsonschema_rs.Draft202012Validator(SCHEMA).is_valid(yaml.safe_load(bases.text(name)))
    assert json.dumps(document.data) == json.dumps(yaml.safe_load(bases.text(name)))
