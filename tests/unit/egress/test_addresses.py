"""Which addresses are dialled: the public ones, and those whose network the remit names."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from remit.egress.addresses import refused
from remit.policy.model import Limits, NetworkRule, Remit


def remit(*cidrs: str) -> Remit:
    rules = [NetworkRule("web.test", "", (443,), (), ()), *(NetworkRule("", cidr, (443,), (), ()) for cidr in cidrs)]
    return Remit(agent="a", network=tuple(rules), limits=Limits())


BARE = remit()
PUBLIC = ["1.1.1.1", "93.184.215.14", "172.32.0.1", "192.0.1.1", "100.128.0.1", "2606:4700::1111", "2a00:1450::5"]
SPECIAL = {
    "127.0.0.1": "loopback", "127.255.255.254": "loopback", "::1": "loopback",
    "10.0.0.1": "private", "172.16.0.1": "private", "172.31.255.255": "private", "192.168.1.1": "private",
    "fd12:3456::1": "private", "fc00::1": "private", "169.254.1.1": "link-local", "fe80::1": "link-local",
    "100.64.0.1": "CGNAT", "100.127.255.255": "CGNAT", "fec0::1": "site-local",
    "224.0.0.1": "no address of a host", "239.255.255.250": "no address of a host", "ff02::1": "no address of a host",
    "255.255.255.255": "no address of a host", "0.0.0.0": "no address of a host", "0.1.2.3": "no address of a host",
    "240.0.0.1": "no address of a host", "::": "no address of a host",
    "::ffff:127.0.0.1": "hides", "::ffff:93.184.215.14": "hides", "::127.0.0.1": "hides", "::7f00:1": "hides",
    "64:ff9b::7f00:1": "hides", "64:ff9b::a9fe:a9fe": "hides", "64:ff9b:1::a9fe:a9fe": "hides",
    "::ffff:0:127.0.0.1": "hides", "2002:7f00:1::": "hides", "2002:a9fe:a9fe::1": "hides",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2": "hides", "2606:4700::5efe:7f00:1": "hides",
    "2606:4700::200:5efe:a9fe:a9fe": "hides",
    "192.0.2.1": "documentation", "198.51.100.7": "documentation", "203.0.113.9": "documentation",
    "2001:db8::1": "documentation", "3fff::1": "documentation", "192.88.99.1": "6to4", "192.0.0.8": "protocols",
    "198.18.0.1": "stands for names", "198.19.255.255": "stands for names", "100::1": "discarding",
    "2001:2::1": "protocols", "2001:20::1": "protocols", "5f00::1": "not public", "4000::1": "not public",
    "169.254.169.254": "metadata", "100.100.100.200": "metadata", "168.63.129.16": "wire server",
    "169.254.170.2": "credentials", "fd00:ec2::254": "metadata", "192.0.0.192": "metadata", "fd20:ce::254": "metadata",
}  # fmt: skip


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_dialled(address):
    assert refused(address, 443, BARE) is None
    assert "own address" in str(refused(address, 443, BARE, own=[address]))


@pytest.mark.parametrize(("address", "why"), SPECIAL.items())
def test_special_addresses_are_not(address, why):
    assert why in str(refused(address, 443, BARE))


@pytest.mark.parametrize("wide", ["0.0.0.0/0", "0.0.0.0/1", "128.0.0.0/1", "96.0.0.0/3", "::/0", "8000::/1"])
def test_a_network_as_wide_as_the_world_does_not_name_what_is_near(wide):
    for address in SPECIAL:
        assert refused(address, 443, remit(wide)) is not None


@pytest.mark.parametrize(
    ("network", "address"),
    [("127.0.0.0/8", "127.0.0.1"), ("10.0.0.0/8", "10.9.8.7"), ("fd00::/8", "fd12::1"), ("::1/128", "::1"),
     ("169.254.169.254/32", "169.254.169.254"), ("100.64.0.0/10", "100.64.0.1"), ("fe80::/10", "fe80::1")],
)  # fmt: skip
def test_a_network_that_is_named_is_reached_on_its_ports(network, address):
    assert refused(address, 443, remit(network)) is None
    assert refused(address, 80, remit(network)) is not None
    assert refused("192.168.7.7", 443, remit(network)) is not None


@pytest.mark.parametrize("network", ["::ffff:0:0/96", "64:ff9b::/96", "2002::/16", "224.0.0.0/4", "198.18.0.0/15"])
def test_some_can_not_even_be_named(network):
    assert refused(str(ip_network(network)[5]), 443, remit(network)) is not None


@pytest.mark.parametrize(
    "text", ["0x7f.1", "0177.0.0.1", "2130706433", "127.1", "1.2.3", "", "a", "1.2.3.4\0", "\u0661.1.1.1"]
)
def test_other_ways_to_write_an_address_are_none(text):
    assert refused(text, 443, BARE) is not None
