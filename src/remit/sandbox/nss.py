"""A database of certificates as NSS keeps it, which Chromium reads in ~/.pki/nssdb, with one authority in it that is
trusted to sign for servers. Written as `certutil -A -t C,,` would, which hosts rarely have. Touches no file.

The format is NSS's own (lib/softoken of its source): sdb.c has the tables, sftkdb.c what is in them, sftkpwd.c the
signatures. cert9.db has a row for each PKCS #11 object and a column for each attribute, named by its number; numbers
are four bytes, the highest first. Trust is believed only with a signature over it in key4.db, by a key from the
database's password. That is empty here and the salts are zeros, since nothing is secret: the files are the guest's own.
"""

from __future__ import annotations

import hashlib
import hmac
import sqlite3
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.serialization import Encoding

_ATTRIBUTES = (
    *(0x0, 0x1, 0x2, 0x3, 0x10, 0x11, 0x12, *range(0x80, 0x8C), 0x90, *range(0x100, 0x10D), 0x110, 0x111),
    *(*range(0x120, 0x12A), *range(0x130, 0x135), *range(0x160, 0x167), 0x170, 0x180, 0x181, 0x200, 0x201, 0x202),
    *(0x210, 0x300, 0x301, 0x302, *range(0x400, 0x407), 0x480, 0x481, 0x482, *range(0x500, 0x504)),
    *(0x40000211, 0x40000212, 0x80000001, *range(0xCE534351, 0xCE534359), *range(0xCE534364, 0xCE53436A)),
    *(0xCE534373, 0xCE534374, *range(0xCE536351, 0xCE536361), 0xCE5363B4, 0xCE5363B5, 0xD5A0DB00),
)
"""All that NSS asks for: it takes a column that isn't there for a broken database. Later versions add their own."""
_CLASS, _TOKEN, _PRIVATE, _LABEL, _VALUE, _MODIFIABLE = 0x0, 0x1, 0x2, 0x3, 0x11, 0x170
_CERTIFICATE_TYPE, _ISSUER, _SERIAL, _SUBJECT, _ID = 0x80, 0x81, 0x82, 0x101, 0x102
_SERVERS, _CLIENTS, _CODE, _MAIL, _STEP_UP = 0xCE536358, 0xCE536359, 0xCE53635A, 0xCE53635B, 0xCE536360
_SHA1, _MD5 = 0xCE5363B4, 0xCE5363B5
_IS_CERTIFICATE, _IS_TRUST = 1, 0xCE534353
_X509 = 0
_TRUSTED_AUTHORITY, _MUST_VERIFY, _AUTHORITY = 0xCE534352, 0xCE534353, 0xCE53435B
_YES, _NO, _NOTHING = b"\1", b"\0", b"\xa5\0\x5a"
_SIGNED = (_SERVERS, _CLIENTS, _CODE, _MAIL, _STEP_UP, _SHA1, _MD5)
_THE_TRUST = 2
"""Its handle; the certificate's is 1."""

_META = "CREATE TABLE metaData (id PRIMARY KEY UNIQUE ON CONFLICT REPLACE, item1, item2)"
_HMAC_SHA256 = bytes.fromhex("300a06082a864886f70d0209")
_PBMAC1, _PBES2, _PBKDF2 = (bytes.fromhex(f"06092a864886f70d01050{n}") for n in "edc")
_AES256_CBC = bytes.fromhex("060960864801650304012a")
_SALT, _PASSWORD_SALT = bytes(32), bytes(20)
_ROUNDS = 1
"""With more NSS asks for the password."""
_KEY = hashlib.pbkdf2_hmac("sha256", hashlib.sha1(_PASSWORD_SALT, usedforsecurity=False).digest(), _SALT, _ROUNDS)


class Database(NamedTuple):
    """The contents of cert9.db and key4.db."""

    certificates: bytes
    keys: bytes


def database(authority: str) -> Database:
    """`authority`: a certificate in PEM."""
    certificate = x509.load_pem_x509_certificate(authority.encode())
    itself, trust = _objects(certificate)
    meta: list[tuple[str, bytes, bytes | None]] = [("password", _PASSWORD_SALT, _password_check())]
    meta += [(f"sig_cert_{_THE_TRUST:08x}_{a:08x}", _signature(a, trust[a]), None) for a in _SIGNED]
    return Database(
        _sqlite([_table("nssPublic")], [_row(1, itself), _row(_THE_TRUST, trust)]),
        _sqlite([_table("nssPrivate"), _META], [("INSERT INTO metaData VALUES (?, ?, ?)", entry) for entry in meta]),
    )


