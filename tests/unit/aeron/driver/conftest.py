"""A driver on a manual clock for each test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.invoked_driver import InvokedDriver

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def driver() -> Iterator[InvokedDriver]:
    driver = InvokedDriver()
    yield driver
    driver.close()
