"""E-mails as they lie on disk (RFC 5322): encoded headers, alternatives and attachments included."""

from __future__ import annotations

from email import policy
from email.message import MIMEPart
from email.parser import BytesParser
from email.utils import parseaddr

from bs4 import BeautifulSoup

from report_tool.readers.html_tables import as_text
from report_tool.records import Mail, Place, Reading, Unreadable


def read(name: str, content: bytes) -> Reading:
    message = BytesParser(policy=policy.default).parsebytes(content)
    if not message["From"]:
        raise ValueError("no From header, so no e-mail")
    sender, address = parseaddr(str(message["From"]))
    sent = getattr(message["Date"], "datetime", None)
    body = message.get_body(preferencelist=("plain", "html"))
    mail = Mail(
        Place(name),
        sender=sender or address,
        address=address,
        subject=str(message["Subject"] or "(no subject)"),
        sent=sent,
        message_id=str(message["Message-ID"] or name),
        answers=str(message["In-Reply-To"] or ""),
        body=_text(body) if body else "",
        attachments=tuple(part.get_filename() or "(no name)" for part in message.iter_attachments()),
    )
    text = "\n".join(_text(part) for part in message.walk() if part.get_content_maintype() == "text")
    unreadable = () if sent else (Unreadable(mail.place, "no readable Date header"),)
    return Reading(name, "mail", text, (mail,), unreadable)


def _text(part: MIMEPart) -> str:
    content = part.get_content()
    return as_text(BeautifulSoup(content, "html.parser")) if part.get_content_subtype() == "html" else content
