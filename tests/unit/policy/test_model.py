import json

import pytest

from remit.policy import bases
from remit.policy.digest import digest
from remit.policy.model import (
    CredentialGrant,
    Filesystem,
    Limits,
    NetworkLimits,
    NetworkRule,
    Process,
    ReadGrant,
    Remit,
    State,
    ToolRule,
    Tools,
    Upstream,
)
from tests.unit.policy.remits import load_text, loaded

FULL = Remit(
    "a",
    "words",
    labels=("untrusted",),
    process=Process(("python3",), "run", True, {"A": "1"}, ("TERM",)),
    filesystem=Filesystem((ReadGrant("/a", "/b"),), "/repo", ("**/.env",)),
    network=(
        NetworkRule("x.example", "", (443,), ("GET",), ("/v1/**",), (("a", ("b",)),), 10, ("10.1.0.0/16",)),
        NetworkRule("", "10.0.0.0/8", (80,)),
    ),
    network_limits=NetworkLimits(10, 5, 1000, None, 7),
    upstream=Upstream("proxy.example", 3128, "PROXY_AUTH", "", "proxy", ("10.0.0.0/8",)),
    tools=Tools((ToolRule("s", "t"),), (ToolRule("s", "u"),), (ToolRule("s", "v*"),)),
    credentials=(CredentialGrant("github", "file", 1000, ("api.github.com",)),),
    state=State(("out/**",), "/kept"),
    limits=Limits(cpu_time_ms=5),
)


@pytest.mark.parametrize("remit", [FULL, Remit("a"), *(loaded(f"extends: {name}\n").remit for name in bases.names())])
def test_a_remit_survives_json(remit):
    assert Remit.from_document(json.loads(json.dumps(remit.as_document()))) == remit


def test_the_digest_does_not_depend_on_how_a_remit_is_written():
    a = "# words\napiVersion: remit/v1\nagent: a\nlabels: [untrusted, regulated]\n"
    a += "limits: {memory: 1GiB, wall: 1m, cpu: 1}\n"
    b = "limits:\n  cpu: 1.0\n  wall: 60s\n  memory: 1024MiB\n\nlabels: [\"regulated\", 'untrusted']\n" + (
        "agent: a\napiVersion: remit/v1   # words\nprocess: {exec: []}\n"
    )
    assert load_text(a).digest == load_text(b).digest
    assert load_text(a).digest.startswith("sha256:")
    assert len(load_text(a).digest) == 71


def test_a_whole_number_written_with_a_point_is_the_same_remit():
    assert (
        loaded("limits: {processes: 8.0, memory: 1e9}\n").digest
        == loaded("limits: {processes: 8, memory: 1GB}\n").digest
    )


@pytest.mark.parametrize(
    "body",
    [
        "process: {exec: [git]}",
        "process: {memfd: true}",
        "process: {env: {set: {A: b}}}",
        "filesystem: {read: [./a]}",
        "filesystem: {deny: [a]}",
        "state: {keep: [a]}",
        "state: {to: ./b}",
        "limits: {wall: 301s}",
        "observe: none",
        "labels: [regulated]",
        "least_tier: full",
    ],
)
def test_everything_that_is_enforced_is_in_the_digest(body):
    assert loaded(body + "\n").digest != loaded("").digest


def test_the_digest_is_of_the_effective_remit():
    plain = loaded("process: {exec: [python3, 'python?', '/sbin/ldconfig?'], work_code: install}\n")
    assert loaded("extends: python\n").digest == plain.digest


def test_the_digest_of_a_remit_is_the_same_in_every_release():
    assert digest(Remit("a")) == "sha256:439ec502666eb7e2d43053cfbc4b8da62127f356d0ef1ddf986d9596b85d9307"


def test_defaults_fill_what_nobody_said():
    remit = loaded("").remit
    assert remit.process.exec == ()
    assert remit.state.keep == ()
    assert remit.state.to == "/src/job/kept"
    assert remit.limits == Limits()
    assert (remit.least_tier, remit.observe, remit.mode) == ("delegated", "exec+connect", "enforce")
