"""Names the concrete parts: from a remit's file and a command to something that can be run. The only place where the
pure rooms meet the disk."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from remit import __version__
from remit.compose.network import authority_of
from remit.compose.network import broker as _broker
from remit.errors import EXIT_NOT_FOUND, Denied, HostError, Interrupted, SetupError, UsageError
from remit.plan.compile import Compiled, Request
from remit.plan.compile import compile as compile_plan
from remit.plan.host import HostFacts
from remit.plan.prefix import Prefix
from remit.plan.template import Template
from remit.policy.model import WORK, Effective, Remit
from remit.sandbox import closure, host, inputs, masks
from remit.sandbox.closure.which import which
from remit.sandbox.serving import OpenNetwork

if TYPE_CHECKING:
    from remit.egress.authority import Authority

_OBSERVE = ("none", "exec+connect", "open")
"""From the least to the most."""


class Prepared(NamedTuple):
    """Everything that is known before anything starts."""

    effective: Effective
    facts: HostFacts
    template: Template
    compiled: Compiled
    authority: Authority | None = None


def cache_dir() -> str | None:
    """`$XDG_CACHE_HOME/remit`, made for the caller alone; None if that can't be had (then nothing is cached)."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    if not os.path.isabs(base):
        return None
    directory = os.path.join(base, "remit")
    return directory if closure.cache.usable(directory) else None


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def load_file(path: str) -> Effective:
    """The effective remit of a file. Raises `PolicyError`, or `UsageError` if the file can't be read."""
    try:
        text = _read(path)
    except OSError as error:
        hint = "`remit init` writes one to start from" if isinstance(error, FileNotFoundError) else None
        raise UsageError(f"{path}: {error.strerror}", hint=hint) from error
    return load_text(text, path, os.path.dirname(os.path.abspath(path)))


def load_text(text: str | bytes, source: str, directory: str) -> Effective:
    """Parsing and validating costs 60 ms of imports, so what was found good is remembered by its content."""
    raw = text.encode() if isinstance(text, str) else text
    home = os.path.expanduser("~")
    # The built-in bases and the schema are part of what decides, so of the key: they change with the installation.
    key = hashlib.sha256(repr((_installation(), raw, source, directory, home)).encode()).hexdigest()
    cached = cache_dir()
    file = os.path.join(cached, f"remit-{key[:32]}.json") if cached else None
    if file and (hit := _cached(file)):
        return hit
    from remit.policy.load import load

    others: dict[str, str] = {}

    def read(path: str) -> bytes:
        other = _read(path)
        others[path] = hashlib.sha256(other).hexdigest()
        return other

    effective = load(text, source, directory, read, home=home)
    if file:
        body = {
            "remit": effective.remit.as_document(),
            "digest": effective.digest,
            "sources": effective.sources,
            "widened": effective.widened,
            "others": others,
        }
        closure.cache.write(file, body)
    return effective


def _installation() -> tuple[str, tuple[tuple[str, int, int], ...]]:
    """Changes whenever those of Remit's own files do that say what a remit means."""
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    folders = (f"{here}/policy", f"{here}/policy/bases", f"{here}/contracts")
    files = sorted(
        (entry.path, entry.stat().st_size, entry.stat().st_mtime_ns)
        for folder in folders
        for entry in os.scandir(folder)
        if entry.is_file()
    )
    return __version__, tuple(files)


