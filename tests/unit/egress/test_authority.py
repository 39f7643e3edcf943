"""The authority of a sandbox, and TLS without a network: two sides joined in memory."""

from __future__ import annotations

import ssl
import subprocess
import time

import pytest
from cryptography import x509

from remit.egress.authority import MOST_LEAVES, Authority, subject_hash
from remit.egress.tls import Tls, problem, verifying


@pytest.fixture(scope="module")
def authority():
    return Authority(["api.test", "*.Under.test"], 300)


def _client(authority):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=authority.pem)
    context.set_alpn_protocols(["h2", "http/1.1"])
    return context


def _joined(authority, name, asked=None):
    """A client and the sandbox's server for `name`, after the handshake."""
    client, server = Tls(_client(authority), asked or name), Tls(authority.context(name))
    done = [client.shake(None), False]
    while not all(done):
        done[1] = server.shake(client.out() or None)
        done[0] = client.shake(server.out() or None)
    return client, server


def test_a_leaf_serves_its_name_in_http_1_1_and_words_pass_both_ways(authority):
    client, server = _joined(authority, "api.test")
    assert server.read(client.out() or None) is None
    client.write(b"up" * 100_000)
    assert server.read(client.out()) == b"up" * 100_000
    server.write(b"down")
    server.end()
    assert (client.read(server.out()), client.read(None), client.cut) == (b"down", b"", False)
    assert server.read(b"") == b""
    assert server.cut


def test_an_end_without_the_word_for_it_is_noticed(authority):
    client, server = _joined(authority, "api.test")
    server.write(b"half")
    assert (client.read(server.out()), client.read(b""), client.cut) == (b"half", b"", True)


@pytest.mark.parametrize("name", ["elsewhere.test", "xunder.test", "test"])
def test_it_can_sign_for_no_other_name_that_a_program_would_believe(authority, name):
    with pytest.raises(ssl.SSLCertVerificationError, match="permitted subtree violation"):
        _joined(authority, name)


@pytest.mark.parametrize("name", ["api.test", "a.under.test", "a.b.under.test"])
def test_it_signs_for_what_its_rules_name(authority, name):
    _joined(authority, name)


def test_another_name_than_the_leafs_is_not_believed(authority):
    with pytest.raises(ssl.SSLCertVerificationError) as raised:
        _joined(authority, "api.test", "a.under.test")
    assert "not valid: Hostname mismatch" in problem(raised.value, "a.under.test")


def test_it_lives_no_longer_than_its_sandbox_may_and_a_day():
    made = x509.load_pem_x509_certificate(Authority(["a.test"], 600).pem.encode())
    assert made.not_valid_after_utc.timestamp() - time.time() < 86400 + 700
    constraints = made.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert (constraints.ca, constraints.path_length) == (True, 0)


def test_two_sandboxes_share_nothing():
    one, other = Authority(["a.test"]), Authority(["a.test"])
    with pytest.raises(ssl.SSLCertVerificationError):
        client, server = Tls(_client(one), "a.test"), Tls(other.context("a.test"))
        client.shake(None)
        server.shake(client.out())
        client.shake(server.out())


def test_certificates_are_made_once_and_not_without_end(authority, monkeypatch):
    assert authority.context("api.test") is authority.context("api.test")
    monkeypatch.setattr("remit.egress.authority.MOST_LEAVES", 2)
    made = Authority(["*.under.test"])
    for i in range(4):
        made.context(f"n{i}.under.test")
    assert [name for name, _ in made._contexts] == ["n2.under.test", "n3.under.test"]
    assert MOST_LEAVES >= 1000


def test_nothing_public_holds_a_private_key(authority):
    assert "PRIVATE" not in authority.pem + authority.leaf("api.test")


def test_the_hash_of_its_name_is_openssls(authority, tmp_path):
    file = tmp_path / "a.pem"
    file.write_text(authority.pem)
    try:
        done = subprocess.run(
            ["openssl", "x509", "-hash", "-noout", "-in", file], capture_output=True, text=True, check=True
        )
    except FileNotFoundError:
        pytest.skip("this host has no openssl")
    assert done.stdout.strip() == subject_hash()


def test_without_roots_of_its_own_the_library_is_given_the_hosts(authority, tmp_path, monkeypatch):
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    monkeypatch.setenv("SSL_CERT_FILE", str(empty))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    roots = tmp_path / "roots.pem"
    roots.write_text(authority.pem)
    assert verifying(str(roots)).cert_store_stats()["x509_ca"] == 1
    strict = verifying(None)
    assert (strict.verify_mode, strict.check_hostname) == (ssl.CERT_REQUIRED, True)
