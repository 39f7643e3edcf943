"""What holds for every remit and every action, not only for those that somebody thought of."""

import string

from hypothesis import given, settings
from hypothesis import strategies as st

from remit.errors import PolicyError
from remit.policy import covers
from remit.policy.actions import (
    CallTool,
    Connect,
    ConnectUnix,
    Exec,
    HttpRequest,
    KeepFile,
    OpenFile,
    ResolveName,
    UseCredential,
)
from remit.policy.decide import decide
from remit.policy.model import CredentialGrant, Limits, NetworkRule, Process, ReadGrant, Remit, State, ToolRule, Tools
from remit.policy.view import Place, View
from tests.unit.policy.remits import HEAD, load_text, view_of

PROGRAMS = ["python3", "python3?", "git", "sh", "/opt/x"]
SEGMENTS = st.sampled_from(
    ["a", "b", "out", "..", ".", "", ".env", "*", "**", "a*", "?", "[a]", "{a,b}", "!a", "\\a", "a\nb"]
)
PATHS = st.lists(SEGMENTS, min_size=1, max_size=4).map("/".join)
HOSTS = st.sampled_from(["example.com", "*.example.com", "a.example.com", "*.a.example.com", "b.a.example.com", "x"])
CIDRS = st.sampled_from(["10.0.0.0/8", "10.1.0.0/16", "10.1.2.3/32", "2001:db8::/32", "0.0.0.0/0", "::/0"])
ADDRESSES = st.one_of(
    st.ip_addresses().map(str), st.sampled_from(["10.1.2.3", "10.9.9.9", "2001:db8::1", "::1", "1.2"])
)
TOOLS = st.sampled_from(["get", "get_x", "get_*", "*", "g*t", "[g]et", "put", "get_?"])
PORTS = st.lists(st.sampled_from([80, 443, 5432]), min_size=1, max_size=3, unique=True)
METHODS = st.lists(st.sampled_from(["GET", "PUT"]), max_size=2, unique=True).map(tuple)
HTTP_PATHS = st.sampled_from(["/v1/**", "/v1/a", "/v1/*", "/**", "/v1/a/**", "/v2", "//v1/a", "/v1*"])

ACTIONS = st.one_of(
    st.builds(Exec, PATHS.map(lambda p: "/" + p) | st.sampled_from(["/usr/bin/git", "/usr/bin/python3", "/opt/x"])),
    st.builds(OpenFile, PATHS.map(lambda p: "/workspace/" + p) | PATHS.map(lambda p: "/" + p), st.booleans()),
    st.builds(Connect, ADDRESSES, st.sampled_from([0, 80, 443, 5432, 70000])),
    st.builds(ConnectUnix, st.sampled_from(["@a", "/tmp/x", "/run/x", "x"])),
    st.builds(ResolveName, HOSTS | st.text(max_size=20)),
    st.builds(
        HttpRequest,
        st.sampled_from(["GET", "PUT"]),
        HOSTS,
        st.sampled_from([80, 443]),
        HTTP_PATHS,
        st.lists(st.tuples(st.sampled_from(["a", "b"]), st.sampled_from(["1", "2"])), max_size=3).map(tuple),
        st.sampled_from([None, 0, 5, 50]),
    ),
    st.builds(CallTool, st.sampled_from(["s", "t"]), TOOLS, st.just({})),
    st.builds(UseCredential, st.sampled_from(["k", "l"]), HOSTS),
    st.builds(KeepFile, PATHS, st.sampled_from(["file", "directory", "symlink"]), st.integers(-1, 10**10)),
)


def subset(values):
    return st.lists(st.sampled_from(values), max_size=4, unique_by=lambda v: v.removesuffix("?"))


@st.composite
def bodies(draw):
    """What a document may say, as lines of JSON (which YAML reads)."""
    said = {}
    process = {}
    if draw(st.booleans()):
        process["exec"] = draw(subset(PROGRAMS))
    if draw(st.booleans()):
        process["work_code"] = draw(st.sampled_from(["none", "install", "run"]))
    said["process"] = process
    if draw(st.booleans()):
        sources = draw(st.lists(st.sampled_from(["/data", "/data/x", "/other"]), max_size=3, unique=True))
        said["filesystem"] = {"read": sources, "deny": draw(st.lists(st.sampled_from(["a", "**/.env"]), unique=True))}
    if draw(st.booleans()):
        keep = st.sampled_from(
            ["**", "out/**", "out/a/**", "out/a", "out/*", "a", "*", "a*/**", "out/[a]/**", "out/\\a"]
        )
        said["state"] = {"keep": draw(st.lists(keep, max_size=3, unique=True))}
    if draw(st.booleans()):
        said["limits"] = {"disk": draw(st.sampled_from(["64KiB", "1MiB", "1GiB"]))}
    return said


def text(said, **more):
    import json

    return json.dumps({"apiVersion": "remit/v1", "agent": "a", **said, **more})


@given(
    bodies(),
    bodies(),
    st.lists(ACTIONS | st.builds(KeepFile, PATHS, st.just("file"), st.integers(0, 10**6)), min_size=5),
)
@settings(max_examples=300, deadline=None)
def test_what_a_base_denies_no_narrowed_child_allows(base, child, actions):
    base_remit = load_text(text(base)).remit
    try:
        child_remit = load_text(text(child, extends="./base.yaml"), {"/src/job/base.yaml": text(base)}).remit
    except PolicyError as error:
        assert error.code == "E_WIDENS"
        return
    # Only where the base has spoken is there something to exceed.
    base_view, child_view = view_of(base_remit), view_of(child_remit)
    spoken = {
        Exec: "exec" in base["process"] and "work_code" in base["process"],
        OpenFile: "filesystem" in base and "exec" in base["process"],
        KeepFile: "state" in base and "limits" in base,
    }
    for action in actions:
        if spoken.get(type(action), True) and decide(child_remit, action, child_view).allowed:
            assert decide(base_remit, action, base_view).allowed


