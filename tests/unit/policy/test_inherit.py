import pytest

from remit.errors import PolicyError
from tests.unit.policy.remits import HEAD, loaded, problems, said

BASE = """apiVersion: remit/v1
least_tier: delegated
labels: [regulated]
process: {exec: [python3, git], work_code: install, memfd: false, env: {set: {A: base, B: base}, pass: [TERM]}}
filesystem:
  read: [{from: /data, to: /workspace/data}]
  work: {from: /src/repo}
  deny: ["**/.env"]
network: {allow: []}
tools: {allow: []}
credentials: {use: []}
state: {keep: ["out/**", report.md], to: /srv/kept}
limits: {cpu: 2, cpu_time: 1m, memory: 1GiB, processes: 50, wall: 10m, disk: 1GiB, files: 1000, output: 1MiB,
  open_files: 100}
observe: exec+connect
"""
FILES = {"/src/job/base.yaml": BASE}


def over(body):
    return loaded("extends: ./base.yaml\n" + body, FILES)


def faults(body):
    return [place.split(":")[2] for place in problems(HEAD + "extends: ./base.yaml\n" + body, FILES)]


NARROWER_AND_WIDER = [
    ("process.exec", "process: {exec: [git]}", "process: {exec: [git, bash]}"),
    ("process.exec", "process: {exec: ['python3?']}", "process: {exec: [/usr/bin/python3]}"),
    ("process.exec", "process: {exec: []}", "process: {exec: [ssh]}"),
    ("process.work_code", "process: {work_code: none}", "process: {work_code: run}"),
    ("process.memfd", "process: {memfd: false}", "process: {memfd: true}"),
    ("process.env.pass", "process: {env: {pass: []}}", "process: {env: {pass: [TERM, HOME]}}"),
    ("filesystem.read", "filesystem: {read: [{from: /data/a, to: /workspace/data/a}]}", "filesystem: {read: [/other]}"),
    ("filesystem.read", "filesystem: {read: []}", "filesystem: {read: [{from: /data/a, to: /workspace/b}]}"),
    ("filesystem.read", "filesystem: {read: []}", "filesystem: {read: [{from: /data2, to: /workspace/data2}]}"),
    ("filesystem.work.from", "filesystem: {work: {from: /src/repo}}", "filesystem: {work: {from: /src}}"),
    ("state.keep", "state: {keep: ['out/a/**', report.md]}", "state: {keep: ['**']}"),
    ("state.keep", "state: {keep: ['out/*.md']}", "state: {keep: ['out2/x']}"),
    ("state.to", "state: {to: /srv/kept/a}", "state: {to: /srv/kept2}"),
    ("least_tier", "least_tier: full", "least_tier: partial"),
    ("observe", "observe: open", "observe: none"),
    ("limits.cpu", "limits: {cpu: 2.0}", "limits: {cpu: 2.1}"),
    ("limits.cpu_time", "limits: {cpu_time: 60s}", "limits: {cpu_time: 61s}"),
    ("limits.memory", "limits: {memory: 1024MiB}", "limits: {memory: 1073741825}"),
    ("limits.processes", "limits: {processes: 50}", "limits: {processes: 51}"),
    ("limits.wall", "limits: {wall: 600s}", "limits: {wall: 601s}"),
    ("limits.disk", "limits: {disk: 1MiB}", "limits: {disk: 2GiB}"),
    ("limits.files", "limits: {files: 1}", "limits: {files: 1001}"),
    ("limits.output", "limits: {output: 1}", "limits: {output: 2MiB}"),
    ("limits.open_files", "limits: {open_files: 8}", "limits: {open_files: 101}"),
]


@pytest.mark.parametrize(("field", "narrower", "wider"), NARROWER_AND_WIDER)
def test_a_child_may_narrow_and_must_say_by_name_where_it_widens(field, narrower, wider):
    assert over(narrower).widened == ()
    assert faults(wider) == ["E_WIDENS"]
    assert over(f"{wider}\nunsafe_widen: [{field}]\n").widened == (field,)
    assert faults(f"{narrower}\nunsafe_widen: [{field}]\n") == ["E_UNUSED_WIDEN"]


