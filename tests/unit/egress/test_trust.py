"""What makes programs inside trust the sandbox's authority: the plan's part and the disk's."""

from __future__ import annotations

from types import MappingProxyType

import pytest

from remit.plan import launch_plan as lp
from remit.plan.root import Root
from remit.plan.template import Template, TemplateFile, TemplateLink, TemplateTree
from remit.plan.trust import AUTHORITY, BUNDLE, PLACES, STORE, Entry, Trust
from remit.policy.decide import intercepted
from remit.policy.model import NetworkRule, Remit
from remit.sandbox import trust as disk


@pytest.mark.parametrize(
    ("rules", "hosts"),
    [
        ([NetworkRule("a.test", "", (443,))], ()),
        ([NetworkRule("a.test", "", (443,), methods=("GET",))], ("a.test",)),
        ([NetworkRule("*.a.test", "", (443, 8443), paths=("/v1/**",))], ("*.a.test",)),
        ([NetworkRule("a.test", "", (80,), methods=("GET",))], ()),
        ([NetworkRule("a.test", "", (443,), methods=("GET",)), NetworkRule("*.test", "", (443,))], ()),
        ([NetworkRule("a.test", "", (443,), methods=("GET",)), NetworkRule("*.test", "", (80,))], ("a.test",)),
        ([NetworkRule("", "10.0.0.0/8", (443,))], ()),
    ],
)
def test_tls_is_read_for_hosts_whose_every_rule_speaks_of_methods_or_paths(rules, hosts):
    assert intercepted(Remit("a", network=tuple(rules))) == hosts


def _trust(**more):
    return Trust("PUBLIC", "552b9421", "BUNDLE", **more)


def _ops(template, trust):
    root = Root()
    root._closure(Remit("a"), template, trust)
    root._trust(trust, "/home/agent")
    return root.ops, {place.path: place for place in root.places}


def test_a_directory_of_certificates_is_made_anew_and_holds_what_it_did():
    entries = (
        Entry("0a775a30.0", "link", "x.pem"),
        Entry("ca-certificates.crt", "file"),
        Entry("java", "dir"),
        Entry("local.pem", "file"),
        Entry("x.pem", "link", "/usr/share/x.crt"),
    )
    at = "/etc/ssl/certs/ca-certificates.crt"
    trust = _trust(places=(at, "/etc/ssl/cert.pem"), opened=MappingProxyType({"/etc/ssl/certs": entries}), store="00")
    tree = TemplateTree("/etc/ssl/certs", "/etc/ssl/certs", False, "")
    ops, places = _ops(Template(trees=(tree,)), trust)
    assert [op for op in ops if not isinstance(op, lp.Dir)] == [
        lp.Symlink("/etc/ssl/certs/0a775a30.0", "x.pem"),
        lp.Bind("/etc/ssl/certs/java", "/etc/ssl/certs/java", "dir"),
        lp.Bind("/etc/ssl/certs/local.pem", "/etc/ssl/certs/local.pem", "file"),
        lp.Symlink("/etc/ssl/certs/x.pem", "/usr/share/x.crt"),
        lp.Symlink("/etc/ssl/certs/552b9421.0", AUTHORITY),
        lp.File(AUTHORITY, "PUBLIC"),
        lp.File(BUNDLE, "BUNDLE"),
        lp.Bytes(STORE, "00"),
        lp.Symlink(at, BUNDLE),
        lp.Symlink("/etc/ssl/cert.pem", BUNDLE),
    ]
    assert not any(place.write or place.execute for place in places.values())


def test_a_bundle_in_a_file_or_behind_a_link_is_replaced_too():
    file = TemplateFile("/etc/ssl/cert.pem", "/etc/ssl/cert.pem", "data", lp.Stamp(0, 0, 0, 0), "")
    link = TemplateLink("/etc/ssl/ca-bundle.pem", "/var/lib/x")
    trust = _trust(places=("/etc/ssl/cert.pem", "/etc/ssl/ca-bundle.pem"))
    ops, _ = _ops(Template(files=(file,), links=(link,)), trust)
    made = [(op.path, op.target) for op in ops if isinstance(op, lp.Symlink)]
    assert made == [("/etc/ssl/cert.pem", BUNDLE), ("/etc/ssl/ca-bundle.pem", BUNDLE)]
    assert not any(isinstance(op, lp.Bind) for op in ops)


def test_a_hash_that_is_taken_is_counted_on():
    opened = {"/c": (Entry("552b9421.0", "file"), Entry("552b9421.1", "file")), "/d": (Entry("a.pem", "file"),)}
    trust = _trust(opened=opened)
    assert (trust.hashed("/c"), trust.hashed("/d")) == ("552b9421.2", None)


def test_java_is_told_only_where_there_is_a_store():
    assert "JAVA_TOOL_OPTIONS" not in _trust().environment()
    assert STORE in _trust(store="00").environment()["JAVA_TOOL_OPTIONS"]


def test_the_database_of_nss_lies_in_the_home_directory_for_its_owner_alone():
    ops, _ = _ops(Template(), _trust(database=MappingProxyType({"cert9.db": "00", "key4.db": "01"})))
    made = [op for op in ops if isinstance(op, lp.Bytes)]
    assert made == [
        lp.Bytes("/home/agent/.pki/nssdb/cert9.db", "00", 0o600),
        lp.Bytes("/home/agent/.pki/nssdb/key4.db", "01", 0o600),
    ]


def test_every_place_leads_to_the_bundle_as_directories_really_are(tmp_path, monkeypatch):
    certs = tmp_path / "certs"
    (certs / "sub").mkdir(parents=True)
    (certs / "sub" / "bundle.pem").write_text("HOST\n")
    (certs / "other").write_text("x")
    (tmp_path / "link").symlink_to(certs)
    place = f"{tmp_path}/link/sub/bundle.pem"
    monkeypatch.setattr(disk, "PLACES", (place, "/nowhere/else.pem"))
    template = Template(trees=(TemplateTree(str(certs), str(certs), False, ""),))
    made = disk.trust(template, "OWN", "0")
    assert made.places == (f"{certs}/sub/bundle.pem", "/nowhere/else.pem")
    assert made.bundle == "HOST\n\nOWN"
    assert made.opened == {
        str(certs): (Entry("other", "file"), Entry("sub", "dir")),
        f"{certs}/sub": (Entry("bundle.pem", "file"),),
    }
    assert "/etc/ssl/certs/ca-certificates.crt" in PLACES
