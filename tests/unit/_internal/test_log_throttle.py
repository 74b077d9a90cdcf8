"""A repeated message is one line with a count."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from mainstem._internal.clock import NS_PER_SECOND
from mainstem._internal.log_throttle import MAX_KINDS, LogThrottle, kind_of

if TYPE_CHECKING:
    import pytest

logger = logging.getLogger("mainstem.test")


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_the_first_is_logged_and_those_after_it_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    limit = LogThrottle(logger)
    for step in range(100):
        limit.log(logging.WARNING, "no route", "no route", step * NS_PER_SECOND // 10)
    assert lines(caplog) == ["no route"]
    limit.log(logging.WARNING, "no route", "no route", 12 * NS_PER_SECOND)
    assert lines(caplog) == ["no route", "no route (100 times in 12 s)"]


def test_suppressed_messages_are_counted_in_the_log_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    limit = LogThrottle(logger)
    for _ in range(3):
        limit.log(logging.WARNING, "full", "full", 0)
    limit.log(logging.WARNING, "other", "other", 0)
    limit.flush(2 * NS_PER_SECOND)
    assert lines(caplog) == ["full", "other", "full (2 more times in 2 s)"]


def test_what_does_not_print_is_escaped(caplog: pytest.LogCaptureFixture) -> None:
    limit = LogThrottle(logger)
    for _ in range(2):
        limit.log(logging.WARNING, "channel", "no \x1b[2J channel\n\udc83", 0)
    limit.flush(NS_PER_SECOND)
    escaped = r"no \x1b[2J channel\n\udc83"
    assert lines(caplog) == [escaped, f"{escaped} (1 more times in 1 s)"]


def test_kinds_are_bounded_and_none_is_lost(caplog: pytest.LogCaptureFixture) -> None:
    limit = LogThrottle(logger)
    for kind in range(MAX_KINDS + 1):
        limit.log(logging.WARNING, kind, f"kind {kind}", kind * NS_PER_SECOND)
        limit.log(logging.WARNING, kind, f"kind {kind}", kind * NS_PER_SECOND)
    limit.flush(0)
    assert sum("more times" in line for line in lines(caplog)) == MAX_KINDS + 1


def test_texts_that_differ_each_time_are_counted_too(caplog: pytest.LogCaptureFixture) -> None:
    limit = LogThrottle(logger)
    for number in range(10_000):
        limit.log(logging.WARNING, f"frame {number}", f"frame {number}", number * 1000)
    assert len(lines(caplog)) == MAX_KINDS + 1
    limit.flush(NS_PER_SECOND)
    assert lines(caplog)[-1] == f"frame 9999 ({10_000 - MAX_KINDS - 1} other messages in 1 s)"


def test_only_the_first_line_of_an_error_has_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    limit = LogThrottle(logger)
    for second in range(25):
        try:
            raise KeyError(second)
        except KeyError as error:
            limit.log(logging.ERROR, kind_of(error), f"lost {second}", second * NS_PER_SECOND, error=error)
    assert lines(caplog) == ["lost 0", "lost 10 (10 times in 10 s)", "lost 20 (10 times in 10 s)"]
    assert [bool(record.exc_info) for record in caplog.records] == [True, False, False]
