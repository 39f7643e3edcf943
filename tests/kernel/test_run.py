"""What a shell user expects of `remit run`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from remit.contracts import schema_of
from tests.conftest import HEAD, PYTHON, REMIT

pytestmark = pytest.mark.kernel


def test_a_real_program_does_useful_work_and_its_result_is_kept(python, tmp_path):
    held = (
        python(
            "import pathlib\npathlib.Path('report.md').write_text(pathlib.Path('in.txt').read_text().upper())\nprint('done')",
            "filesystem: {read: [./probe.py, ./in.txt]}\nstate: {keep: [report.md]}\n",
        )
        if (tmp_path / "in.txt").write_text("words")
        else None
    )
    assert (held.code, held.out) == (0, "done\n")
    assert (tmp_path / "kept/report.md").read_text() == "WORDS"
    assert [k["path"] for k in held.receipt["kept"]] == ["report.md"]


def test_the_exit_status_is_the_programs_own(python):
    assert python("raise SystemExit(7)").code == 7


def test_125_of_the_program_is_not_125_of_the_setup(python):
    held = python("raise SystemExit(125)")
    assert held.code == 125
    assert held.receipt["result"] == {"exit": 125, "reason": "exited", "signal": None}


def test_standard_streams_can_be_opened_again_by_their_names(python):
    held = python(
        "for name in ('stdout', 'stderr'):\n    with open(f'/dev/{name}', 'w') as again: again.write(name)\n"
        "print(open('/dev/stdin').read() or 'empty')"
    )
    assert (held.code, held.out) == (0, "stdoutempty\n")
    assert held.err.startswith("stderr")


def test_death_by_signal_is_128_and_the_number(python):
    held = python("import os, signal; os.kill(os.getpid(), signal.SIGTERM)")
    assert held.code == 128 + signal.SIGTERM
    assert held.receipt["result"]["signal"] == signal.SIGTERM


def test_a_command_that_is_not_granted_is_126_and_says_what_is(run):
    held = run(PYTHON, ["git", "--version"])
    assert held.code == 126
    assert "git is not granted: process.exec allows" in held.err


def test_a_search_along_path_is_no_refusal_of_what_is_granted_and_is_one_of_what_is_not(run):
    remit = "process: {exec: [env, 'true']}\n"
    granted = run(remit, ["env", "true"])
    assert (granted.code, granted.receipt["refusals"]) == (0, [])
    assert "refused" not in granted.err.replace("refused 0", "")
    other = run(remit, ["env", "cat"])
    assert other.code == 127
    assert [refusal["reason"] for refusal in other.receipt["refusals"]] == ["cat is not among what process.exec grants"]


def test_a_command_that_does_not_exist_is_127(run):
    assert run(PYTHON, ["no-such-program"]).code == 127


def test_standard_input_reaches_the_program_and_ends(python):
    held = python("import sys; print(len(sys.stdin.read()))", stdin="x" * 300_000)
    assert held.out == "300000\n"


def test_output_and_error_stay_apart_and_complete(python):
    held = python("import sys; sys.stdout.write('o' * 200_000); sys.stderr.write('e')", options=["-q"])
    assert (held.out, held.err) == ("o" * 200_000, "e")


def test_arguments_that_look_like_options_reach_the_program(python):
    held = python("import sys; print(sys.argv[1:])", argv=["--json", "-q", "--", "--remit", "x"])
    assert held.out == "['--json', '-q', '--', '--remit', 'x']\n"


def test_unicode_and_odd_bytes_in_names_survive(run, tmp_path):
    code = "import os, sys; print(sorted(os.listdir('in')) == sorted(['ä b', 'x\\ny']), sys.argv[1] == 'ä\\u20ac')"
    (tmp_path / "in").mkdir()
    for name in ("ä b", "x\ny"):
        (tmp_path / "in" / name).write_text("")
    held = run(PYTHON + "filesystem: {read: [./in]}\n", [sys.executable, "-c", code, "ä€"])
    assert held.out == "True True\n"


def test_the_callers_environment_does_not_pass_and_what_is_named_does(python):
    code = "import os; print(os.environ.get('SECRET'), os.environ.get('TZ'), os.environ.get('FIXED'))"
    more = "unsafe_widen: [process.exec]\n"
    del more
    held = python(code, env={"SECRET": "s", "TZ": "Asia/Tokyo"})
    assert held.out == "None None None\n"


def test_named_environment_passes(run):
    code = "import os, time; print(os.environ.get('SECRET'), time.tzname[0], os.environ['FIXED'])"
    remit = PYTHON.replace("]}", "], env: {pass: [TZ], set: {FIXED: 'yes'}}}")
    held = run(remit, [sys.executable, "-c", code], env={"SECRET": "s", "TZ": "Asia/Tokyo"})
    assert held.out == "None JST yes\n"


def test_the_receipt_and_the_events_keep_their_contracts(python, tmp_path):
    held = python("open('a')", "observe: open\n", options=["--events", "events.jsonl"])
    schema_of("receipt.v1").validate(held.receipt)
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert {e["event"] for e in events} >= {"started", "attempt", "ended", "removed", "receipt"}
    assert all({"verdict", "rule", "predicted"} <= set(e) for e in events if e["event"] == "attempt")


def test_the_plan_that_is_printed_keeps_its_contract(tmp_path, needs):
    needs("userns")
    (tmp_path / "remit.yaml").write_text(HEAD + PYTHON)
    done = subprocess.run(
        [*REMIT, "run", "--remit", "remit.yaml", "--dry-run", "--", sys.executable],
        cwd=tmp_path,
        capture_output=True,
        check=True,
    )
    schema_of("launch-plan.v1").validate(json.loads(done.stdout))


def test_a_run_without_a_remit_says_which_base_it_took(needs):
    needs("userns")
    done = subprocess.run(
        [*REMIT, "run", "--accept-tier", "partial", "--", "/bin/sh", "-c", "echo hi"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "hi\n", done.stderr
    assert "built-in base 'shell-with-git'" in done.stderr


def _bare(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*REMIT, "run", "--accept-tier", "partial", *command], cwd=folder, capture_output=True, text=True, check=False
    )


def test_files_that_the_command_names_are_brought_in_however_they_are_named(tmp_path, needs):
    needs("userns")
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.txt").write_text("words")
    for folder, name in ((tmp_path, "a.txt"), (tmp_path, str(tmp_path / "a.txt")), (tmp_path / "sub", "../a.txt")):
        done = _bare(folder, "--", "cat", name)
        assert done.stdout == "words", (name, done.stderr)


def test_a_link_out_of_the_folder_is_not_brought_in_by_its_name(tmp_path, needs):
    needs("userns")
    (tmp_path / "here").mkdir()
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "here/data").symlink_to("../secret")
    done = _bare(tmp_path / "here", "--", "cat", "data")
    assert done.returncode != 0
    assert "secret" not in done.stdout


def test_a_program_by_a_relative_path_runs(tmp_path, needs):
    needs("userns")
    (tmp_path / "s.sh").write_text("#!/bin/sh\necho ran $0\n")
    (tmp_path / "s.sh").chmod(0o755)
    done = _bare(tmp_path, "--", "./s.sh")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("ran ")


def test_a_file_that_is_there_and_not_brought_in_is_named(run, tmp_path):
    (tmp_path / "tool.py").write_text("print(1)")
    held = run(PYTHON, [sys.executable, "tool.py"])
    assert held.code == 2
    assert "tool.py exists here and is not brought in: filesystem.read" in held.err


def test_closed_standard_streams_are_no_fault(tmp_path, needs):
    needs("userns")
    for closing in ("<&-", ">&-", "2>&-", "<&- >&- 2>&-"):
        command = f"{sys.executable} -m remit.cli.main run -q --accept-tier partial -- /bin/sh -c 'exit 3' {closing}"
        assert subprocess.run(["sh", "-c", command], cwd=tmp_path, check=False).returncode == 3, closing


def test_why_follows_links_as_the_kernel_does(tmp_path, needs):
    needs("userns")
    for program, code in (("python3", 0), ("git", 1)):
        done = subprocess.run(
            [*REMIT, "why", "--base", "python", "exec", program], capture_output=True, text=True, check=False
        )
        assert done.returncode == code, done.stdout


def test_ctrl_c_reaches_the_program_and_the_receipt_is_still_written(run, tmp_path):
    (tmp_path / "probe.py").write_text(
        "import time\ntry:\n print('up', flush=True); time.sleep(30)\nexcept KeyboardInterrupt:\n print('interrupted')\n"
    )
    (tmp_path / "remit.yaml").write_text(HEAD + PYTHON + "filesystem: {read: [./probe.py]}\n")
    process = subprocess.Popen(
        [*REMIT, "run", "--remit", "remit.yaml", "--receipt", "r.json", "--", sys.executable, "probe.py"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    os.killpg(process.pid, signal.SIGINT)
    out, _ = process.communicate(timeout=20)
    assert out == "interrupted\n"
    assert process.returncode == 0
    assert json.loads((tmp_path / "r.json").read_text())["teardown"]["nothing_remains"]


def test_a_remit_that_is_below_the_hosts_tier_is_refused_with_the_remedy(monkeypatch):
    from remit.errors import HostError
    from remit.plan.host import HostFacts, require

    weak = HostFacts(1000, 1000, None, 7, None, "no cgroup -- do this")
    with pytest.raises(HostError, match="tier 'partial'") as caught:
        require(weak, "delegated")
    assert "do this" in (caught.value.hint or "")
    assert require(weak, "partial") == "partial"


def test_the_launcher_that_is_not_found_lists_where_it_was_looked_for(tmp_path):
    done = subprocess.run(
        [*REMIT, "run", "--accept-tier", "partial", "--", "/bin/true"],
        env={**os.environ, "REMIT_LAUNCHER": str(tmp_path / "nowhere")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 125
    assert str(tmp_path / "nowhere") in done.stderr
    assert "hint:" in done.stderr


def test_one_gibibyte_of_output_goes_through_a_pipe(run):
    code = "import os\nb = b'x' * (1 << 20)\nfor _ in range(1024): os.write(1, b)"
    (run.folder / "probe.py").write_text(code)
    (run.folder / "remit.yaml").write_text(
        HEAD + PYTHON + "filesystem: {read: [./probe.py]}\nlimits: {output: 2GiB, wall: 2m}\n"
    )
    process = subprocess.Popen(
        [*REMIT, "run", "-q", "--remit", "remit.yaml", "--", sys.executable, "probe.py"],
        cwd=run.folder,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    total = 0
    while block := process.stdout.read(1 << 20):
        total += len(block)
    assert process.wait(30) == 0
    assert total == 1 << 30


def test_a_megabyte_of_arguments_arrives(python):
    held = python("import sys; print(sum(map(len, sys.argv[1:])))", argv=["y" * 100_000] * 10)
    assert held.out == "1000000\n"


def test_a_terminal_of_its_own(run):
    """Under a real pseudo-terminal: the program sees one, its size, and Ctrl-C by the inner line discipline."""
    import pty
    import select

    (run.folder / "probe.py").write_text(
        "import os, sys\nprint(os.isatty(0), os.ttyname(0), os.get_terminal_size().columns)\nprint(input('? '))\n"
    )
    (run.folder / "remit.yaml").write_text(HEAD + PYTHON + "filesystem: {read: [./probe.py]}\n")
    pid, master = pty.fork()
    if pid == 0:
        os.chdir(run.folder)
        os.environ["COLUMNS"] = ""
        os.execv(sys.executable, [*REMIT, "run", "-q", "--remit", "remit.yaml", "--", sys.executable, "probe.py"])
    import fcntl
    import struct
    import termios

    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 91, 0, 0))
    seen, end = b"", time.monotonic() + 30
    answered = False
    while time.monotonic() < end:
        if select.select([master], [], [], 0.2)[0]:
            try:
                block = os.read(master, 4096)
            except OSError:
                break
            if not block:
                break
            seen += block
        if b"? " in seen and not answered:
            answered = True
            os.write(master, b"answer\n")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, seen
    assert b"True /dev/pts/0" in seen
    assert seen.count(b"answer") == 2


def test_keep_goes_where_it_is_told(python, tmp_path):
    held = python("open('a.txt','w').write('1')", "state: {keep: ['*.txt']}\n", options=["--keep-to", "elsewhere"])
    assert held.code == 0
    assert Path(tmp_path, "elsewhere/a.txt").read_text() == "1"


def _without_a_file(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [*REMIT, "run", "--accept-tier", "partial", *words]
    return subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)


def test_a_directory_shown_by_name_is_a_copy_and_what_is_named_is_kept(tmp_path, needs):
    needs("userns")
    (tmp_path / "a.txt").write_text("hello\n")
    done = _without_a_file(tmp_path, "--work", ".", "--keep", "b*", "--", "cp", "a.txt", "b.txt")
    assert done.returncode == 0, done
    assert (tmp_path / "kept/b.txt").read_text() == "hello\n"
    assert not (tmp_path / "b.txt").exists()
    done = _without_a_file(tmp_path, "-q", "--work", ".", "--", "grep", "-r", "hello", ".")
    assert "./a.txt:hello" in done.stdout
    (tmp_path / "sub").mkdir()
    done = _without_a_file(tmp_path / "sub", "-q", "--work", "..", "--", "cat", "../a.txt")
    assert done.stdout == "hello\n", done
    assert "b.txt" not in os.listdir(tmp_path)


def test_a_directory_elsewhere_is_shown_and_the_words_of_the_command_are_found(tmp_path, needs):
    """The inputs that the command names are those of the caller's directory, not of what is shown."""
    needs("userns")
    (tmp_path / "w").mkdir()
    (tmp_path / "w/b.txt").write_text("there\n")
    (tmp_path / "a.txt").write_text("here\n")
    done = _without_a_file(tmp_path, "-q", "--work", "w", "--", "cat", "a.txt", "b.txt", "w/b.txt")
    assert done.stdout == "here\nthere\nthere\n", done


