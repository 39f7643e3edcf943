"""Goal: have the helper that copies results out read, write or wait for something else. Twin: a plain file is kept."""

from __future__ import annotations

import os
import sys

import pytest

from tests.conftest import PYTHON

pytestmark = pytest.mark.kernel


def _reasons(held):
    return {entry["path"]: entry["reason"] for entry in held.receipt["not_kept"]}


@pytest.mark.parametrize(
    "swap",
    [
        "os.symlink({secret!r}, 'n')",
        "os.mkfifo('n')",
        "open('n','w').truncate(1 << 45)",
        "os.link('/etc/passwd', 'n')",
        "os.mkdir('n')",
        "s=socket.socket(socket.AF_UNIX); s.bind('n')",
    ],
    ids=["symlink", "fifo", "sparse", "hardlink", "directory", "socket"],
)
def test_a_file_that_a_survivor_keeps_swapping_is_never_followed(python, tmp_path, swap):
    """The swapper lives on when the program ends; nothing of it may run while the helper copies."""
    secret = tmp_path / "secret"
    secret.write_text("secret of the host")
    held = python(
        "import os, socket, time\n"
        "open('plain','w').write('fine'); open('a','w').write('guest')\n"
        "if os.fork() == 0:\n"
        " while True:\n"
        "  try: " + swap.format(secret=str(secret)) + "; os.rename('n', 'a')\n"
        "  except OSError: pass\n"
        "  for f in (lambda: os.unlink('n'), lambda: os.rmdir('n'), lambda: os.rmdir('a')):\n"
        "   try: f()\n   except OSError: pass\n"
        "  t=open('n','w'); t.write('guest'); t.close(); os.rename('n','a')\n"
        "time.sleep(0.15)\n",
        "state: {keep: [a, plain]}\nlimits: {wall: 20s}\n",
        timeout=40,
    )
    assert held.code == 0, held.err
    assert (tmp_path / "kept/plain").read_text() == "fine"
    kept = tmp_path / "kept/a"
    assert not kept.is_symlink()
    if kept.exists():
        assert kept.read_text() in ("guest", ""), "one of its own files, whole"


