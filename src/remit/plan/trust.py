"""What makes programs inside trust the sandbox's own authority, where there is one: one file of authorities at every
place where programs look, the variables by which they are told, and the authority in OpenSSL's directories. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

FOLDER = "/etc/remit"
AUTHORITY = f"{FOLDER}/authority.pem"
"""The sandbox's own alone: for what adds it to authorities of its own (Node, Deno)."""
BUNDLE = f"{FOLDER}/authorities.pem"
"""The host's and the sandbox's own."""
STORE = f"{FOLDER}/authorities.p12"
"""The same for Java."""
DATABASE = ".pki/nssdb"
"""Below the home directory: the sandbox's own alone, for NSS in Chromium, which trusts it beside its own roots. NSS
writes there too, so the guest may; it would deceive itself alone."""
PLACES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Arch, Alpine
    "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora and its kin
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",  # openSUSE
    "/etc/ca-certificates/extracted/tls-ca-bundle.pem",  # Arch
    "/etc/ssl/cert.pem",  # Alpine, and LibreSSL
    "/etc/pki/tls/cert.pem",
    "/usr/lib/ssl/cert.pem",  # OpenSSL of Debian's
)
"""Where programs look for the bundle, those of many distributions everywhere."""
_HASHED = re.compile(r"([0-9a-f]{8})\.([0-9]+)")


class Entry(NamedTuple):
    """Of a directory. `kind`: file, dir or link; `target`: a link's."""

    name: str
    kind: str
    target: str = ""


class Trust(NamedTuple):
    """`authority`, `bundle`: in PEM. `subject`: by which OpenSSL finds the authority in a directory. `places`: where
    the bundle is to be, as the directories above really are. `opened`: directories of the host with such places in
    them, and what else is there: they are made anew inside, entry by entry. `store`: for Java, as PKCS #12 in
    hexadecimal digits, if it is there. `database`: for NSS, name -> content in hexadecimal digits, if it is there."""

    authority: str
    subject: str
    bundle: str
    places: tuple[str, ...] = ()
    opened: Mapping[str, tuple[Entry, ...]] = {}
    store: str = ""
    database: Mapping[str, str] = {}

    def hashed(self, folder: str) -> str | None:
        """The authority's name in a directory of OpenSSL's; None if `folder` is none."""
        found = [match for entry in self.opened[folder] if (match := _HASHED.fullmatch(entry.name))]
        taken = {int(match[2]) for match in found if match[1] == self.subject}
        return f"{self.subject}.{max(taken, default=-1) + 1}" if found else None

    def environment(self) -> dict[str, str]:
        """Set unless the remit says otherwise."""
        told = dict.fromkeys(_BUNDLE_VARIABLES, BUNDLE) | dict.fromkeys(_AUTHORITY_VARIABLES, AUTHORITY)
        if self.store:
            told["JAVA_TOOL_OPTIONS"] = f"-Djavax.net.ssl.trustStore={STORE} -Djavax.net.ssl.trustStoreType=PKCS12"
        return told


_BUNDLE_VARIABLES = (
    "SSL_CERT_FILE",  # OpenSSL, Go, Ruby, uv, rustls
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "PIP_CERT",
    "AWS_CA_BUNDLE",
    "CARGO_HTTP_CAINFO",
)
_AUTHORITY_VARIABLES = ("NODE_EXTRA_CA_CERTS", "DENO_CERT")
