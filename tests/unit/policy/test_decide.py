"""Each denial with its allowed twin, and the rule that decided."""

import pytest

from remit.policy.actions import (
    CallTool,
    Connect,
    ConnectUnix,
    Exec,
    HttpRequest,
    KeepFile,
    OpenFile,
    ResolveName,
    Task,
    UseCredential,
)
from remit.policy.decide import _GUARDED, decide
from remit.policy.model import CredentialGrant, Limits, NetworkRule, Process, Remit, State, ToolRule, Tools
from remit.policy.view import Place, View

VIEW = View(
    (
        Place("/", False, False, "builtin.skeleton", tree=False),
        Place("/usr/bin/python3", False, True, "process.exec[0]", tree=False),
        Place("/usr/lib/python3", False, False, "builtin.data"),
        Place("/workspace", True, False, "builtin.work"),
        Place("/workspace/docs", False, False, "filesystem.read[0]"),
        Place("/workspace/docs/.env", False, False, "filesystem.deny", hidden=True),
        Place("/workspace/docs/private", False, False, "filesystem.deny", hidden=True),
        Place("/workspace/docs/private/deeper", False, False, "filesystem.read[1]"),
        Place("/tmp", True, True, "process.work_code"),
        Place("/proc", False, False, "builtin.proc"),
    )
)
REMIT = Remit(
    "a",
    process=Process(("python3",)),
    network=(
        NetworkRule("api.example.com", "", (443,), ("GET",), ("/v1/**",)),
        NetworkRule("*.files.example.com", "", (443, 8443)),
        NetworkRule("", "10.1.0.0/16", (5432,)),
        NetworkRule("", "2001:db8::/32", (443,)),
        NetworkRule("up.example.com", "", (443,), headers=(("x-tenant", ("acme", "umbrella")),), max_body=10),
    ),
    tools=Tools(
        (ToolRule("github", "get_*"), ToolRule("github", "merge")),
        (ToolRule("github", "get_secret*"),),
        (ToolRule("github", "merge"), ToolRule("github", "delete")),
    ),
    credentials=(CredentialGrant("github", hosts=("api.github.com",)), CredentialGrant("any")),
    state=State(("report.md", "out/**", "*.csv"), "/kept"),
    limits=Limits(disk=1000),
)

