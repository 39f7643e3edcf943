"""Fixtures of the tests that need the kernel."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kernel.relay import Relay


@pytest.fixture
def relay() -> Iterator[Relay]:
    started = Relay()
    yield started
    started.close()
