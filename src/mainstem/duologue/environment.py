"""The I/O boundary of this package: unpredictable numbers, and starting a driver."""

from __future__ import annotations

from contextlib import ExitStack
from random import Random, SystemRandom
from typing import TYPE_CHECKING, Any

from mainstem.aeron.client.client import Aeron
from mainstem.aeron.driver.media_driver import MediaDriver

if TYPE_CHECKING:
    import os


def secure_random() -> Random:
    """The system's unpredictable generator, for session ids, one-time pads and keys."""
    return SystemRandom()


class DriverConnection:
    """A client of a media driver, and the driver too if it was started here."""

    def __init__(
        self,
        *,
        aeron: Aeron | None,
        directory: str | os.PathLike[str] | None,
        driver_settings: dict[str, Any],
        name: str,
    ) -> None:
        self._owned = ExitStack()
        self.owns_driver = aeron is None and directory is None
        with ExitStack() as opened:
            if aeron is None:
                if directory is None:
                    directory = opened.enter_context(MediaDriver.launch(**driver_settings)).directory
                aeron = opened.enter_context(Aeron.connect(directory, client_name=name))
            self.aeron = aeron
            self._owned = opened.pop_all()

    def close(self) -> None:
        self._owned.close()