@pytest.mark.parametrize("work", ["nowhere", "a.txt", ""])
def test_what_is_no_directory_is_not_shown(tmp_path, work):
    (tmp_path / "a.txt").write_text("hello\n")
    done = _without_a_file(tmp_path, "--work", work, "--", "true")
    assert done.returncode == 2
    assert f"--work {work!r} is no directory" in done.stderr


def test_without_it_the_directory_is_not_shown_and_that_is_said(tmp_path, needs):
    needs("userns")
    (tmp_path / "a.txt").write_text("hello\n")
    done = _without_a_file(tmp_path, "--", "grep", "-r", "hello", ".")
    assert done.returncode == 1
    assert "--work ." in done.stderr
    (tmp_path / "r.yaml").write_text(
        "apiVersion: remit/v1\nagent: command\nextends: binary\nprocess: {exec: ['false']}\n"
    )
    done = _without_a_file(tmp_path, "--remit", "r.yaml", "--", "false")
    assert done.returncode == 1
    assert "--work" not in done.stderr, "a remit's file refuses the option"


def test_a_remits_file_is_not_widened_from_the_command_line(tmp_path, needs):
    (tmp_path / "r.yaml").write_text("apiVersion: remit/v1\nagent: a\nextends: binary\n")
    done = _without_a_file(tmp_path, "--work", ".", "--remit", "r.yaml", "--", "true")
    assert done.returncode == 2
    assert "filesystem.work.from" in done.stderr


def test_an_input_that_is_not_there_is_told_by_check_and_by_run(run):
    remit = "extends: binary\nprocess: {exec: [cat]}\nfilesystem: {read: [./nowhere.csv]}\n"
    held = run(remit, ["cat", "/dev/null"])
    assert held.code == 2
    assert "nowhere.csv does not exist" in held.err
    command = [*REMIT, "check", "--json", "remit.yaml"]
    done = subprocess.run(command, cwd=run.folder, capture_output=True, text=True, check=True)
    assert "nowhere.csv" in json.loads(done.stdout)["warnings"][0]["message"]
