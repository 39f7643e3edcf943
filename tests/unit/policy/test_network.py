"""What a remit says of the network beyond names and ports: read, refused where it can't be meant, explained, narrowed."""

from __future__ import annotations

import pytest

from remit.errors import PolicyError
from remit.policy.decide import Decision, inspected, most_body
from remit.policy.describe import lines
from remit.policy.model import NetworkLimits, NetworkRule, Upstream
from tests.unit.policy.remits import loaded

RULE = "network: {allow: [{host: up.example.com, ports: [443], %s}]}\n"


def rule(words: str) -> NetworkRule:
    return loaded(RULE % words).remit.network[0]


def test_conditions_on_headers_are_by_small_letters_and_lists():
    found = rule("headers: {X-Tenant: acme, Accept: [a/b, c/d]}")
    assert found.headers == (("accept", ("a/b", "c/d")), ("x-tenant", ("acme",)))
    assert not found.whole


def test_a_body_has_a_most_and_names_may_lead_to_networks():
    found = rule('max_body: 64KiB, allow_private: ["10.1.0.0/16"]')
    assert (found.max_body, found.allow_private) == (65536, ("10.1.0.0/16",))


def test_limits_and_upstream():
    remit = loaded(
        "network:\n  limits: {connections: 8, new_connections: 5, up: 1MiB, speed: 10KiB}\n"
        '  upstream: {proxy: "http://Proxy.example.com:3128", auth_env: PROXY_AUTH, direct: ["10.0.0.0/8"]}\n'
    ).remit
    assert remit.network_limits == NetworkLimits(8, 5, 1024**2, None, 10240)
    assert remit.upstream == Upstream("proxy.example.com", 3128, "PROXY_AUTH", "", "here", ("10.0.0.0/8",))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("headers: {}", "headers"),
        ("headers: {'a b': c}", "a b"),
        ('headers: {a: "b\\r\\nc"}', "headers"),
        ("headers: {Host: up.example.com}", "always the host itself"),
        ("headers: {Content-Length: '5'}", "max_body"),
        ("headers: {a: b, A: c}", "twice"),
        ("max_body: 0", "max_body"),
        ("max_body: -1", "max_body"),
        ("allow_private: [10.1.0.1/16]", "host bits"),
        ("allow_private: true", "allow_private"),
    ],
)
def test_what_can_not_be_meant_is_refused(words, said):
    with pytest.raises(PolicyError) as raised:
        rule(words)
    assert said in str(raised.value)


@pytest.mark.parametrize(
    "words",
    [
        '{proxy: "https://p.example:3128"}',
        '{proxy: "http://user:secret@p.example:3128"}',
        '{proxy: "http://p.example"}',
        '{proxy: "http://p.example:0"}',
        '{proxy: "http://p.example:70000"}',
        '{proxy: "http://p.example:3128", auth_env: A, auth_file: ./b}',
        '{proxy: "http://p.example:3128", resolve: both}',
        '{proxy: "http://p.example:3128", direct: [0.0.0.1/0]}',
        "{}",
    ],
)
def test_an_upstream_that_can_not_be_meant_is_refused(words):
    with pytest.raises(PolicyError):
        loaded(f"network: {{upstream: {words}}}\n")
    assert loaded('network: {upstream: {proxy: "http://p.example:3128"}}\n').remit.upstream is not None


def test_a_rule_with_conditions_makes_what_is_said_be_read_unless_another_allows_it_whole():
    one = loaded(RULE % "max_body: 5").remit
    both = loaded(
        "network: {allow: [{host: a.example.com, ports: [443], max_body: 5}, {host: a.example.com, ports: [443]}]}\n"
    )
    assert inspected(one, "up.example.com", 443)
    assert not inspected(both.remit, "a.example.com", 443)


def test_the_most_of_a_body_is_that_of_the_rule_that_allowed_it():
    remit = loaded(RULE % "max_body: 5").remit
    assert most_body(remit, Decision("allow", "network.allow[0]", "")) == 5
    assert most_body(remit, Decision("deny", "network.allow", "")) == 0


@pytest.mark.parametrize(
    ("base", "within", "beyond"),
    [
        ("max_body: 10", "max_body: 10", "methods: [GET]"),
        ("max_body: 10", "max_body: 5", "max_body: 11"),
        ("headers: {a: [b, c]}", "headers: {a: b, d: e}", "headers: {a: [b, d]}"),
        ("headers: {a: b}", "headers: {a: b}", "methods: [GET]"),
        (
            'allow_private: ["10.0.0.0/8"]',
            'allow_private: ["10.1.0.0/16"]',
            'allow_private: ["10.1.0.0/16", "172.16.0.0/12"]',
        ),
        ("methods: [GET]", "methods: [GET], max_body: 5", 'methods: [GET], allow_private: ["10.1.0.0/16"]'),
    ],
)
def test_a_child_narrows_and_never_widens(base, within, beyond):
    files = {"/src/job/base.yaml": "apiVersion: remit/v1\nagent: b\n" + RULE % base}
    assert loaded("extends: ./base.yaml\n" + RULE % within, files).remit.network
    with pytest.raises(PolicyError, match=r"network\.allow"):
        loaded("extends: ./base.yaml\n" + RULE % beyond, files)


@pytest.mark.parametrize(
    ("base", "within", "beyond"),
    [
        ("limits: {up: 10KiB}", "limits: {up: 9KiB}", "limits: {up: 11KiB}"),
        ("limits: {connections: 5}", "limits: {connections: 5}", "limits: {connections: 6}"),
        ('upstream: {proxy: "http://p.example:3128"}',) * 2 + ('upstream: {proxy: "http://q.example:3128"}',),
    ],
)
def test_limits_and_the_way_out_are_ceilings(base, within, beyond):
    files = {"/src/job/base.yaml": f"apiVersion: remit/v1\nagent: b\nnetwork: {{{base}}}\n"}
    assert loaded(f"extends: ./base.yaml\nnetwork: {{{within}}}\n", files)
    assert (
        loaded("extends: ./base.yaml\n", files).remit.network_limits
        == loaded(f"network: {{{base}}}\n").remit.network_limits
    )
    with pytest.raises(PolicyError, match=r"network\."):
        loaded(f"extends: ./base.yaml\nnetwork: {{{beyond}}}\n", files)


def test_it_is_explained_in_words():
    effective = loaded(
        RULE.replace(
            "network: {",
            "network: {limits: {connections: 3, new_connections: 2, up: 1KiB, down: 2KiB, speed: 4KiB}, "
            'upstream: {proxy: "http://p.example:3128"}, ',
        )
        % "headers: {a: b}, max_body: 1KiB, allow_private: ['10.0.0.0/8']"
    )
    said = "\n".join(line.text for line in lines(effective))
    for words in (
        "only with a: b",
        "at most 1 KiB a request",
        "also at 10.0.0.0/8",
        "At most 3 connections at once",
        "2 new connections a second",
        "1 KiB leave",
        "2 KiB come in",
        "4 KiB a second",
        "the proxy p.example port 3128",
        "judged here",
    ):
        assert words in said
