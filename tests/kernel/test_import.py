"""`remit import` as a person uses it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.conftest import REMIT


def _import(folder: Path, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*REMIT, "import", *words], cwd=folder, input=given, capture_output=True, text=True, timeout=60, check=False
    )


POLICY = '{"allow_out": ["pypi.org"], "deny_out": ["0.0.0.0/0"]}'


def test_it_writes_a_remit_that_checks_and_nothing_over_another(tmp_path):
    done = _import(tmp_path, "-", "--out", "remit.yaml", "--extends", "python", given=POLICY)
    assert done.returncode == 0 and "pypi.org: where it leads" in done.stderr, done
    checked = subprocess.run(
        [*REMIT, "check", "remit.yaml"], cwd=tmp_path, capture_output=True, timeout=60, check=False
    )
    assert checked.returncode == 0
    before = (tmp_path / "remit.yaml").read_text()
    again = _import(tmp_path, "-", "--out", "remit.yaml", given=POLICY)
    assert again.returncode == 2 and "there already" in again.stderr
    assert (tmp_path / "remit.yaml").read_text() == before
    assert _import(tmp_path, "-", "--out", "remit.yaml", "--force", given=POLICY).returncode == 0


def test_as_data(tmp_path):
    said = json.loads(_import(tmp_path, "-", "--json", given=POLICY).stdout)
    assert said["format"] == "e2b" and said["remit"].startswith("# Imported") and said["notes"][0]["line"] == 1


def test_bad_input_is_said_and_writes_nothing(tmp_path):
    for words, given in ((("-",), "{}"), (("none.json",), ""), (("-", "--extends", "no-such"), POLICY)):
        done = _import(tmp_path, *words, "--out", "remit.yaml", given=given)
        assert done.returncode == 2 and "Traceback" not in done.stderr and done.stderr, done
        assert not (tmp_path / "remit.yaml").exists()
