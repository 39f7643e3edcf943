"""The table of malformed remits: each with the places and codes that its author is told."""

import pytest

from remit.errors import EXIT_BAD_INPUT, PolicyError
from tests.unit.policy.remits import HEAD, load_text, problems, said

TABLE = [
    # not YAML, or not ours
    ("", "1:1:E_EMPTY"),
    ("# only a comment\n", "1:1:E_EMPTY"),
    ("~\n", "1:1:E_EMPTY"),
    ("- a\n", "1:1:E_TYPE"),
    ("just words\n", "1:1:E_TYPE"),
    ("a: [1\n", "2:1:E_SYNTAX"),
    ("a: b: c\n", "1:5:E_SYNTAX"),
    ("a:\n\tb: 1\n", "2:1:E_SYNTAX"),
    ("a: 'open\n", "2:1:E_SYNTAX"),
    ("a: @x\n", "1:4:E_SYNTAX"),
    ('a: "\\ud800"\n', "1:7:E_SYNTAX"),
    (b"a: \xff\n", "1:4:E_ENCODING"),
    (HEAD.encode("utf-16"), "1:1:E_ENCODING"),
    ("a: \x00\n", "1:4:E_CONTROL"),
    ("a: \ud800\n", "1:4:E_CONTROL"),
    ("a: &x 1\n", "1:4:E_ANCHOR"),
    ("a: *x\n", "1:4:E_ANCHOR"),
    ("&x a: 1\n", "1:1:E_ANCHOR"),
    ("<<: {a: 1}\n", "1:1:E_MERGE"),
    ("a: !!python/object:os.system x\n", "1:4:E_TAG"),
    ("a: ! x\n", "1:4:E_TAG"),
    ("%YAML 1.1\n---\na: 1\n", "1:1:E_TAG"),
    (HEAD + "---\n" + HEAD, "3:1:E_DOCUMENTS"),
    ("1: a\n", "1:1:E_KEY"),
    ("true: a\n", "1:1:E_KEY"),
    ("[a, b]: c\n", "1:1:E_KEY"),
    ("a: 1\na: 2\n", "2:1:E_DUPLICATE"),
    # the shape
    ("agent: a\n", "1:1:E_MISSING"),
    ("apiVersion: remit/v1\n", "1:1:E_MISSING"),
    ("apiVersion: remit/v2\nagent: a\n", "1:13:E_VALUE"),
    ("apiVersion: remit/v1\nagent: A b\n", "2:8:E_VALUE"),
    ("apiVersion: remit/v1\nagent: 5\n", "2:8:E_TYPE"),
    (HEAD + "proces: {}\n", "3:1:E_UNKNOWN_KEY"),
    (HEAD + "exec: [python3]\n", "3:1:E_UNKNOWN_KEY"),
    (HEAD + "process:\n", "3:9:E_TYPE"),
    (HEAD + "process: {exec: python3}\n", "3:17:E_TYPE"),
    (HEAD + "process: {exec: [python3, true]}\n", "3:27:E_TYPE"),
    (HEAD + "process: {exec: [./tool]}\n", "3:18:E_VALUE"),
    (HEAD + "process: {exec: [/usr/../bin/x]}\n", "3:18:E_PATH"),
    (HEAD + "process: {exec: [a, 'a?']}\n", "3:21:E_PATH"),
    (HEAD + "process: {exec: [a, a]}\n", "3:17:E_VALUE"),
    (HEAD + "process: {memfd: yes}\n", "3:18:E_TYPE"),
    (HEAD + "process: {work_code: always}\n", "3:22:E_VALUE"),
    (HEAD + "process: {env: {set: {A: 1}}}\n", "3:26:E_TYPE"),
    (HEAD + "process: {env: {set: {1A: x}}}\n", "3:23:E_UNKNOWN_KEY"),
    (HEAD + "process: {env: {pass: [A=B]}}\n", "3:24:E_VALUE"),
    (HEAD + "filesystem: {read: [{from: ./a}]}\n", "3:21:E_MISSING"),
    (HEAD + "filesystem: {read: [{from: ./a, to: b}]}\n", "3:37:E_VALUE"),
    (HEAD + "filesystem: {read: [/proc/self/environ]}\n", "3:21:E_PATH"),
    (HEAD + "filesystem: {read: [{from: ./a, to: /sys/a}]}\n", "3:21:E_PATH"),
    (HEAD + "filesystem: {read: [{from: ./a, to: /usr/../etc}]}\n", "3:21:E_PATH"),
    (HEAD + "filesystem: {read: [/]}\n", "3:21:E_PATH"),
    (HEAD + "filesystem: {read: [~root/x]}\n", "3:21:E_PATH"),
    (HEAD + "filesystem: {read: [./a, {from: ./b, to: /workspace/a}]}\n", "3:26:E_PATH"),
    (HEAD + "filesystem: {work: {from: /}}\n", "3:27:E_PATH"),
    (HEAD + "filesystem: {deny: ['../x']}\n", "3:21:E_PATH"),
    (HEAD + "state: {keep: [/etc/passwd]}\n", "3:16:E_PATH"),
    (HEAD + "state: {keep: [../x]}\n", "3:16:E_PATH"),
    (HEAD + "state: {to: /proc}\n", "3:13:E_PATH"),
    (HEAD + "limits: {memory: lots}\n", "3:18:E_VALUE"),
    (HEAD + "limits: {memory: 512 mb}\n", "3:18:E_VALUE"),
    (HEAD + "limits: {memory: 1KiB}\n", "3:18:E_VALUE"),
    (HEAD + "limits: {memory: 999999999TiB}\n", "3:18:E_VALUE"),
    (HEAD + "limits: {memory: 99999999999999999999}\n", "3:18:E_VALUE"),
    (HEAD + "limits: {wall: 5}\n", "3:16:E_TYPE"),
    (HEAD + "limits: {wall: 0s}\n", "3:16:E_VALUE"),
    (HEAD + "limits: {wall: 999999999999h}\n", "3:16:E_VALUE"),
    (HEAD + "limits: {cpu: 0}\n", "3:15:E_VALUE"),
    (HEAD + "limits: {processes: 1.5}\n", "3:21:E_TYPE"),
    (HEAD + "limits: {open_files: 1}\n", "3:22:E_VALUE"),
    (HEAD + "labels: [secret]\n", "3:10:E_VALUE"),
    (HEAD + "observe: everything\n", "3:10:E_VALUE"),
    (HEAD + "least_tier: best\n", "3:13:E_VALUE"),
    # bases
    (HEAD + "extends: pyhton\n", "3:10:E_BASE"),
    (HEAD + "extends: [python, ./none.yaml]\n", "3:19:E_BASE"),
    (HEAD + "extends: []\n", "3:10:E_VALUE"),
    (HEAD + "extends: ./remit.yaml\n", "3:10:E_CYCLE"),
    (HEAD + "extends: python\nprocess: {exec: [python3, git]}\n", "4:27:E_WIDENS"),
    (HEAD + "unsafe_widen: [process.exec]\n", "3:16:E_UNUSED_WIDEN"),
    (HEAD + "unsafe_widen: [proces.exec]\n", "3:16:E_VALUE"),
    # not enforced yet
    (HEAD + "mode: observe\n", "3:7:E_NOT_YET"),
    (HEAD + "network: {mode: simulate}\n", "3:17:E_NOT_YET"),
    (HEAD + "network: {allow: [{host: example.com}]}\n", "3:19:E_MISSING"),
    (HEAD + "network: {allow: [{cidr: 10.0.0.1/8, ports: [1]}]}\n", "3:26:E_VALUE"),
    (HEAD + "tools: {allow: [{server: s, tool: t}]}\n", "3:16:E_NOT_YET"),
    (HEAD + "tools: {deny: [{server: s, tool: t}]}\n", "3:15:E_NOT_YET"),
    (HEAD + "credentials: {use: [{name: github}]}\n", "3:20:E_NOT_YET"),
]


