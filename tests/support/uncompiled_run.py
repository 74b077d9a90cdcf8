"""A pytest plugin for a tree without compiled modules (``-p tests.support.uncompiled_run``).

Uncompiled code refuses sockets and mapped files with a named error. A test that meets such a refusal is skipped; any other failure
counts. The socket module cannot be imported there at all, so a stand-in whose transports raise that refusal replaces it.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

REFUSAL = "the compiled modules: run 'make build'"


class UdpTransport:
    """Refuses when it is created and not when it is imported, because most unit tests of drivers use an in-memory network."""

    def __init__(self, *_arguments: Any, **_settings: Any) -> None:
        raise ImportError(f"sockets need {REFUSAL} or install a wheel")


STAND_IN = ModuleType("mainstem._core.driver.udp")
STAND_IN.UdpTransport = UdpTransport  # type: ignore[attr-defined]
sys.modules[STAND_IN.__name__] = STAND_IN


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and REFUSAL in str(report.longrepr):
        report.outcome = "skipped"
        report.longrepr = (str(item.path), 0, "Skipped: needs the compiled modules")
    return report
