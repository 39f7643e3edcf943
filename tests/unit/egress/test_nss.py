"""The database of authorities for NSS, as SQLite reads it and as NSS's own tool does."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess

import pytest

from remit.egress.authority import NAME, Authority
from remit.plan import launch_plan as lp
from remit.plan.template import Template, TemplateFile, TemplateTree
from remit.sandbox import nss
from remit.sandbox import trust as disk


@pytest.fixture(scope="module")
def made():
    return nss.database(Authority(["a.test"], 60).pem)


@pytest.fixture
def certutil(made, tmp_path):
    if shutil.which("certutil") is None:
        message = "this host has no certutil"
        if "clients" in os.environ.get("REMIT_MUST_RUN", "").split(","):
            pytest.fail(message)
        pytest.skip(message)
    (tmp_path / "cert9.db").write_bytes(made.certificates)
    (tmp_path / "key4.db").write_bytes(made.keys)

    def run(*arguments: str, code: int = 0) -> str:
        command = ["certutil", "-d", f"sql:{tmp_path}", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        assert done.returncode == code, done
        return done.stdout + done.stderr

    return run


def test_certutil_lists_one_authority_trusted_for_servers_alone(certutil):
    lines = [line.rsplit(maxsplit=1) for line in certutil("-L").splitlines() if "," in line and "SSL" not in line]
    assert [(name.strip(), trust) for name, trust in lines] == [(NAME, "C,,")]
    assert "certificate is valid" in certutil("-V", "-u", "L", "-n", NAME)
    assert "certificate is valid" not in certutil("-V", "-u", "S", "-n", NAME, code=255)


def test_it_opens_without_a_password_and_holds_no_key(certutil):
    assert "no keys found" in certutil("-K", code=255)


def test_trust_without_its_signature_is_not_believed(certutil, tmp_path):
    with sqlite3.connect(tmp_path / "key4.db") as connection:
        connection.execute("DELETE FROM metaData WHERE id LIKE 'sig_%'")
    assert "C,," not in certutil("-L")


def test_what_else_certutil_trusts_stands_beside_it(certutil, tmp_path):
    other = tmp_path / "other.pem"
    other.write_text(Authority(["b.test"], 60).pem)
    certutil("-A", "-t", "C,,", "-n", "other", "-i", str(other))
    assert certutil("-L").count("C,,") == 2


def test_both_are_whole_databases_of_a_few_kilobytes(made):
    for content in made:
        assert len(content) < 16384
        connection = sqlite3.connect(":memory:")
        connection.deserialize(content)
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_two_authorities_have_two_databases_and_one_authority_has_one(made):
    pem = Authority(["a.test"], 60).pem
    assert nss.database(pem) == nss.database(pem) != made


@pytest.mark.parametrize("present", [True, False])
def test_it_is_made_only_where_a_granted_program_could_read_it(tmp_path, present):
    pem = Authority(["a.test"], 60).pem
    name = "libnss3.so" if present else "libnss_files.so"
    file = TemplateFile(f"/usr/lib/{name}", f"/usr/lib/{name}", "library", lp.Stamp(0, 0, 0, 0), "")
    assert set(disk.trust(Template(files=(file,)), pem, "0").database) == (
        {"cert9.db", "key4.db"} if present else set()
    )
    (tmp_path / name).touch()
    tree = TemplateTree("/opt/x", str(tmp_path), True, "")
    assert bool(disk.trust(Template(trees=(tree,)), pem, "0").database) == present


def test_a_python_without_the_means_is_an_error_that_says_so(monkeypatch):
    import sys

    from remit.errors import HostError

    monkeypatch.setitem(sys.modules, "remit.sandbox.nss", None)
    file = TemplateFile("/usr/lib/libnss3.so", "/usr/lib/libnss3.so", "library", lp.Stamp(0, 0, 0, 0), "")
    with pytest.raises(HostError, match="SQLite"):
        disk.trust(Template(files=(file,)), Authority(["a.test"], 60).pem, "0")