@pytest.mark.parametrize(("text", "place"), TABLE, ids=[repr(text)[:60] for text, _ in TABLE])
def test_a_malformed_remit_is_refused_at_the_place_of_its_fault(text, place):
    assert problems(text, {"/src/job/remit.yaml": HEAD})[:1] == [place]


@pytest.mark.parametrize(
    "body",
    [
        "process: {}\n",
        "process: {exec: [python3, 'true', /usr/bin/x, 'node?'], memfd: true, work_code: run}\n",
        "process: {env: {set: {A: '1'}, pass: [TERM]}}\n",
        "filesystem: {read: [./a, ../b, ~/c, /opt/d, {from: ., to: /workspace/e}]}\n",
        "filesystem: {work: {from: ./repo}, deny: ['**/.env']}\n",
        "state: {keep: [report.md, 'out/**'], to: ./kept}\n",
        "limits: {cpu: 0.5, cpu_time: 60s, memory: 512MiB, processes: 64, wall: 5m, disk: 256MB, files: 20000}\n",
        "limits: {output: 16777216, open_files: 1024, wall: 1.5h}\n",
        "mode: enforce\nnetwork: {mode: enforce, allow: []}\n",
        "tools: {allow: [], deny: [], ask: []}\ncredentials: {use: []}\n",
        "labels: [regulated, untrusted]\nobserve: none\nextends: [python, retrieval]\nunsafe_widen: [observe]\n",
    ],
)
def test_the_wellformed_twin_loads(body):
    assert problems(HEAD + body) == []


