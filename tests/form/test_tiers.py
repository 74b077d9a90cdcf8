"""Where the limits of tests stand, and their ports."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.form

TESTS = Path(__file__).resolve().parents[1]
# What these need cannot be known beforehand: their number of worlds is an option.
OWN_LIMITS = {
    "spark/test_kill_rounds.py",
    "spark/test_separate_machines.py",
    "system/test_cancellation.py",
    "system/test_pages.py",
}


def test_the_limit_of_a_hanging_test_stands_once() -> None:
    own = {
        str(path.relative_to(TESTS))
        for path in TESTS.rglob("test_*.py")
        if "@pytest.mark.timeout(" in path.read_text() or re.search(r"= .*pytest\.mark\.timeout\(", path.read_text())
    } - {"form/test_tiers.py"}
    assert own == OWN_LIMITS


def test_a_wait_of_asyncio_that_ends_well_has_no_limit_in_seconds() -> None:
    """``soon`` of tests/support/patience.py is such a wait; short limits are for what must not come."""
    limit = re.compile(r"asyncio\.(?:wait_for\(.*, |timeout\()(\d+(?:\.\d+)?)\)")
    wrong = [
        f"{path.relative_to(TESTS)}: {line.strip()}"
        for path in TESTS.rglob("*.py")
        for line in path.read_text().splitlines()
        if (match := limit.search(line)) and float(match[1]) >= 5
    ]
    assert not wrong, "\n".join(wrong)


def test_ports_are_not_drawn_at_random() -> None:
    wrong = [
        str(path.relative_to(TESTS))
        for path in TESTS.rglob("*.py")
        if path.name != "ports.py" and re.search(r"port\s*=\s*random\.Random\(\)|_port=random\.", path.read_text())
    ]
    assert not wrong
