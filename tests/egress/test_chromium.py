"""Chromium inside. It trusts what its own database says and asks no file or variable, so the sandbox's authority is put
there; without it, it does not get to the host at all."""

from __future__ import annotations

import json
import re
from html import unescape

import pytest

from tests.conftest import Held
from tests.egress.secure import Secure, program

pytestmark = [pytest.mark.kernel]

BROWSER = "extends: browser\nprocess: {exec: [chromium]}\n"
OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--dump-dom")


def _dump(secure: Secure, url: str, trust: str | None = None) -> Held:
    program("chromium")
    env = {} if trust is None else {"REMIT_TEST_TRUST": trust}
    return secure(argv=["chromium", *OPTIONS, url], more=BROWSER, env=env)


def _shown(held: Held) -> dict[str, object]:
    """The JSON that the page is."""
    found = re.search(r"<pre[^>]*>(\{.*\})\s*</pre>", held.out, re.DOTALL)
    assert found is not None, held
    return dict(json.loads(unescape(found[1])))


def test_it_reads_what_is_allowed_and_is_told_what_is_not(secure):
    shown = _shown(_dump(secure, f"{secure.url}/v1/a"))
    assert (shown["path"], shown["host"]) == ("/v1/a", f"api.test:{secure.site.port}")
    held = _dump(secure, f"{secure.url}/v2/a")
    assert "/v2/a matches none of" in str(_shown(held)["reason"])
    assert held.refused("/v2/a matches none of")
    assert secure.site.asked.count("GET /v1/a") == 1
    assert not any("/v2" in asked for asked in secure.site.asked)


@pytest.mark.parametrize("trust", ["database", "places,hashed,SSL_CERT_FILE,NODE_EXTRA_CA_CERTS,CURL_CA_BUNDLE"])
def test_the_database_and_nothing_else_makes_it_trust(secure, trust):
    held = _dump(secure, f"{secure.url}/v1/a", trust)
    if trust == "database":
        assert _shown(held)["path"] == "/v1/a"
    else:
        assert "ERR_CERT_AUTHORITY_INVALID" in held.out + held.err, held
        assert secure.site.asked == []


def test_a_page_from_the_disk_is_rendered_by_its_script(secure):
    program("chromium")
    (secure.folder / "page.html").write_text("<p id=a>x<script>a.textContent = 6 * 7</script>")
    more = BROWSER + "filesystem: {read: [./page.html]}\n"
    held = secure(argv=["chromium", *OPTIONS, "file:///workspace/page.html"], more=more)
    assert '<p id="a">42' in held.out, held
