"""The I/O boundary of this package: unpredictable numbers, the identity of threads, and the driver that may be started."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from random import Random, SystemRandom
from typing import TYPE_CHECKING, Any

from mainstem.aeron.client.client import Aeron
from mainstem.aeron.driver.media_driver import MediaDriver
from mainstem.errors import LocalProtocolError

if TYPE_CHECKING:
    import os


def secure_random() -> Random:
    """The system's generator, which cannot be predicted: for session ids, one-time pads and keys."""
    return SystemRandom()


class Confinement:
    """Asserts that what belongs to one thread is used in that thread only; the first use decides which."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._owner: int | None = None

    def __call__(self) -> None:
        """Raises LocalProtocolError in any other thread."""
        current = threading.get_ident()
        if self._owner is None:
            self._owner = current
        elif current != self._owner:
            name = threading.current_thread().name
            raise LocalProtocolError(f"{self._what} belongs to one thread, and {name} is another: use call()")


class DriverConnection:
    """A client of a media driver, and the driver too where none was named: closing this closes both."""

    def __init__(
        self,
        *,
        aeron: Aeron | None,
        directory: str | os.PathLike[str] | None,
        driver_settings: dict[str, Any],
        name: str,
    ) -> None:
        self._owned = ExitStack()
        with ExitStack() as opened:
            if aeron is None:
                if directory is None:
                    directory = opened.enter_context(MediaDriver.launch(**driver_settings)).directory
                aeron = opened.enter_context(Aeron.connect(directory, client_name=name))
            self.aeron = aeron
            self._owned = opened.pop_all()

    def close(self) -> None:
        """Close what was opened here. May be called again."""
        self._owned.close()
