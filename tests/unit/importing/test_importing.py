"""Other policies as remits: what is granted is what was, and each difference is said."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from remit.errors import PolicyError
from remit.importing import FORMATS, read
from remit.importing.notes import Imported
from remit.policy.actions import Action, Connect, HttpRequest, ReachHost, ResolveName
from remit.policy.decide import decide
from remit.policy.model import Remit
from remit.policy.view import View
from tests.unit.policy.remits import load_text


def imported(data: Any, kind: str | None = None) -> tuple[Remit, Imported]:
    found = read(json.dumps(data), "other.json", kind)
    text = yaml.safe_dump({"apiVersion": "remit/v1", "agent": "a", **found.body})
    return load_text(text).remit, found


def allowed(remit: Remit, action: Action) -> bool:
    return decide(remit, action, View(())).allowed


def said(found: Imported) -> str:
    return "\n".join(note.message for note in found.notes)


SRT = {
    "network": {
        "allowedDomains": ["github.com", "*.npmjs.org", "api.example.com:8443", "10.1.2.3", "localhost"],
        "deniedDomains": [],
    },
    "filesystem": {"denyRead": ["~/.ssh", "/etc/secret"], "allowWrite": ["."], "denyWrite": []},
}


@pytest.mark.parametrize(
    ("action", "fine"),
    [
        (ReachHost("github.com", 443), True),
        (ReachHost("github.com", 80), True),
        (ReachHost("github.com", 22), False),
        (ReachHost("www.github.com", 443), False),
        (ReachHost("registry.npmjs.org", 443), True),
        (ReachHost("npmjs.org", 443), False),
        (ReachHost("api.example.com", 8443), True),
        (ReachHost("api.example.com", 443), False),
        (Connect("10.1.2.3", 443), True),
        (Connect("10.1.2.4", 443), False),
        (ResolveName("evil.example"), False),
    ],
)
def test_srt_domains(action, fine):
    remit, found = imported(SRT)
    assert found.kind == "srt" and allowed(remit, action) is fine
    for words in ("github.com: any port there", "localhost", "all may be read there", "state.keep takes them out"):
        assert words in said(found)
    assert remit.filesystem.deny == ("**/.ssh", "**/.ssh/**", "/etc/secret", "/etc/secret/**")


@pytest.mark.parametrize(
    ("denied", "github", "npm"),
    [
        ([], True, True),
        (["github.com"], False, True),
        (["*"], False, False),
        (["*.npmjs.org"], True, False),
        # A part of a wildcard can't be taken away: none of it is granted.
        (["evil.npmjs.org"], True, False),
        (["npmjs.org"], True, True),
        (["*:443"], False, False),
        (["github.com:22"], True, True),
    ],
)
def test_what_srt_denies_is_not_granted(denied, github, npm):
    domains = {"allowedDomains": ["github.com", "*.npmjs.org"], "deniedDomains": denied}
    remit, found = imported({"network": domains})
    assert allowed(remit, ReachHost("github.com", 443)) is github
    assert allowed(remit, ReachHost("registry.npmjs.org", 443)) is npm
    assert (github and npm) or "denied by" in said(found) or "takes a part" in said(found) or denied == ["*:443"]


def test_the_proxy_of_srt_without_its_password():
    proxy = {"https": "http://me:secret@proxy.corp:3128", "noProxy": "10.0.0.0/8,.corp"}
    remit, found = imported({"network": {**SRT["network"], "parentProxy": proxy}})
    assert remit.upstream is not None
    assert (remit.upstream.host, remit.upstream.port, remit.upstream.auth_env) == ("proxy.corp", 3128, "PROXY_AUTH")
    assert remit.upstream.direct == ("10.0.0.0/8",)
    assert "secret" not in json.dumps(found.body) and ".corp: only networks" in said(found)


@pytest.mark.parametrize("spelling", [("allow_out", "deny_out"), ("allowOut", "denyOut")])
@pytest.mark.parametrize("nested", [True, False])
def test_e2b(spelling, nested):
    network = {spelling[0]: ["pypi.org", "*.example.com", "1.1.1.1", "8.8.8.0/24"], spelling[1]: ["0.0.0.0/0"]}
    remit, found = imported({"network": network} if nested else network)
    assert found.kind == "e2b"
    for action, fine in (
        (ReachHost("pypi.org", 443), True),
        (ReachHost("pypi.org", 80), True),
        (ReachHost("pypi.org", 8080), False),
        (ReachHost("a.b.example.com", 443), True),
        (ReachHost("example.com", 443), False),
        (Connect("1.1.1.1", 443), True),
        (Connect("8.8.8.9", 80), True),
        (Connect("9.9.9.9", 443), False),
    ):
        assert allowed(remit, action) is fine, action
    assert "1.1.1.1: any port there" in said(found) and "all that is not denied" not in said(found)


def test_e2b_that_is_open_is_not_and_says_so():
    for data in ({"allow_internet_access": True}, {"network": {"denyOut": ["8.8.8.8"]}}, {"allow_out": ["0.0.0.0/0"]}):
        remit, found = imported(data)
        assert remit.network == () and "can't be left open" in said(found)
    _, closed = imported({"allow_internet_access": False})
    assert closed.notes == ()


OPEN: dict[str, Any] = {
    "version": 1,
    "network_policies": {
        "github": {
            "endpoints": [
                {
                    "host": "api.github.com",
                    "port": 443,
                    "protocol": "rest",
                    "enforcement": "enforce",
                    "access": "read-only",
                },
                {
                    "host": "uploads.example.com",
                    "ports": [443],
                    "protocol": "rest",
                    "enforcement": "enforce",
                    "rules": [
                        {"allow": {"method": "POST", "path": "/v1/**"}},
                        {"allow": {"method": "*", "path": "/open"}},
                    ],
                },
                {"host": "**.cdn.example.com", "port": 443},
                {"host": "db.corp.example", "port": 5432, "protocol": "tcp", "allowed_ips": ["10.0.5.0/24"]},
                {"allowed_ips": ["10.9.0.0/16"], "port": 22},
            ],
            "binaries": [{"path": "/usr/bin/curl"}, {"path": "/usr/lib/*/java"}],
        }
    },
}


@pytest.mark.parametrize(
    ("action", "fine"),
    [
        (HttpRequest("GET", "api.github.com", 443, "/x"), True),
        (HttpRequest("POST", "api.github.com", 443, "/x"), False),
        (HttpRequest("POST", "uploads.example.com", 443, "/v1/a/b"), True),
        (HttpRequest("POST", "uploads.example.com", 443, "/v2/a"), False),
        (HttpRequest("DELETE", "uploads.example.com", 443, "/open"), True),
        (ReachHost("a.b.cdn.example.com", 443), True),
        (ReachHost("cdn.example.com", 443), False),
        (ReachHost("db.corp.example", 5432), True),
        (Connect("10.9.1.1", 22), True),
        (Connect("10.0.5.1", 5432), False),
    ],
)
def test_openshell(action, fine):
    remit, found = imported(OPEN)
    assert found.kind == "openshell" and allowed(remit, action) is fine
    assert remit.process.exec == ("/usr/bin/curl?",)
    assert remit.network[-2].allow_private == ("10.0.5.0/24",)
    for words in ("of every program inside here", "/usr/lib/*/java", "here to public addresses too"):
        assert words in said(found)


@pytest.mark.parametrize(
    ("endpoint", "words", "granted"),
    [
        ({"enforcement": "audit", "protocol": "rest", "access": "full"}, "audit only records", True),
        (
            {"protocol": "rest", "enforcement": "enforce", "access": "full", "deny_rules": [{"method": "*"}]},
            "take away",
            False,
        ),
        ({"protocol": "graphql", "access": "full"}, "not of the network", False),
        ({"protocol": "mcp", "rules": []}, "not of the network", False),
        ({"protocol": "websocket", "enforcement": "enforce", "access": "read-only"}, "not read here", False),
        ({"protocol": "websocket", "enforcement": "enforce", "access": "full"}, "private addresses", True),
        ({"host": "*.one.example.com"}, "any number of labels", True),
        ({"host": "*-api.example.com"}, "left out", False),
        ({"host": "api.*.example.com"}, "left out", False),
        ({"credential_signing": "sigv4"}, "credential_signing", True),
        (
            {"protocol": "rest", "rules": [{"allow": {"method": "GET", "path": "/a", "query": {"q": "x"}}}]},
            "queries are not looked at",
            False,
        ),
    ],
)
def test_where_openshell_means_something_else_it_is_said(endpoint, words, granted):
    policy = {
        "endpoints": [{"host": "api.example.com", "port": 443, **endpoint}],
        "binaries": [{"path": "/usr/bin/curl"}],
    }
    remit, found = imported({"version": 1, "network_policies": {"x": policy}})
    assert words in said(found) and bool(remit.network) is granted


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{}", "no known format"),
        ("[1]", "mapping"),
        ("{", "not YAML"),
        ('{"unknown": 1}', "its keys: unknown"),
        ('{"network_policies": {}, "network": {"allowedDomains": []}}', "openshell"),
        ('{"network": {"allowedDomains": "github.com"}}', "list of strings"),
        ('{"network_policies": {"a": {"endpoints": [{"host": "a.b.c"}], "binaries": [{"path": "/x"}]}}}', "has a port"),
        ('{"network_policies": {"a": {"binaries": [{"path": "x"}]}}}', "absolute path"),
    ],
)
def test_what_can_not_be_followed_is_said_and_nothing_is_made(text, words):
    with pytest.raises(PolicyError) as raised:
        read(text, "other.json")
    assert words in str(raised.value)


def test_json_with_tabs_is_json():
    assert read('{\n\t"allow_out": ["pypi.org"]\n}', "x").kind == "e2b"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 70000) | st.text("ab*.:/~[]0159-", max_size=12),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["network", "allowedDomains", "deniedDomains", "filesystem", "denyRead", "allow_out", "denyOut", "parentProxy",
             "network_policies", "x", "endpoints", "binaries", "host", "port", "path", "rules", "allow", "method", "http",
             "protocol", "access", "allowed_ips", "filesystem_policy", "read_only", "noProxy"]
        ),
        inner,
        max_size=4,
    ),
    max_leaves=20,
)  # fmt: skip


@given(
    st.dictionaries(st.sampled_from(["network", "filesystem", "network_policies", "allow_out"]), VALUES),
    st.sampled_from(list(FORMATS)),
)
@settings(max_examples=400, deadline=None)
def test_whatever_it_is_given_it_makes_a_remit_or_says_why_not(data, kind):
    if not data:
        return
    try:
        imported(data, kind)
    except PolicyError:
        pass