ALLOWED_AND_DENIED = [
    (Exec("/usr/bin/python3"), Exec("/usr/bin/git"), "process.exec[0]", "process.exec"),
    (Exec("/tmp/tool"), Exec("/workspace/tool"), "process.work_code", "process.work_code"),
    (Exec("/tmp/tool"), Exec("/tmp"), "process.work_code", "process.work_code"),
    (Exec("/usr/bin//python3"), Exec("/usr/bin/../bin/python3"), "process.exec[0]", "builtin.fault"),
    (Exec("/usr/bin/python3"), Exec("python3"), "process.exec[0]", "builtin.fault"),
    (Exec("/usr/bin/python3"), Exec("/usr/bin/python3/x"), "process.exec[0]", "process.exec"),
    (Exec("/usr/bin/python3"), Exec("/workspace/docs/x"), "process.exec[0]", "filesystem.read[0]"),
    (OpenFile("/workspace/docs/a"), OpenFile("/etc/shadow"), "filesystem.read[0]", "builtin.absent"),
    (OpenFile("/workspace/x", True), OpenFile("/workspace/docs/a", True), "builtin.work", "filesystem.read[0]"),
    (OpenFile("/workspace/docs/.env2"), OpenFile("/workspace/docs/.env"), "filesystem.read[0]", "filesystem.deny"),
    (
        OpenFile("/workspace/docs/x"),
        OpenFile("/workspace/docs/private/deeper/x"),
        "filesystem.read[0]",
        "filesystem.deny",
    ),
    (OpenFile("/workspace/docs"), OpenFile("/workspace/../etc/passwd"), "filesystem.read[0]", "builtin.fault"),
    (OpenFile("/proc/self/maps"), OpenFile("/proc/self/mem", True), "builtin.proc", "builtin.proc"),
    (OpenFile("/"), OpenFile("/root"), "builtin.skeleton", "builtin.absent"),
    (OpenFile("/tmp/./a/"), OpenFile("/tmp/a\0b"), "process.work_code", "builtin.fault"),
    (OpenFile("/workspace"), OpenFile("/workspace2"), "builtin.work", "builtin.absent"),
    (Connect("127.0.0.1", 80), Connect("169.254.169.254", 80), "builtin.loopback", "network.allow"),
    (Connect("127.9.9.9", 1), Connect("128.0.0.1", 1), "builtin.loopback", "network.allow"),
    (Connect("::1", 80), Connect("::2", 80), "builtin.loopback", "network.allow"),
    (Connect("::ffff:127.0.0.1", 80), Connect("::ffff:10.1.2.3", 5432), "builtin.loopback", "network.allow"),
    (Connect("0.0.0.0", 80), Connect("0.0.0.1", 80), "builtin.loopback", "network.allow"),
    (Connect("10.1.2.3", 5432), Connect("10.1.2.3", 5433), "network.allow[2]", "network.allow"),
    (Connect("10.1.2.3", 5432), Connect("10.2.2.3", 5432), "network.allow[2]", "network.allow"),
    (Connect("10.1.2.3", 5432), Connect("64:ff9b::a01:203", 5432), "network.allow[2]", "network.allow"),
    (Connect("10.1.2.3", 5432), Connect("2002:a01:203::1", 5432), "network.allow[2]", "network.allow"),
    (Connect("10.1.2.3", 5432), Connect("010.1.2.3", 5432), "network.allow[2]", "builtin.fault"),
    (Connect("10.1.2.3", 5432), Connect("167838211", 5432), "network.allow[2]", "builtin.fault"),
    (Connect("10.1.2.3", 5432), Connect("10.1.515", 5432), "network.allow[2]", "builtin.fault"),
    (Connect("2001:db8::1", 443), Connect("2001:db8::5efe:a01:203", 443), "network.allow[3]", "network.allow"),
    (Connect("::1%lo", 80), Connect("10.1.2.3%lo", 5432), "builtin.loopback", "builtin.fault"),
    (Connect("::1", 65535), Connect("::1", 65536), "builtin.loopback", "builtin.fault"),
    (ConnectUnix("/tmp/s"), ConnectUnix("/run/docker.sock"), "process.work_code", "builtin.absent"),
    (ConnectUnix("/workspace/s"), ConnectUnix("/workspace/docs/s"), "builtin.work", "filesystem.read[0]"),
    (ConnectUnix("@own"), ConnectUnix("relative"), "builtin.loopback", "builtin.fault"),
    (ResolveName("localhost"), ResolveName("example.com"), "builtin.loopback", "network.allow"),
    (ResolveName("API.example.com."), ResolveName("api.example.com.."), "network.allow[0]", "builtin.fault"),
    (ResolveName("a.files.example.com"), ResolveName("files.example.com"), "network.allow[1]", "network.allow"),
    (ResolveName("a.files.example.com"), ResolveName("a.xfiles.example.com"), "network.allow[1]", "network.allow"),
    (ResolveName("a.files.example.com"), ResolveName("evil\0.files.example.com"), "network.allow[1]", "builtin.fault"),
    (ResolveName("a.files.example.com"), ResolveName(".files.example.com"), "network.allow[1]", "builtin.fault"),
    (ResolveName("k.files.example.com"), ResolveName("\u212a.files.example.com"), "network.allow[1]", "builtin.fault"),
    (ResolveName("a.files.example.com"), ResolveName("ö.files.example.com"), "network.allow[1]", "builtin.fault"),
    (
        HttpRequest("GET", "api.example.com", 443, "/v1/a?b=../c"),
        HttpRequest("POST", "api.example.com", 443, "/v1/a"),
        "network.allow[0]",
        "network.allow",
    ),
    (
        HttpRequest("GET", "api.example.com", 443, "/v1/a/b"),
        HttpRequest("GET", "api.example.com", 443, "/v2/a"),
        "network.allow[0]",
        "network.allow",
    ),
    (
        HttpRequest("GET", "api.example.com", 443, "/v1/a%20b"),
        HttpRequest("GET", "api.example.com", 443, "/v1/%2e%2e/admin"),
        "network.allow[0]",
        "builtin.fault",
    ),
    (
        HttpRequest("GET", "api.example.com", 443, "/v1/a"),
        HttpRequest("GET", "api.example.com", 443, "/v1/../admin"),
        "network.allow[0]",
        "builtin.fault",
    ),
    (
        HttpRequest("PUT", "a.files.example.com", 8443, "/"),
        HttpRequest("PUT", "a.files.example.com", 80, "/"),
        "network.allow[1]",
        "network.allow",
    ),
    (
        HttpRequest("POST", "up.example.com", 443, "/", (("a", "b"), ("x-tenant", "acme")), 10),
        HttpRequest("POST", "up.example.com", 443, "/", (("a", "b"), ("x-tenant", "acme")), 11),
        "network.allow[4]",
        "network.allow",
    ),
    (
        HttpRequest("POST", "up.example.com", 443, "/", (("x-tenant", "umbrella"),), None),
        HttpRequest("POST", "up.example.com", 443, "/", (("x-tenant", "Umbrella"),), None),
        "network.allow[4]",
        "network.allow",
    ),
    (
        HttpRequest("GET", "up.example.com", 443, "/", (("x-tenant", "acme"),)),
        HttpRequest("GET", "up.example.com", 443, "/", (("x-tenant", "acme"), ("x-tenant", "other"))),
        "network.allow[4]",
        "network.allow",
    ),
    (
        HttpRequest("GET", "up.example.com", 443, "/", (("x-tenant", "acme"),)),
        HttpRequest("GET", "up.example.com", 443, "/"),
        "network.allow[4]",
        "network.allow",
    ),
    (CallTool("github", "get_issue"), CallTool("github", "get_secret_x"), "tools.allow[0]", "tools.deny[0]"),
    (CallTool("github", "get_issue"), CallTool("gitlab", "get_issue"), "tools.allow[0]", "tools.allow"),
    (CallTool("github", "get_issue"), CallTool("github", "forget_issue"), "tools.allow[0]", "tools.allow"),
    (CallTool("github", "get_issue"), CallTool("github", "delete"), "tools.allow[0]", "tools.allow"),
    (UseCredential("github", "api.github.com"), UseCredential("github", "x"), "credentials.use[0]", "credentials.use"),
    (UseCredential("any", "x"), UseCredential("other", "x"), "credentials.use[1]", "credentials.use"),
    (KeepFile("report.md", "file", 10), KeepFile("report.md", "symlink", 10), "state.keep[0]", "state.keep"),
    (KeepFile("report.md", "file", 10), KeepFile("report.md", "special file", 10), "state.keep[0]", "state.keep"),
    (KeepFile("report.md", "file", 1000), KeepFile("report.md", "file", 1001), "state.keep[0]", "limits.disk"),
    (KeepFile("report.md", "file", 0), KeepFile("report.md", "file", -1), "state.keep[0]", "limits.disk"),
    (KeepFile("out/a/.b", "file", 1), KeepFile("out2/a", "file", 1), "state.keep[1]", "state.keep"),
    (KeepFile("out/d", "directory", 1), KeepFile("other", "directory", 1), "state.keep[1]", "state.keep"),
    (KeepFile("a.csv", "file", 1), KeepFile("sub/a.csv", "file", 1), "state.keep[2]", "state.keep"),
    (KeepFile("a.csv", "file", 1), KeepFile("a.CSV", "file", 1), "state.keep[2]", "state.keep"),
    (KeepFile("out/a", "file", 1), KeepFile("out/../a", "file", 1), "state.keep[1]", "builtin.fault"),
    (KeepFile("out/a", "file", 1), KeepFile("/workspace/out/a", "file", 1), "state.keep[1]", "builtin.fault"),
]