def test_a_word_for_one_field_is_no_word_for_another():
    assert faults("process: {memfd: true, exec: [ssh]}\nunsafe_widen: [process.memfd]\n") == ["E_WIDENS"]


def test_a_field_that_the_base_leaves_out_is_open():
    files = {"/src/job/base.yaml": "apiVersion: remit/v1\nprocess: {exec: [python3]}\n"}
    remit = loaded("extends: ./base.yaml\nlimits: {memory: 64GiB}\nprocess: {memfd: true}\n", files).remit
    assert remit.process.exec == ("python3",)
    assert remit.process.memfd
    assert remit.limits.memory == 64 * 1024**3


def test_what_the_child_leaves_out_is_the_bases():
    remit = over("").remit
    assert remit.process.exec == ("python3", "git")
    assert remit.filesystem.work_from == "/src/repo"
    assert remit.state.to == "/srv/kept"
    assert remit.limits.cpu_time_ms == 60_000


def test_restrictions_add_up_and_can_not_be_taken_away():
    remit = over("filesystem: {deny: ['**/secret']}\nlabels: [untrusted]\n").remit
    assert remit.filesystem.deny == ("**/.env", "**/secret")
    assert remit.labels == ("regulated", "untrusted")
    assert over("filesystem: {deny: []}\nlabels: []\n").remit.filesystem.deny == ("**/.env",)


def test_the_childs_fixed_values_go_before_the_bases():
    assert over("process: {env: {set: {B: child}}}").remit.process.env_set == {"A": "base", "B": "child"}


def test_several_bases_grant_what_all_of_them_grant():
    files = {
        "/src/job/a.yaml": "apiVersion: remit/v1\nleast_tier: partial\nlabels: [untrusted]\nobserve: none\n"
        "process: {exec: [python3, git, sh], work_code: run, memfd: true, env: {pass: [A, B]}}\n"
        "filesystem: {read: [/data], work: {from: /x}, deny: [a]}\nstate: {keep: ['**'], to: /k}\n"
        "limits: {memory: 1GiB, wall: 1h}\n",
        "/src/job/b.yaml": "apiVersion: remit/v1\nleast_tier: full\nlabels: [regulated]\nobserve: open\n"
        "process: {exec: [git, 'sh?', ls], work_code: install, memfd: false, env: {pass: [B, C]}}\n"
        "filesystem: {read: [/data/x, /other], work: {from: /y}, deny: [b]}\nstate: {keep: [out/a], to: /k/l}\n"
        "limits: {memory: 2GiB, files: 5}\n",
    }
    for order in ("[./a.yaml, ./b.yaml]", "[./b.yaml, ./a.yaml]"):
        remit = loaded(f"extends: {order}\n", files).remit
        assert remit.least_tier == "full"
        assert remit.labels == ("regulated", "untrusted")
        assert remit.observe == "open"
        assert {entry.removesuffix("?") for entry in remit.process.exec} == {"git", "sh"}
        assert len(remit.process.exec) == 2
        assert (remit.process.work_code, remit.process.memfd, remit.process.env_pass) == ("install", False, ("B",))
        assert [grant.source for grant in remit.filesystem.read] == ["/data/x"]
        assert remit.filesystem.work_from is None
        assert set(remit.filesystem.deny) == {"a", "b"}
        assert (remit.state.keep, remit.state.to) == (("out/a",), "/k/l")
        assert (remit.limits.memory, remit.limits.wall_ms, remit.limits.files) == (1024**3, 3_600_000, 5)


def test_bases_that_keep_in_different_places_can_not_meet():
    files = {f"/src/job/{n}.yaml": f"apiVersion: remit/v1\nstate: {{to: /{n}}}\n" for n in "ab"}
    assert problems(HEAD + "extends: [./a.yaml, ./b.yaml]\n", files) == ["3:21:E_CONFLICT"]