def _objects(certificate: x509.Certificate) -> tuple[dict[int, bytes], dict[int, bytes]]:
    encoded = certificate.public_bytes(Encoding.DER)
    name, serial = certificate.issuer.public_bytes(), certificate.serial_number
    common = {
        _TOKEN: _YES,
        _PRIVATE: _NO,
        _MODIFIABLE: _YES,
        _ISSUER: name,
        _SERIAL: _der(0x02, serial.to_bytes(serial.bit_length() // 8 + 1, "big")),
    }
    itself = common | {
        _CLASS: _number(_IS_CERTIFICATE),
        _LABEL: certificate.subject.rfc4514_string().removeprefix("CN=").encode(),
        _VALUE: encoded,
        _CERTIFICATE_TYPE: _number(_X509),
        _SUBJECT: certificate.subject.public_bytes(),
        _ID: x509.SubjectKeyIdentifier.from_public_key(certificate.public_key()).digest,
    }
    trust = common | {
        _CLASS: _number(_IS_TRUST),
        _LABEL: _NOTHING,
        _SERVERS: _number(_TRUSTED_AUTHORITY),
        _CLIENTS: _number(_AUTHORITY),
        _CODE: _number(_MUST_VERIFY),
        _MAIL: _number(_MUST_VERIFY),
        _STEP_UP: _NO,
        _SHA1: hashlib.sha1(encoded, usedforsecurity=False).digest(),
        _MD5: hashlib.md5(encoded, usedforsecurity=False).digest(),
    }
    return itself, trust


def _signature(attribute: int, value: bytes) -> bytes:
    said = _number(_THE_TRUST) + _number(attribute) + value
    mac = hmac.digest(_KEY, said, "sha256")
    return _der(0x30, _algorithm(_PBMAC1, _HMAC_SHA256), _der(0x04, mac))


def _password_check() -> bytes:
    """By which NSS sees that a password, the empty one, is right."""
    # What NSS takes for the vector begins with the header of the string that it is kept in.
    vector = _der(0x04, bytes(14))
    encryptor = Cipher(algorithms.AES(_KEY), modes.CBC(vector)).encryptor()
    encrypted = encryptor.update(b"password-check\x02\x02") + encryptor.finalize()
    return _der(0x30, _algorithm(_PBES2, _der(0x30, _AES256_CBC, vector)), _der(0x04, encrypted))


def _algorithm(identifier: bytes, with_: bytes) -> bytes:
    rounds, length = _der(0x02, bytes([_ROUNDS])), _der(0x02, bytes([len(_KEY)]))
    derivation = _der(0x30, _PBKDF2, _der(0x30, _der(0x04, _SALT), rounds, length, _HMAC_SHA256))
    return _der(0x30, identifier, _der(0x30, derivation, with_))


def _der(tag: int, *parts: bytes) -> bytes:
    """Of less than 256 bytes, as everything here is."""
    body = b"".join(parts)
    return bytes([tag, *((0x81,) if len(body) > 127 else ()), len(body)]) + body


def _number(value: int) -> bytes:
    return value.to_bytes(4, "big")


def _table(name: str) -> str:
    columns = ", ".join(f"a{attribute:x}" for attribute in _ATTRIBUTES)
    return f"CREATE TABLE {name} (id PRIMARY KEY UNIQUE ON CONFLICT ABORT, {columns})"


def _row(handle: int, attributes: Mapping[int, bytes]) -> tuple[str, tuple[object, ...]]:
    names = "".join(f", a{attribute:x}" for attribute in attributes)
    return f"INSERT INTO nssPublic (id{names}) VALUES (?{', ?' * len(attributes)})", (handle, *attributes.values())  # noqa: S608


def _sqlite(tables: Iterable[str], rows: Iterable[tuple[str, tuple[object, ...]]]) -> bytes:
    with sqlite3.connect(":memory:") as connection:
        # A quarter of what the usual size would take: almost everything is empty.
        connection.execute("PRAGMA page_size = 1024")
        for statement in tables:
            connection.execute(statement)
        for statement, values in rows:
            connection.execute(statement, values)
    return connection.serialize()
