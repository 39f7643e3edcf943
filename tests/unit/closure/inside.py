"""What the tests of this room share: a template, what a path in it leads to, and `ldd` as the second opinion."""

from __future__ import annotations

import os
import posixpath
import re
import shutil
import struct
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from remit.plan.template import Template
from remit.sandbox import closure

PATH = os.environ.get("PATH", os.defpath)
NO_ENV: Mapping[str, str] = {"HOME": "/nonexistent"}


def template(*entries: str, path: str = PATH, cwd: str = "/", **options: Any) -> Template:
    """Without a cache unless one is given."""
    options = {"env": NO_ENV, "cache_dir": None, **options}
    return closure.build(entries, path=path, cwd=cwd, **options)


def leads_to(made: Template, path: str) -> str | None:
    """The file or directory of the host that `path` is inside, following the links that are made; None if nothing is
    there. Links inside of trees are the host's own."""
    links = {link.inside: link.target for link in made.links}
    rest, done = path.split("/")[::-1], ""
    for _ in range(400):
        if not rest:
            return _bound(made, done)
        part = rest.pop()
        if part in ("", "."):
            continue
        if part == "..":
            done = posixpath.dirname(done).rstrip("/")
            continue
        here = f"{done}/{part}"
        target = links.get(here)
        if target is None and _in_tree(made, here) and Path(here).is_symlink():
            target = os.readlink(here)
        if target is None:
            done = here
            continue
        rest += target.split("/")[::-1]
        if target.startswith("/"):
            done = ""
    raise AssertionError(f"{path}: a loop of links inside")


def _in_tree(made: Template, path: str) -> bool:
    return any(path.startswith(tree.inside + "/") for tree in made.trees)


def _places(made: Template) -> list[str]:
    return [f.inside for f in made.files] + [t.inside for t in made.trees] + [link.inside for link in made.links]


def _bound(made: Template, path: str) -> str | None:
    places = _places(made)
    if path in places or any(place.startswith(path + "/") for place in places):
        return path
    return path if _in_tree(made, path) and Path(path).exists() else None


def ldd(program: str) -> set[str]:
    """The libraries that the loader itself finds for `program`, the loader included; empty for a static one."""
    done = subprocess.run(["ldd", program], capture_output=True, text=True, check=False, env={"LC_ALL": "C"})
    found = re.findall(r"(?:=> )?(/\S+) \(0x", done.stdout)
    assert "not found" not in done.stdout
    return set(found)


def assert_loads(made: Template, program: str) -> None:
    """Everything that the loader would map for `program` is inside, under the name by which it would look."""
    for library in ldd(program):
        assert leads_to(made, library) == os.path.realpath(library), library


def assert_whole(made: Template) -> None:
    """What holds of every template."""
    for link in made.links:
        assert leads_to(made, link.inside) is not None, f"{link} leads nowhere"
        assert not any(link.inside.startswith(other.inside + "/") for other in made.links), f"{link} is below a link"
    for entry, path in made.programs.items():
        real = leads_to(made, path)
        assert real is not None, entry
        assert next(file for file in made.files if file.inside == real).role == "program", entry
    insides = _places(made)
    assert len(insides) == len(set(insides))


def role(made: Template, path: str) -> str | None:
    real = leads_to(made, path)
    return next((file.role for file in made.files if file.inside == real), None)


def tree_of(made: Template, path: str) -> str | None:
    """The tree that holds `path`."""
    return next((t.inside for t in made.trees if path == t.inside or path.startswith(t.inside + "/")), None)


def static_program(place: Path) -> Path:
    """The smallest program: x86-64 ELF without loader or libraries, that exits with 0."""
    code = b"\x31\xff\x6a\x3c\x58\x0f\x05"  # xor edi,edi; push 60; pop rax; syscall
    base, at = 0x400000, 64 + 56
    head = b"\x7fELF\x02\x01\x01" + bytes(9)
    head += struct.pack("<HHIQQQIHHHHHH", 2, 62, 1, base + at, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    size = at + len(code)
    head += struct.pack("<IIQQQQQQ", 1, 5, 0, base, base, size, size, 0x1000)
    return program(place, head + code)


def program(place: Path, content: str | bytes, mode: int = 0o755) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content.encode() if isinstance(content, str) else content)
    place.chmod(mode)
    return place


def have(name: str) -> str | None:
    """The path of a program of the host that is no version manager's script."""
    found = shutil.which(name)
    if found is None or Path(found).read_bytes()[:2] == b"#!":
        return None
    return found


Builder = Callable[..., Template]
