import json

import pytest

from remit.policy import bases
from remit.policy.actions import Exec, KeepFile, OpenFile
from remit.policy.decide import decide
from remit.policy.describe import as_data, describe
from remit.policy.model import CredentialGrant, Effective, NetworkRule, Remit, ToolRule, Tools
from remit.policy.starter import starter
from tests.unit.policy.remits import load_text, loaded, view_of

BODY = (
    "extends: python\nprocess: {exec: [python3], env: {pass: [TERM]}}\nfilesystem:\n"
    "  read: [./docs, /opt/x]\n  deny: ['**/.env']\n"
    "state: {keep: [report.md]}\nlimits: {cpu_time: 30s}\nlabels: [untrusted]\n"
)


def words(effective):
    return {boundary: "\n".join(lines) for boundary, lines in describe(effective)}


def test_each_boundary_is_described():
    boundaries = ["process", "filesystem", "network", "tools", "credentials", "state", "limits", "host", "bases"]
    assert [boundary for boundary, _ in describe(loaded(BODY))] == boundaries


def test_a_line_names_the_rule_that_a_decision_would_name():
    effective = loaded(BODY)
    rules = {line["rule"] for line in as_data(effective)}
    for action in (
        OpenFile("/workspace/docs/a"),
        OpenFile("/opt/x"),
        OpenFile("/etc/x"),
        KeepFile("report.md", "file", 0),
    ):
        assert decide(effective.remit, action, view_of(effective.remit)).rule in rules
    assert decide(effective.remit, Exec("/usr/bin/git"), view_of(effective.remit)).rule in rules


def test_the_grants_are_said_in_words():
    said = words(loaded(BODY))
    assert "filesystem.read[0]: /workspace/docs (/src/job/docs of the host) can be read." in said["filesystem"]
    assert "filesystem.read[1]: /opt/x can be read." in said["filesystem"]
    assert "state.keep[0]: report.md is copied to /src/job/kept at the end." in said["state"]
    assert "30 s of processor time" in said["limits"]
    assert "TERM" in said["process"]


def test_what_an_interpreter_can_do_is_said_and_a_binary_is_none():
    assert "any code" in words(loaded("process: {exec: [/usr/bin/python3.12]}\n"))["process"]
    assert "any code" in words(loaded("process: {exec: ['bash?']}\n"))["process"]
    assert "any code" not in words(loaded("process: {exec: [/opt/tool]}\n"))["process"]


def test_a_widening_is_said():
    effective = loaded("extends: python\nprocess: {exec: [git]}\nunsafe_widen: [process.exec]\n")
    assert "process.exec" in words(effective)["host"]
    assert "own word" not in words(loaded("extends: python\n"))["host"]


def test_grants_of_later_releases_are_never_described_as_nothing():
    remit = Remit(
        "a",
        network=(NetworkRule("x.example", "", (443,), ("GET",), ("/v1/**",)),),
        tools=Tools((ToolRule("s", "t"),), (ToolRule("s", "u"),), (ToolRule("s", "t"),)),
        credentials=(CredentialGrant("github", hosts=("api.github.com",)),),
    )
    said = words(Effective(remit, "sha256:0", ("x",)))
    assert "x.example on port 443, only GET, only /v1/**" in said["network"]
    assert "No tool" not in said["tools"]
    assert "github for api.github.com" in said["credentials"]
    assert "Nothing may run" in said["process"]


@pytest.mark.parametrize("name", bases.names())
def test_every_base_can_be_described_with_its_reasons(name):
    effective = loaded(f"extends: {name}\n")
    assert words(effective)["bases"] == f"{name}: {bases.reasons(name)}"
    assert json.loads(json.dumps(as_data(effective))) == as_data(effective)


@pytest.mark.parametrize("base", bases.names())
@pytest.mark.parametrize("read", [[], ["docs", "./a b", "/opt/data", "~/x", "'\"#:", "ü😀", "."]])
def test_a_first_remit_loads_as_it_is_and_is_short(base, read):
    text = starter("report-writer", base, read)
    effective = load_text(text)
    assert effective.remit.agent == "report-writer"
    assert len(effective.remit.filesystem.read) == len(read)
    assert effective.remit.state.keep == ("report.md", "out/**")
    assert effective.widened == ()
    assert len(text.splitlines()) <= 10