@pytest.mark.parametrize(("allowed", "denied", "by", "because"), ALLOWED_AND_DENIED, ids=str)
def test_a_denial_and_its_allowed_twin_name_their_rules(allowed, denied, by, because):
    yes, no = decide(REMIT, allowed, VIEW), decide(REMIT, denied, VIEW)
    assert (yes.verdict, yes.rule) == ("allow", by)
    assert (no.verdict, no.rule) == ("deny", because)
    assert yes.allowed
    assert not no.allowed
    assert yes.reason
    assert no.reason


def test_ask_speaks_of_what_is_allowed_and_goes_before_it():
    decision = decide(REMIT, CallTool("github", "merge"), VIEW)
    assert (decision.verdict, decision.rule) == ("ask", "tools.ask[0]")
    assert not decision.allowed


def test_deny_goes_before_ask():
    tools = Tools((ToolRule("s", "*"),), (ToolRule("s", "x"),), (ToolRule("s", "*"),))
    assert decide(Remit("a", tools=tools), CallTool("s", "x"), VIEW).verdict == "deny"
    assert decide(Remit("a", tools=tools), CallTool("s", "y"), VIEW).verdict == "ask"


def test_an_empty_remit_allows_nothing_but_its_own_loopback():
    empty, nothing = Remit("a"), View(())
    for allowed, denied, _, _ in ALLOWED_AND_DENIED:
        for action in (allowed, denied):
            decision = decide(empty, action, nothing)
            assert not decision.allowed or decision.rule == "builtin.loopback"