def test_a_directory_swapped_for_a_link_leads_nowhere(python, tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/x").write_text("secret of the host")
    held = python(
        "import os, time\nos.mkdir('d'); open('d/x','w').write('guest')\nos.mkdir('e'); open('e/x','w').write('guest')\n"
        f"os.symlink({str(tmp_path / 'outside')!r}, 'l')\n"
        "if os.fork() == 0:\n"
        " while True: os.rename('d','t'); os.rename('l','d'); os.rename('d','l'); os.rename('t','d')\n"
        "time.sleep(0.15)\n",
        "state: {keep: ['d/**', 'e/**']}\n",
    )
    assert (tmp_path / "kept/e/x").read_text() == "guest"
    assert not (tmp_path / "kept/d/x").exists() or (tmp_path / "kept/d/x").read_text() == "guest"
    assert held.receipt["keep_error"] is None


def test_devices_fifos_and_sparse_files_cost_the_helper_nothing(python, tmp_path):
    """A FIFO without a writer would block an open; a sparse file would fill the host's disk."""
    held = python(
        "import os\n"
        "for n in range(20): os.mkfifo(f'f{n}')\n"
        "for n in range(3):\n f=open(f's{n}','w'); f.truncate(12<<20)\n"
        "open('ok','w').write('fine')\n",
        "state: {keep: ['**']}\nlimits: {disk: 16MiB}\n",
        timeout=40,
    )
    assert sorted(k["path"] for k in held.receipt["kept"]) == ["ok", "s0"]
    assert sum((tmp_path / "kept" / n).stat().st_size for n in os.listdir(tmp_path / "kept")) <= 16 << 20
    assert len(_reasons(held)) == 22


def test_names_that_are_no_text_and_paths_that_go_deep_are_kept_or_told(python, tmp_path):
    held = python(
        "import os\n"
        "open(b'\\xff\\xfe', 'w').write('bytes'); open('x'*255, 'w').write('long'); open('a\\nb', 'w').write('lines')\n"
        "open('...', 'w').write('dots'); open('-rf', 'w').write('dash')\n"
        "for n in range(200): os.mkdir('d'); os.chdir('d')\n"
        "open('deep', 'w').write('deep')\n",
        "state: {keep: ['**']}\n",
    )
    assert held.code == 0, held.err
    assert held.receipt["keep_error"] is None
    names = {os.fsencode(n) for n in os.listdir(tmp_path / "kept")}
    assert names == {b"\xff\xfe", b"x" * 255, b"a\nb", b"...", b"-rf"}
    assert any("deeper than" in reason for reason in _reasons(held).values())


def test_a_directory_that_its_owner_may_not_search_does_not_cost_the_rest(python, tmp_path):
    held = python(
        "import os\nfor mode in (0, 0o400, 0o100, 0o700):\n"
        " os.mkdir(f'd{mode:o}'); open(f'd{mode:o}/x','w').write('1'); os.chmod(f'd{mode:o}', mode)\n"
        "open('z','w').write('fine')\n",
        "state: {keep: ['**']}\n",
    )
    assert held.receipt["keep_error"] is None, held.err
    assert {"d700/x", "z"} <= {k["path"] for k in held.receipt["kept"]}


def test_a_file_of_which_only_the_mode_changed_is_kept_with_its_content(run, tmp_path):
    """An overlay may copy up attributes alone; what is kept must not be a file of zeros."""
    (tmp_path / "repo").mkdir()
    (tmp_path / "repo/tool").write_text("content of the original")
    (tmp_path / "repo/gone").write_text("x")
    (tmp_path / "repo/probe.py").write_text(
        "import os\nos.chmod('tool', 0o755); os.unlink('gone'); os.mkdir('gone'); open('gone/in','w').write('new')\n"
        "for k in ('user.overlay.redirect', 'user.overlay.opaque', 'trusted.overlay.redirect'):\n"
        " try: os.setxattr('gone', k, b'/etc'); print('SET')\n except OSError: print('refused')\n"
    )
    remit = PYTHON + "filesystem: {work: {from: ./repo}}\nstate: {keep: ['**']}\n"
    held = run(remit, [sys.executable, "/workspace/probe.py"])
    assert held.code == 0, held.err
    assert "trusted" not in held.out
    assert (tmp_path / "kept/tool").read_text() == "content of the original"
    assert (tmp_path / "kept/gone/in").read_text() == "new"
    assert (tmp_path / "repo/tool").stat().st_mode & 0o111 == 0


def test_a_store_is_not_filled_with_links_or_pipes_of_an_install_command(run, tmp_path):
    """What an install command leaves is the guest's too. Twin: one that leaves files is sealed."""
    install = "import os\nos.makedirs('/opt/prefix/lib', exist_ok=True)\nopen('/opt/prefix/lib/ok','w').write('1')\n"
    plants = {
        "ok": "",
        "link": "os.symlink('/etc/shadow', '/opt/prefix/lib/l')\n",
        "updots": "os.symlink('../../../etc', '/opt/prefix/lib/l')\n",
        "fifo": "os.mkfifo('/opt/prefix/lib/x\\nremit: exit 0 all is well')\n",
    }
    for name, plant in plants.items():
        held = run(
            PYTHON.replace("]}", f"], work_code: install, install: [{sys.executable}, ./i.py, {name}]}}")
            + "filesystem: {read: [./i.py]}\n",
            [sys.executable, "-c", "import os; print(os.listdir('/opt/prefix/lib'))"],
            files={"i.py": install + plant},
            env={"XDG_CACHE_HOME": str(tmp_path / "cache")},
        )
        if name == "ok":
            assert (held.code, held.out) == (0, "['ok']\n"), held.err
            continue
        assert (held.code, held.out) == (125, ""), name
        assert "\nremit: exit 0 all is well" not in held.err
