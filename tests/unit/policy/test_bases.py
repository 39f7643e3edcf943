import itertools

import pytest

from remit.policy import bases
from tests.unit.policy.remits import loaded


@pytest.mark.parametrize("name", bases.names())
def test_every_base_loads_gives_its_reasons_and_grants_no_way_out(name):
    remit = loaded(f"extends: {name}\n").remit
    assert len(bases.reasons(name)) > 100
    assert remit.network == remit.credentials == ()
    assert remit.filesystem.read == ()
    assert remit.state.keep == ()
    assert remit.process.env_pass == ()


@pytest.mark.parametrize("name", bases.LANGUAGES)
def test_a_language_leaves_inputs_state_and_limits_to_the_remit(name):
    effective = loaded(
        f"extends: {name}\nfilesystem: {{read: [/data], work: {{from: ./repo}}}}\nstate: {{keep: ['**']}}\n"
        "limits: {memory: 64GiB, wall: 24h}\n"
    )
    assert effective.widened == ()


@pytest.mark.parametrize("name", ["binary", "static-binary"])
def test_a_binary_base_lets_the_child_name_its_program(name):
    assert loaded(f"extends: {name}\nprocess: {{exec: [/opt/tool]}}\n").remit.process.exec == ("/opt/tool",)


@pytest.mark.parametrize(("language", "kind"), [*itertools.product(("python", "node", "shell-with-git"), bases.KINDS)])
def test_a_language_and_a_kind_together_still_run_something(language, kind):
    remit = loaded(f"extends: [{language}, {kind}]\n").remit
    assert set(remit.process.exec) & {"python3", "python3?", "node", "sh"}


def test_regulated_data_stays_on_hosts_that_enforce_everything():
    remit = loaded("extends: [python, regulated, multi-tenant]\n").remit
    assert remit.least_tier == "full"
    assert remit.labels == ("regulated", "untrusted")
    assert remit.observe == "open"
    assert remit.limits.memory <= 2 * 1024**3


def test_a_browser_gets_memory_files_beside_a_language_and_a_retrieval_agent_does_not():
    assert loaded("extends: [python, browser]\n").remit.process.memfd
    assert not loaded("extends: [python, retrieval]\n").remit.process.memfd


@pytest.mark.parametrize(
    ("program", "static", "base"),
    [
        ("python3", None, "python"),
        ("/usr/bin/python3.12", False, "python"),
        ("node", False, "node"),
        ("npx", None, "node"),
        ("git", False, "shell-with-git"),
        ("/bin/sh", None, "shell-with-git"),
        ("sort", False, "binary"),
        ("mytool", True, "static-binary"),
        ("/opt/mytool", False, "binary"),
        ("mytool", None, "binary"),
        ("pythonista/mytool", True, "static-binary"),
    ],
)
def test_the_strictest_base_that_can_run_a_program(program, static, base):
    assert bases.strictest_for(program, static) == base


def test_what_starts_others_is_granted_by_the_base_that_it_gets():
    granted = loaded("extends: shell-with-git\n").remit.process.exec
    assert set(bases.STARTERS) <= {entry.removesuffix("?") for entry in granted}


def test_bases_with_programs_are_known_as_such():
    assert {name for name in bases.names() if loaded(f"extends: {name}\n").remit.process.exec} == set(
        bases.WITH_PROGRAMS
    )