def _cached(file: str) -> Effective | None:
    body = closure.cache.read(file)
    if body is None:
        return None
    try:
        for path, digest in body["others"].items():
            if hashlib.sha256(_read(path)).hexdigest() != digest:
                return None
        remit = Remit.from_document(body["remit"])
        return Effective(remit, body["digest"], tuple(body["sources"]), tuple(body["widened"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


_USUAL_NAMES = ("python3", "python", "node", "npm", "npx")
"""What the python and node bases call their programs."""


def without_remit(
    argv: Sequence[str], cwd: str, base: str | None, work: str | None = None, keep: Sequence[str] = ()
) -> tuple[Effective, str, tuple[str, ...]]:
    """The remit of a command that has none: the strictest built-in base that can run it, with the program, and with the
    files that the command itself names as inputs. `work`: a directory to show, copied on write, as the work directory;
    `keep`: patterns of what to take out of it. Returns it with the base's name and those files."""
    from remit.policy.bases import strictest_for

    at = _on_host(argv[0])
    if at is None:
        raise Denied("process.exec", f"{argv[0]}: there is no such program on this host", exit_code=EXIT_NOT_FOUND)
    if base is None:
        base = strictest_for(argv[0], _is_static(os.path.abspath(at)))
    given = tuple(inputs.named_by(argv[1:], cwd))
    if work is not None and _lies_in(cwd, cwd, work):
        given = tuple(item for item in given if not _lies_in(item, cwd, work))
    elif work is not None:
        # The program starts in the work directory, so there its words are looked for; not below `work` on the host.
        given = tuple(_by_its_word(item, cwd) for item in given)
    document: dict[str, Any] = {"apiVersion": "remit/v1", "agent": "command", "extends": base}
    program = os.path.abspath(at) if "/" in argv[0] else argv[0]
    if base == "static-binary" and not _is_static(os.path.abspath(at)):
        raise Denied("process.exec", f"{argv[0]} is no static binary", hint="--base binary holds any one program")
    if base in ("binary", "static-binary"):
        document["process"] = {"exec": [program]}
    elif _is_interpreter(program, base):
        # python3.12, or an interpreter by its path: that one, instead of the base's.
        beside = ["/sbin/ldconfig?"] if base == "python" else []
        document["process"] = {"exec": [program, *beside]}
        document["unsafe_widen"] = ["process.exec"]
    filesystem = ({"read": list(given)} if given else {}) | ({"work": {"from": work}} if work is not None else {})
    if filesystem:
        document["filesystem"] = filesystem
    if keep:
        document["state"] = {"keep": list(keep)}
    named = tuple(item if isinstance(item, str) else item["from"] for item in given)
    text = json.dumps(document, ensure_ascii=False)
    return load_text(text, f"built-in {base}", work if work is not None else cwd), base, named


def _is_interpreter(program: str, base: str) -> bool:
    """Another name of what the base is for: python3.12, or an interpreter by its path. What else a base does not grant
    is not granted by asking for it."""
    name = os.path.basename(program)
    if program in _USUAL_NAMES:
        return False
    if base == "python":
        return name.removeprefix("python").replace(".", "").isdecimal() or name == "python"
    return base == "node" and name in ("node", "nodejs", "npm", "npx")


def _by_its_word(given: str | dict[str, str], cwd: str) -> str | dict[str, str]:
    if isinstance(given, dict) or os.path.isabs(given):
        return given
    return {"from": os.path.normpath(os.path.join(cwd, given)), "to": os.path.normpath(os.path.join(WORK, given))}


def _lies_in(given: str | dict[str, str], cwd: str, work: str) -> bool:
    path = os.path.normpath(os.path.join(cwd, given if isinstance(given, str) else given["from"]))
    return path == work or path.startswith(work.rstrip("/") + "/")


def _on_host(name: str) -> str | None:
    """Where the host has the program `name`, by path or on PATH."""
    if "/" in name:
        return name if os.path.exists(name) else None
    return which(name, os.environ.get("PATH", os.defpath))


def _is_static(path: str) -> bool | None:
    """Only the program headers are looked at: the ELF library costs 50 ms to import, and every start asks."""
    segments = _elf_segments(path)
    return None if segments is None else not segments & {_PT_INTERP, _PT_DYNAMIC}


_PT_DYNAMIC, _PT_INTERP = 2, 3


def _elf_segments(path: str) -> set[int] | None:
    """The types of the segments of a 64-bit little-endian ELF file; None for anything else."""
    try:
        with open(path, "rb") as file:
            head = file.read(64)
            if head[:6] != b"\x7fELF\x02\x01":
                return None
            (at,) = struct.unpack_from("<Q", head, 32)
            size, count = struct.unpack_from("<HH", head, 54)
            file.seek(at)
            table = file.read(size * count)
            return {struct.unpack_from("<I", table, i * size)[0] for i in range(count)}
    except (OSError, struct.error):
        return None


def template_of(remit: Remit, cwd: str, progress: Callable[[str], None] | None = None) -> Template:
    """The closure of the remit's programs on this host."""
    return closure.build(
        remit.process.exec,
        path=os.environ.get("PATH", os.defpath),
        cwd=cwd,
        env=os.environ,
        cache_dir=cache_dir(),
        progress=progress,
    )


def _masked_programs(remit: Remit, template: Template, directory: str) -> tuple[str, ...]:
    """Remembered: a runtime has ten thousand files, and a template changes when one of them does."""
    if not remit.filesystem.deny:
        return ()
    key = hashlib.sha256(
        repr((_installation(), template.digest, remit.filesystem.deny, directory)).encode()
    ).hexdigest()
    cached = cache_dir()
    file = os.path.join(cached, f"masks-{key[:32]}.json") if cached else None
    known = closure.cache.read(file) if file else None
    if known is not None:
        return tuple(known["masked"])
    found = tuple(masks.of_programs(remit, template, directory))
    if file:
        closure.cache.write(file, {"masked": found})
    return found


def prepare(
    effective: Effective,
    argv: Sequence[str],
    *,
    directory: str,
    tty: bool = False,
    accept_tier: str | None = None,
    progress: Callable[[str], None] | None = None,
    prefix: Prefix | None = None,
    installing: bool = False,
    observe: str | None = None,
) -> Prepared:
    """`directory`: where /workspace stands for (the remit's own, or the current one). `observe`: more than the remit
    asks to be recorded. Raises any `RemitError`."""
    remit = effective.remit
    if observe is not None and _OBSERVE.index(observe) > _OBSERVE.index(remit.observe):
        remit = remit._replace(observe=observe)
    facts = host.read(make=True)
    template = template_of(remit, directory, progress)
    kinds = inputs.kinds(remit, directory)
    at = _on_host(argv[0])
    authority, trust = (None, None) if installing else authority_of(remit, template)
    request = Request(
        sandbox=f"rmt-{os.urandom(8).hex()}",
        argv=tuple(argv),
        cwd=_cwd_inside(remit, directory),
        env=os.environ,
        tty=tty,
        inputs=kinds,
        masked=(*masks.of_inputs(remit, kinds), *_masked_programs(remit, template, directory)),
        on_path=at is not None,
        real=os.path.realpath(at) if at else "",
        at=os.path.abspath(argv[0]) if at and "/" in argv[0] else "",
        accept_tier=accept_tier,
        prefix=prefix,
        installing=installing,
        trust=trust,
    )
    return Prepared(effective, facts, template, compile_plan(remit, facts, template, request), authority)


def broker(prepared: Prepared) -> OpenNetwork | None:
    """What serves the network of a plan that has one."""
    return _broker(prepared.compiled, prepared.effective.remit, prepared.authority)


def installed(
    effective: Effective,
    *,
    directory: str,
    accept_tier: str | None,
    progress: Callable[[str], None] | None,
    begin: Callable[[str], None],
) -> Prefix:
    """The sealed prefix of `process.install`, filled by running the command in a sandbox of its own if it is not
    there or no longer what was hashed. `begin` hears the command before it runs. Raises `SetupError` if it fails."""
    from remit.sandbox import prefix, staging
    from remit.sandbox.run import run as run_sandbox
    from remit.sandbox.serving import Listener, Outcome

    cached = cache_dir()
    if cached is None:
        message = "there is no cache directory to keep installed dependencies in"
        raise HostError("prefix", message, hint="set XDG_CACHE_HOME")
    argv = effective.remit.process.install
    template = template_of(effective.remit, directory, progress)
    stamps = [inputs.stamps(os.path.join(directory, word)) for word in argv]
    key = hashlib.sha256(repr((effective.digest, template.digest, stamps)).encode()).hexdigest()[:32]
    os.makedirs(f"{cached}/prefixes", mode=0o700, exist_ok=True)
    store = f"{cached}/prefixes/{key}"
    found = prefix.find(store)
    if found is not None:
        return found
    if os.path.exists(store):
        # Not what was hashed any more: out of the way, and not trusted again.
        os.rename(store, f"{store}.{os.urandom(4).hex()}.stale")
    begin(" ".join(argv))
    prepared = prepare(
        effective, argv, directory=directory, accept_tier=accept_tier, progress=progress, installing=True
    )

    def take(root: int, outcome: Outcome) -> None:
        if outcome.exit == 0:
            prefix.take(root, store, effective.remit.limits.disk)
        staging.sweep(os.path.dirname(store))

    quiet = Listener(lambda event: None, lambda attempt: None)
    outcome = run_sandbox(effective, prepared.compiled, take, quiet, timings=False)
    filled = prefix.find(store)
    if filled is None and outcome.exit in (128 + signal.SIGINT, 128 + signal.SIGTERM):
        raise Interrupted("process.install was interrupted: nothing of it is kept", outcome.exit)
    if filled is None:
        why = outcome.keep_error or f"it ended with {outcome.exit} ({outcome.reason})"
        raise SetupError(
            "install",
            f"process.install failed: {why}: {' '.join(argv)}",
            hint="it runs with the remit's own inputs and limits and without a network: grant a folder of wheels or "
            "packages with filesystem.read, and raise limits.disk or limits.processes if they are short",
        )
    return filled


def _cwd_inside(remit: Remit, directory: str) -> str:
    """Where the command starts: the place inside that stands for the current directory, if there is one."""
    cwd = os.getcwd()
    if not cwd.startswith(directory + "/"):
        return WORK
    path = f"{WORK}/{os.path.relpath(cwd, directory)}"
    below = any(
        g.to == path or g.to.startswith(path + "/") or path.startswith(g.to + "/") for g in remit.filesystem.read
    )
    whole = remit.filesystem.work_from
    return path if below or (whole and cwd.startswith(whole + "/") and directory == whole) else WORK
