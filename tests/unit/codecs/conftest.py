from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.schema_registry import Registry, running_registry

from mainstem.codecs import schemas
from mainstem.store.retry import Retry

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    """A running registry, with clients that make at most two attempts and do not wait between them."""
    monkeypatch.setattr(schemas, "Retry", lambda: Retry(attempts=2, first_wait_s=0.0, max_wait_s=0.0))
    with running_registry() as server:
        yield server
