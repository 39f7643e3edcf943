"""What may stand as a host in network.allow."""

from __future__ import annotations

import pytest

from remit.errors import PolicyError
from remit.policy.load import load


def told(host: str) -> str:
    text = f"apiVersion: remit/v1\nagent: a\nnetwork: {{allow: [{{host: '{host}', ports: [443]}}]}}\n"
    try:
        load(text, "remit.yaml", "/here", lambda _: b"", home="/home/a")
    except PolicyError as error:
        (problem,) = error.problems
        return f"{problem.line}:{problem.column} {problem.message} ({problem.hint})"
    return ""


@pytest.mark.parametrize(
    "host", ["*.co.uk", "*.github.io", "*.com", "*.CO.uk", "*.s3.amazonaws.com", "*.xn--55qx5d.cn", "*.vercel.app"]
)
def test_a_wildcard_below_which_anybody_can_register_is_refused(host):
    said = told(host)
    assert said.startswith("3:")
    assert "is everybody's" in said
    assert f"below {host[2:].lower()}" in said


@pytest.mark.parametrize(
    "host", ["*.example.co.uk", "*.me.github.io", "*.example.com", "*.corp", "*.web.test", "github.io", "co.uk"]
)
def test_a_wildcard_of_one_owner_and_a_plain_name_are_not(host):
    assert told(host) == ""


@pytest.mark.parametrize("host", ["127.1", "0x7f.1", "0177.0.0.1", "2130706433", "1.2.3.4", "*.1.2.3", "0x7f000001"])
def test_an_address_is_no_host(host):
    assert "is an address and no name" in told(host)
    assert ("cidr: 1.2.3.4/32" in told(host)) == (host == "1.2.3.4")


def test_a_name_that_dns_can_not_carry_is_refused():
    assert "at most 63 letters" in told("a" * 64 + ".example.com")
    assert told("a" * 63 + ".example.com") == ""


@pytest.mark.parametrize(
    "host", ["*", "*.", "a.*.com", "*a.com", "a b.com", "bücher.example", "a.com.", "user@a.com", "a%2ecom", "[::1]"]
)
def test_what_is_no_name_is_refused_by_the_schema(host):
    assert "is not a host's name" in told(host)