def test_every_fault_is_told_at_once_in_the_order_of_the_file():
    text = HEAD + "labels: [x]\nlimits: {memory: lots, wall: 3}\nexec: [a]\nprocess: {memfd: 1}\n"
    assert problems(text) == ["3:10:E_VALUE", "4:18:E_VALUE", "4:30:E_TYPE", "5:1:E_UNKNOWN_KEY", "6:18:E_TYPE"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("proces: {}\n", "remit.yaml:3:1: unknown key 'proces' at the top\n  hint: did you mean 'process'?"),
        ("exec: [a]\n", "remit.yaml:3:1: unknown key 'exec' at the top\n  hint: 'exec' belongs to `process:`"),
        (
            "process: {limits: {}}\n",
            "remit.yaml:3:11: unknown key 'limits' in process\n  hint: `limits:` stands at the top",
        ),
        (
            "process: {work_code: installed}\n",
            'remit.yaml:3:22: process.work_code: "installed" is not one of none, install, run\n'
            "  hint: did you mean install?",
        ),
        (
            "filesystem: {read: [3]}\n",
            "remit.yaml:3:21: filesystem.read[0] is a number and must be a path or an input and where it appears\n"
            "  hint: ./x appears at /workspace/x; an absolute path appears where it is. For example: ./documents",
        ),
        (
            "filesystem: {read: [{from: a, too: /b}]}\n",
            "remit.yaml:3:21: filesystem.read[0] lacks 'to'\n  hint: add `to: …`\n"
            "remit.yaml:3:31: unknown key 'too' in filesystem.read[0]\n  hint: did you mean 'to'?",
        ),
        (
            "limits: {memory: 64TB, disk: 100TiB}\n",
            "remit.yaml:3:30: limits.disk: 100 TiB is more than 64 TiB, the most",
        ),
        (
            "limits: {memory: lots}\n",
            'remit.yaml:3:18: limits.memory: "lots" is not a size\n'
            "  hint: Memory of the whole tree. For example: 512MiB",
        ),
        (
            "limits: {cpu: 0}\n",
            "remit.yaml:3:15: limits.cpu: 0 is less than 0.01, the least\n"
            "  hint: Processors, as a share: 0.5 is half of one.",
        ),
        (
            "extends: pyton\n",
            "remit.yaml:3:10: there is no built-in base 'pyton'\n  hint: did you mean 'python'? built-in: "
            "static-binary, binary, python, node, shell-with-git, retrieval, coding, browser, support, "
            "data-analysis, regulated, "
            "multi-tenant; a file starts with ./ or /",
        ),
        (
            "extends: base.yaml\n",
            "remit.yaml:3:10: there is no built-in base 'base.yaml'\n"
            "  hint: write './base.yaml' for a file beside this one",
        ),
        (
            "extends: python\nprocess: {exec: [python3, git]}\n",
            "remit.yaml:4:27: process.exec: git is not granted by its base built-in python, which says "
            "[python3, python?, /sbin/ldconfig?]\n"
            "  hint: narrow it, or take the responsibility by adding `unsafe_widen: [process.exec]`",
        ),
    ],
)
def test_what_the_author_is_told(body, words):
    assert said(body) == words


def test_bad_input_is_the_authors_to_mend_and_exits_with_2():
    with pytest.raises(PolicyError) as caught:
        load_text("a: 1\n")
    assert caught.value.exit_code == EXIT_BAD_INPUT
    assert caught.value.as_data()["problems"][0]["source"] == "remit.yaml"
