"""The JVM behind a session: which process it is, and how it ends for certain."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# A JVM that receives a signal to end does so within a second, unless one of its threads is stuck.
EXIT_TIMEOUT_S = 5.0
_POLL_S = 0.02

_started: set[int] = set()


def children() -> set[int]:
    """The ids of this process's children."""
    ids: set[int] = set()
    for path in Path("/proc/self/task").glob("*/children"):
        # A thread may end between the listing and the read.
        with contextlib.suppress(OSError):
            ids.update(map(int, path.read_text().split()))
    return ids


@contextlib.contextmanager
def remembered() -> Iterator[None]:
    """The children that are started meanwhile are JVMs of ours. When that is broken off they end at once."""
    before = children()
    try:
        yield
    except BaseException:
        _started.update(children() - before)
        end()
        raise
    _started.update(children() - before)


def end() -> None:
    """Ends every JVM that was started: asks first, then kills. Returns when they are gone."""
    while _started:
        pid = _started.pop()
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
            if _is_gone(pid):
                break


def _is_gone(pid: int) -> bool:
    deadline = time.monotonic() + EXIT_TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            if os.waitpid(pid, os.WNOHANG)[0] == pid:
                return True
        except ChildProcessError:
            # It was waited for elsewhere.
            return True
        time.sleep(_POLL_S)
    return False