@given(bodies(), bodies(), st.lists(ACTIONS, min_size=5))
@settings(max_examples=200, deadline=None)
def test_what_one_of_two_bases_denies_their_meeting_does_not_allow(a, b, actions):
    files = {"/src/job/a.yaml": text(a), "/src/job/b.yaml": text(b)}
    both = load_text(HEAD + "extends: [./a.yaml, ./b.yaml]\n", files).remit
    for body in (a, b):
        one = load_text(text(body)).remit
        for action in actions:
            if (
                isinstance(action, KeepFile)
                and "state" in body
                and "limits" in body
                and (decide(both, action, view_of(both)).allowed)
            ):
                assert decide(one, action, view_of(one)).allowed


RULES = st.one_of(
    st.builds(
        lambda h, p, m, g, c, b: NetworkRule(h, "", tuple(p), m, tuple(g), tuple(c.items()), b),
        HOSTS,
        PORTS,
        METHODS,
        st.lists(HTTP_PATHS, max_size=2),
        st.dictionaries(st.sampled_from("ab"), st.sampled_from([("1",), ("2",), ("1", "2")]), max_size=2),
        st.sampled_from([None, None, 10, 20]),
    ),
    st.builds(lambda c, p: NetworkRule("", c, tuple(p)), CIDRS, PORTS),
)


@given(RULES, RULES, st.lists(ACTIONS, min_size=5))
@settings(max_examples=500, deadline=None)
def test_a_network_rule_that_is_covered_allows_no_more(base, child, actions):
    if covers.network(base, child):
        for action in actions:
            if decide(Remit("a", network=(child,)), action, View(())).allowed:
                assert decide(Remit("a", network=(base,)), action, View(())).allowed


@given(TOOLS, TOOLS, st.text(string.ascii_lowercase + "_[]?*\n", max_size=8) | TOOLS)
def test_a_tool_rule_that_is_covered_allows_no_more(base, child, tool):
    if covers.tool(ToolRule("s", base), ToolRule("s", child)):
        call = CallTool("s", tool)
        if decide(Remit("a", tools=Tools((ToolRule("s", child),))), call, View(())).allowed:
            assert decide(Remit("a", tools=Tools((ToolRule("s", base),))), call, View(())).allowed


@given(PATHS, PATHS, PATHS)
@settings(max_examples=1000, deadline=None)
def test_a_pattern_that_is_covered_keeps_no_more(base, child, path):
    if covers.pattern(base, child):
        kept = KeepFile(path, "file", 0)
        if decide(Remit("a", state=State((child,))), kept, View(())).allowed:
            assert decide(Remit("a", state=State((base,))), kept, View(())).allowed


@given(
    st.sampled_from(["/data", "/data/x", "/other", "/data2", "/"]),
    st.sampled_from(["/workspace/d", "/workspace/d/x", "/d"]),
    st.sampled_from(["/data", "/data/x", "/data/x/y", "/other", "/data2"]),
    st.sampled_from(["/workspace/d", "/workspace/d/x", "/d/x/y", "/d"]),
)
def test_an_input_that_is_covered_shows_the_same_file_at_the_same_place(source, to, child_source, child_to):
    if covers.read(ReadGrant(source, to), ReadGrant(child_source, child_to)):
        assert child_source.removeprefix(source.rstrip("/")) == child_to.removeprefix(to)


@given(ACTIONS)
def test_adding_a_deny_never_allows_more(action):
    tools = Tools((ToolRule("s", "*"),), (), ())
    stricter = tools._replace(deny=(ToolRule("s", "get*"),), ask=(ToolRule("s", "*"),))
    places = (Place("/workspace", True, True, "work"), Place("/usr/bin/git", False, True, "exec", tree=False))
    masked = (*places, Place("/workspace/out", False, False, "filesystem.deny", hidden=True))
    before = decide(Remit("a", tools=tools), action, View(places))
    after = decide(Remit("a", tools=stricter), action, View(masked))
    assert before.allowed or not after.allowed
    if isinstance(action, OpenFile | Exec) and action.path.startswith("/workspace/out/") and ".." not in action.path:
        assert not after.allowed


ANYTHING = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(), st.lists(st.text()))


@given(
    st.one_of(
        ANYTHING,
        st.builds(Exec, ANYTHING),
        st.builds(OpenFile, ANYTHING, ANYTHING),
        st.builds(Connect, ANYTHING | ADDRESSES, ANYTHING),
        st.builds(ConnectUnix, ANYTHING),
        st.builds(ResolveName, ANYTHING),
        st.builds(HttpRequest, ANYTHING, ANYTHING, ANYTHING, ANYTHING),
        st.builds(CallTool, ANYTHING, ANYTHING, ANYTHING),
        st.builds(UseCredential, ANYTHING, ANYTHING),
        st.builds(KeepFile, ANYTHING, ANYTHING, ANYTHING),
    )
)
@settings(max_examples=500)
def test_decide_answers_whatever_it_is_asked(action):
    remit = Remit(
        "a",
        process=Process(("git",)),
        network=(NetworkRule("*.example.com", "", (443,)), NetworkRule("", "10.0.0.0/8", (443,))),
        tools=Tools((ToolRule("s", "*"),)),
        credentials=(CredentialGrant("k"),),
        state=State(("**",)),
        limits=Limits(),
    )
    decision = decide(remit, action, view_of(remit))
    assert decision.verdict in ("allow", "deny", "ask")
    assert decision.rule
    assert decision.reason
