"""One cache for all tests that don't look at the cache: reading a whole standard library once is enough."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from remit.plan.template import Template
from tests.unit.closure import inside


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("closure") / "cache"


@pytest.fixture
def build(shared_cache: Path) -> inside.Builder:
    """`inside.template` with the shared cache; every result is checked to be whole."""

    def make(*entries: str, **options: Any) -> Template:
        made = inside.template(*entries, cache_dir=str(shared_cache), **options)
        inside.assert_whole(made)
        return made

    return make
