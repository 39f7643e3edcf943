"""The digest of a remit: sha256 over the canonical JSON of its effective form, so that comments, the order of keys and
the spelling of units don't matter, and everything that is enforced does."""

from __future__ import annotations

import hashlib
import json

from remit.policy.model import Remit


def digest(remit: Remit) -> str:
    """`sha256:` and 64 hex digits."""
    text = json.dumps(remit.as_document(), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()
