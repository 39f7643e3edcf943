"""A certificate authority of one sandbox's own, made when it starts and gone when it ends. It exists where a rule
speaks of methods or paths, and signs for those rules' hosts alone. Its private key is only ever in this process's
memory: no file holds it, and nothing that the launcher or the sandbox gets. Touches no network. (By cryptography.)"""

from __future__ import annotations

import datetime
import os
import ssl
from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from remit.egress.tls import HTTP1

NAME = "Remit sandbox authority"
MOST_LEAVES = 1024
"""Certificates that are kept; a wildcard could otherwise be asked for names without end."""
_DAY = datetime.timedelta(days=1)
_NO_ADDRESSES = (x509.IPAddress(IPv4Network("0.0.0.0/0")), x509.IPAddress(IPv6Network("::/0")))


class Authority:
    """`hosts`: the patterns of rules whose hosts it may stand for. `seconds`: how long the sandbox may live; its
    certificates hold a day longer, and began a day ago for clocks that differ."""

    def __init__(self, hosts: Sequence[str], seconds: float | None = None) -> None:
        now = datetime.datetime.now(datetime.UTC)
        self._from, self._to = now - _DAY, now + datetime.timedelta(seconds=seconds or 30 * 86400) + _DAY
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._leaf_key = ec.generate_private_key(ec.SECP256R1())
        self._subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
        self._identifier = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        names = [x509.DNSName(name) for name in sorted({host.removeprefix("*.").lower() for host in hosts})]
        usage = _usage(key_cert_sign=True, crl_sign=True)
        certificate = (
            self._begun(self._subject, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.NameConstraints(names, _NO_ADDRESSES), critical=True)
            .add_extension(self._identifier, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self.pem = certificate.public_bytes(serialization.Encoding.PEM).decode()
        """The public part, which programs inside are to trust."""
        self._contexts: dict[tuple[str, tuple[str, ...]], ssl.SSLContext] = {}

    def leaf(self, name: str) -> str:
        """A certificate for `name`, in PEM."""
        certificate = (
            self._begun(x509.Name([]), self._leaf_key)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=True)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(digital_signature=True), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._leaf_key.public_key()), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(self._identifier), critical=False
            )
            .sign(self._key, hashes.SHA256())
        )
        return certificate.public_bytes(serialization.Encoding.PEM).decode()

    def context(self, name: str, protocols: tuple[str, ...] = (HTTP1,)) -> ssl.SSLContext:
        """What serves TLS in the name of `name`, and in it one of `protocols` (ALPN), the first that the other side
        speaks too; the same again for the same name."""
        known = self._contexts.get((name, protocols))
        if known is None:
            known = _serving(self.leaf(name) + self.pem, self._private())
            known.set_alpn_protocols(protocols)
            while len(self._contexts) >= MOST_LEAVES:
                del self._contexts[next(iter(self._contexts))]
            self._contexts[name, protocols] = known
        return known

    def _private(self) -> str:
        """Of the leaves, not of the authority."""
        return self._leaf_key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode()

    def _begun(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._from)
            .not_valid_after(self._to)
        )


def _usage(digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False) -> x509.KeyUsage:
    return x509.KeyUsage(digital_signature, False, False, False, False, key_cert_sign, crl_sign, False, False)


def _serving(chain: str, key: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # The library loads keys from files alone; this one is memory with a descriptor.
    fd = os.memfd_create("remit-leaf", os.MFD_CLOEXEC)
    try:
        os.write(fd, (key + chain).encode())
        context.load_cert_chain(f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)
    return context


def subject_hash() -> str:
    """By which OpenSSL looks for the authority in a directory: SHA-1 over the name in its canonical form (lower case,
    UTF8String, no outer sequence), of which four bytes count."""
    import hashlib

    text = NAME.lower().encode()
    value = b"\x06\x03\x55\x04\x03" + bytes([0x0C, len(text)]) + text
    pair = bytes([0x30, len(value)]) + value
    digest = hashlib.sha1(bytes([0x31, len(pair)]) + pair, usedforsecurity=False).digest()
    return f"{int.from_bytes(digest[:4], 'little'):08x}"
