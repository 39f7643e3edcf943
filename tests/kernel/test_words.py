"""What a person is told, and what a script reads: never less than what is so."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import HEAD, PYTHON, REMIT

pytestmark = pytest.mark.kernel


def _remit(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*REMIT, *words], cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
    )


def _run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return _remit(folder, "run", "--accept-tier", "partial", *words)


@pytest.mark.parametrize(
    ("base", "command"),
    [("python", "cat"), ("python", "/bin/cat"), ("node", "cat"), ("python", "python"), ("static-binary", "cat")],
)
def test_a_base_that_is_named_grants_what_it_says_and_no_more(tmp_path, needs, base, command):
    needs("userns")
    program = sys.executable if command == "python" else command
    done = _run(tmp_path, "--base", base, "--", program, "--version")
    if command == "python":
        assert done.returncode == 0
        assert "widened by the command: process.exec" in done.stderr, "and what is more is said"
    else:
        assert done.returncode == 126, done
        assert done.stdout == ""


def test_a_receipt_is_of_this_run_or_says_that_there_was_none(tmp_path, needs):
    needs("userns")
    receipt = tmp_path / "r.json"
    receipt.write_text("of an earlier run")
    assert _run(tmp_path, "-q", "--receipt", "r.json", "--base", "python", "--", "cat").returncode == 126
    said = json.loads(receipt.read_text())
    assert said["result"] == {"exit": 126, "reason": "not_started", "signal": None}
    assert said["error"]["code"] == "E_DENIED"
    from remit.contracts import schema_of

    schema_of("receipt.v1").validate(said)
    assert _run(tmp_path, "-q", "--receipt", "r.json", "--", "true").returncode == 0
    schema_of("receipt.v1").validate(json.loads(receipt.read_text()))


@pytest.mark.parametrize("option", ["--receipt", "--events"])
def test_a_record_that_can_not_be_opened_stops_the_run(tmp_path, needs, option):
    needs("userns")
    done = _run(tmp_path, option, "nowhere/x", "--", "echo", "ran")
    assert (done.returncode, done.stdout) == (2, "")


@pytest.mark.parametrize("into", ["/dev/full", "/dev/null"])
def test_output_that_finds_no_room_is_no_success(tmp_path, needs, into):
    needs("userns")
    command = [*REMIT, "run", "--accept-tier", "partial", "--receipt", "r.json", "--", "echo", "hello"]
    with open(into, "w") as out:
        done = subprocess.run(command, cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.PIPE)
    receipt = json.loads((tmp_path / "r.json").read_text())
    if into == "/dev/full":
        assert done.returncode == 125
        assert b"output was lost: No space left on device" in done.stderr
        assert receipt["output_error"] == "No space left on device"
    else:
        assert (done.returncode, receipt["output_error"]) == (0, None)


def test_a_file_that_is_here_and_not_inside_is_said_to_be(tmp_path, needs):
    needs("userns")
    (tmp_path / "sales.csv").write_text("1\n")
    (tmp_path / "rep.py").write_text("open('sales.csv')\n")
    done = _run(tmp_path, "--", sys.executable, "rep.py")
    assert done.returncode == 1
    assert "of this directory only rep.py is shown inside: --work . shows a copy of all" in done.stderr
    (tmp_path / "r.yaml").write_text(HEAD + PYTHON + "filesystem: {read: [./rep.py]}\n")
    done = _remit(tmp_path, "why", "--remit", "r.yaml", "read", "sales.csv")
    assert "sales.csv of this host is not brought in" in done.stdout
    assert "note:" not in _remit(tmp_path, "why", "--remit", "r.yaml", "read", "rep.py").stdout


def test_a_remit_beside_the_command_is_not_taken_and_not_passed_over_in_silence(tmp_path, needs):
    needs("userns")
    (tmp_path / "remit.yaml").write_text(HEAD + "extends: binary\n")
    assert "remit.yaml is here and not used" in _run(tmp_path, "--", "true").stderr
    assert "remit.yaml" not in _run(tmp_path, "--base", "binary", "--", "true").stderr


def test_more_can_be_observed_than_the_remit_asks_and_not_less(tmp_path, needs):
    needs("userns")
    (tmp_path / "r.yaml").write_text(HEAD + "extends: binary\nprocess: {exec: [cat]}\nobserve: exec+connect\n")
    options = ["--remit", "r.yaml", "--events", "e.jsonl"]

    def opens() -> int:
        return sum('"action": "open"' in line for line in (tmp_path / "e.jsonl").read_text().splitlines())

    _run(tmp_path, *options, "--", "cat", "/etc/passwd")
    assert opens() == 0
    _run(tmp_path, *options, "--observe", "open", "--", "cat", "/etc/passwd")
    assert opens() > 0
    (tmp_path / "r.yaml").write_text(HEAD + "extends: binary\nprocess: {exec: [cat]}\nobserve: open\n")
    _run(tmp_path, *options, "--observe", "exec+connect", "--", "cat", "/etc/passwd")
    assert opens() > 0


def test_why_looks_for_a_program_where_the_command_would(tmp_path):
    (tmp_path / "r.yaml").write_text(HEAD + "extends: coding\nfilesystem: {work: {from: .}}\n")
    assert _remit(tmp_path, "why", "--remit", "r.yaml", "exec", "./build.sh").returncode == 0
    (tmp_path / "r.yaml").write_text(HEAD + "extends: python\n")
    assert _remit(tmp_path, "why", "--remit", "r.yaml", "exec", "./build.sh").returncode == 1


def test_check_finds_a_grant_that_is_denied(tmp_path):
    (tmp_path / "data.csv").write_text("x")
    text = HEAD + "extends: python\nfilesystem: {read: [./data.csv], deny: ['**/*.csv']}\n"
    (tmp_path / "r.yaml").write_text(text)
    done = _remit(tmp_path, "check", "r.yaml")
    assert done.returncode == 2
    assert "denied by filesystem.deny" in done.stderr
    (tmp_path / "r.yaml").write_text(text.replace("*.csv']", "*.key']"))
    assert _remit(tmp_path, "check", "r.yaml").returncode == 0


def test_an_option_is_written_out(tmp_path):
    assert _remit(tmp_path, "run", "--bas", "python", "--", "true").returncode == 2


def test_processes_that_could_not_be_started_are_said(run, needs):
    needs("cgroup")
    body = "extends: shell-with-git\nlimits: {processes: 4}\n"
    held = run(body, ["sh", "-c", "for i in 1 2 3 4 5 6 7 8; do sleep 1 & done; wait"])
    assert held.receipt["usage"]["refused_forks"] > 0
    assert "limits.processes was reached" in held.err


def test_the_package_itself_runs_as_the_command_does():
    words = [sys.executable, "-P", "-m", "remit"]
    said = subprocess.run([*words, "--version"], capture_output=True, text=True, timeout=60)
    assert (said.returncode, said.stdout.split()[0]) == (0, "remit")
    bad = subprocess.run([*words, "check", "/nowhere/remit.yaml"], capture_output=True, text=True, timeout=60)
    assert bad.returncode == 2 and "/nowhere/remit.yaml" in bad.stderr, bad
