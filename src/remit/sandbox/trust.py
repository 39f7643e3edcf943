"""What this host trusts, and the places where its programs look for that, to be made anew with one more authority."""

from __future__ import annotations

import os

from remit.errors import HostError
from remit.plan.template import Template
from remit.plan.trust import PLACES, Entry, Trust

_NSS = "libnss3.so"
_MOST_ENTRIES = 4096
_MOST_BYTES = 8 * 1024 * 1024


def roots() -> str | None:
    """The file of authorities that this host's programs trust, at the first of the usual places that has one."""
    return next((path for path in PLACES if os.path.isfile(path)), None)


def trust(template: Template, authority: str, subject: str) -> Trust:
    """`authority`: in PEM; `subject`: its name's hash. For the programs of `template`."""
    bundle = f"{_bundle()}\n{authority}"
    places: list[str] = []
    opened: dict[str, tuple[Entry, ...]] = {}
    trees = [tree.inside for tree in template.trees]
    for path in PLACES:
        folder = os.path.realpath(os.path.dirname(path))
        place = f"{folder}/{os.path.basename(path)}"
        tree = next((tree for tree in trees if folder == tree or folder.startswith(tree + "/")), None)
        if tree is None:
            # Elsewhere the directory is ours to make, unless a link stands in its way.
            if template.follow(path) == path:
                places.append(path)
            continue
        way = [tree]
        for part in folder[len(tree) :].split("/")[1:]:
            way.append(f"{way[-1]}/{part}")
        listed = {step: opened.get(step) or _entries(step) for step in way}
        if all(listed.values()):
            opened |= {step: entries for step, entries in listed.items() if entries}
            places.append(place)
    java = any(tree.executable and os.path.exists(f"{tree.host}/bin/java") for tree in template.trees)
    store = _store(bundle) if java else ""
    database = _database(authority) if _has_nss(template) else {}
    return Trust(authority, subject, bundle, tuple(dict.fromkeys(places)), opened, store, database)


def _bundle() -> str:
    found = roots()
    if found is None:
        return ""
    with open(found, encoding="utf-8", errors="replace") as file:
        return file.read(_MOST_BYTES)


def _store(bundle: str) -> str:
    """Without a password: there is nothing secret in it, and Java reads it as it is."""
    import contextlib
    import re
    import warnings

    from cryptography.hazmat.primitives.serialization import NoEncryption, pkcs12
    from cryptography.x509 import load_pem_x509_certificate

    named = []
    for i, text in enumerate(re.findall("-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", bundle, re.DOTALL)):
        # Among what hosts trust are certificates with flaws that OpenSSL overlooks.
        with warnings.catch_warnings(), contextlib.suppress(ValueError):
            warnings.simplefilter("ignore")
            named.append(pkcs12.PKCS12Certificate(load_pem_x509_certificate(text.encode()), b"%d" % i))
    return pkcs12.serialize_java_truststore(named, NoEncryption()).hex()


def _has_nss(template: Template) -> bool:
    return any(os.path.basename(file.inside) == _NSS for file in template.files) or any(
        tree.executable and os.path.exists(f"{tree.host}/{_NSS}") for tree in template.trees
    )


def _database(authority: str) -> dict[str, str]:
    try:
        from remit.sandbox.nss import database

        made = database(authority)
    except (ImportError, AttributeError) as error:
        raise HostError(
            "trust",
            f"a program uses NSS, whose database of authorities can't be made with this Python's SQLite: {error}",
            hint="use a Python whose sqlite3 has Connection.serialize (SQLite 3.36 or later)",
        ) from error
    return {"cert9.db": made.certificates.hex(), "key4.db": made.keys.hex()}


def _entries(folder: str) -> tuple[Entry, ...] | None:
    """None where it can't be made anew: too much of it, or names that are no text."""
    entries: list[Entry] = []
    try:
        with os.scandir(folder) as found:
            for entry in found:
                if len(entries) >= _MOST_ENTRIES or not entry.name.isprintable():
                    return None
                if entry.is_symlink():
                    entries.append(Entry(entry.name, "link", os.readlink(entry.path)))
                elif entry.is_dir() or entry.is_file():
                    entries.append(Entry(entry.name, "dir" if entry.is_dir() else "file"))
    except OSError:
        return None
    return tuple(sorted(entries))