def test_a_fault_while_deciding_denies():
    broken = Remit("a", network=(NetworkRule("", "no network", (80,)),))
    decision = decide(broken, Connect("10.0.0.1", 80), VIEW)
    assert (decision.verdict, decision.rule) == ("deny", "builtin.fault")


def test_an_unknown_action_is_denied():
    assert decide(REMIT, "exec", VIEW) == ("deny", "builtin.fault", "str is no known action")  # type: ignore[arg-type]
    assert not decide(REMIT, None, VIEW).allowed  # type: ignore[arg-type]


def test_two_kinds_of_action_with_the_same_words_are_decided_apart():
    assert decide(REMIT, ConnectUnix("/usr/bin/python3"), VIEW).verdict == "deny"
    assert decide(REMIT, Exec("/usr/bin/python3"), VIEW).verdict == "allow"


def test_a_task_does_not_change_an_answer_yet():
    task = Task("do it", user="root")
    assert decide(REMIT, Exec("/usr/bin/git"), VIEW, task) == decide(REMIT, Exec("/usr/bin/git"), VIEW)


def test_the_later_of_two_places_at_one_path_decides_and_a_hidden_one_before_both():
    under, over = Place("/a", True, False, "under"), Place("/a", False, False, "over")
    mask = Place("/a", False, False, "mask", hidden=True)
    assert View((under, over)).place("/a/b") == over
    assert View((over, under)).place("/a/b") == under
    assert View((mask, under, over)).place("/a/b") == mask
    assert View((under,)).place("/ab") is None
    assert View((Place("/", True, True, "all"),)).place("/x/y") is not None
    assert View((Place("/a", True, True, "file", tree=False),)).place("/a/b") is None


@pytest.mark.parametrize("name", sorted(_GUARDED))
def test_what_the_host_obeys_by_name_is_kept_only_by_that_name(name):
    view = View((), "/workspace")
    for path in (name, f"sub/{name}", f"{name}/config"):
        action = KeepFile(path, "file", 1)
        held = decide(Remit("a", state=State(("**",))), action, view)
        assert (held.verdict, held.rule) == ("deny", "state.keep")
        assert _GUARDED[name] in held.reason
        named = Remit("a", state=State((f"**/{name}", f"**/{name}/**")))
        assert decide(named, action, view).allowed
    assert decide(Remit("a", state=State(("**",))), KeepFile(f"{name}.txt", "file", 1), view).allowed