def test_a_fault_in_a_base_is_told_at_its_place_in_the_base():
    message = said("extends: ./base.yaml\n", {"/src/job/base.yaml": "apiVersion: remit/v1\nproces: {}\n"})
    assert message.startswith("/src/job/base.yaml:2:1: unknown key 'proces'")


def test_relative_paths_start_from_the_document_that_says_them():
    files = {
        "/src/lib/base.yaml": "apiVersion: remit/v1\nfilesystem: {read: [./docs, ../job/x]}\nstate: {to: ./kept}\n",
    }
    effective = loaded("extends: ../lib/base.yaml\n", files)
    assert [tuple(grant) for grant in effective.remit.filesystem.read] == [
        ("/src/lib/docs", "/workspace/docs"),
        ("/src/job/x", "/src/job/x"),
    ]
    assert effective.remit.state.to == "/src/lib/kept"
    assert effective.sources == ("remit.yaml", "/src/lib/base.yaml")


def test_a_cycle_is_told_with_its_steps():
    files = {
        "/src/job/b.yaml": "apiVersion: remit/v1\nextends: ./c.yaml\n",
        "/src/job/c.yaml": "apiVersion: remit/v1\nextends: ./b.yaml\n",
    }
    message = said("extends: ./b.yaml\n", files)
    assert message.startswith(
        "/src/job/c.yaml:2:10: /src/job/b.yaml extends itself: /src/job/b.yaml -> /src/job/c.yaml -> /src/job/b.yaml"
    )


def test_the_longest_allowed_chain_loads_and_one_more_does_not():
    chain = {f"/src/job/{i}.yaml": f"apiVersion: remit/v1\nextends: ./{i + 1}.yaml\n" for i in range(1, 9)}
    assert problems(HEAD + "extends: ./1.yaml\n", {**chain, "/src/job/7.yaml": "apiVersion: remit/v1\n"}) == []
    assert problems(HEAD + "extends: ./1.yaml\n", chain) == ["2:10:E_CHAIN"]


def test_bases_that_multiply_at_every_step_are_refused():
    many = "[" + ", ".join(f"./{i}.yaml" for i in range(10)) + "]"
    files = {f"/src/job/{i}.yaml": f"apiVersion: remit/v1\nextends: {many}\n" for i in range(10)}
    assert problems(HEAD + f"extends: {many}\n", files)[0].endswith(("E_CYCLE", "E_CHAIN"))
    layers = {}
    for layer in range(1, 9):
        below = ", ".join(f"./{layer + 1}{i}.yaml" for i in range(9))
        layers |= {f"/src/job/{layer}{i}.yaml": f"apiVersion: remit/v1\nextends: [{below}]\n" for i in range(9)}
    assert problems(HEAD + "extends: ./10.yaml\n", layers)[0].endswith("E_CHAIN")


def test_a_base_that_can_not_be_read_is_a_located_fault():
    assert "No such file or directory" in said("extends: ./none.yaml\n")


def test_a_widening_in_a_base_is_on_record_in_what_extends_it():
    files = {
        "/src/job/base.yaml": "apiVersion: remit/v1\nextends: python\nprocess: {exec: [python3, git]}\n"
        "unsafe_widen: [process.exec]\n"
    }
    effective = loaded("extends: ./base.yaml\nprocess: {exec: [git]}\n", files)
    assert effective.widened == ("process.exec",)
    assert effective.remit.process.exec == ("git",)


def test_the_hint_names_all_fields_that_the_line_must_have():
    message = said("extends: python\nprocess: {exec: [git], work_code: run}\nunsafe_widen: [process.exec]\n")
    assert "`unsafe_widen: [process.exec, process.work_code]`" in message
    with pytest.raises(PolicyError) as caught:
        loaded("extends: python\nprocess: {work_code: run}\n")
    (problem,) = caught.value.problems
    assert (problem.line, problem.column, problem.code) == (4, 22, "E_WIDENS")
    assert problem.message == "process.work_code: run is more than its base built-in python grants, which says install"
