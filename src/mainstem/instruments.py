"""The hook through which a trace, a capture recorder, the simulator and qlog see what a protocol engine does.

An engine holds one ``Instrument`` and calls it; ``NULL_INSTRUMENT`` does nothing. Lifecycle goes to ``logging`` instead.
"""

from __future__ import annotations

from typing import Protocol


class Instrument(Protocol):
    """What may be observed. Every call is on the thread that did the work and must return at once."""

    def frame_in(self, source: str, frame: bytes, now_ns: int) -> None:
        """A frame arrived; ``source`` names the peer."""
        ...

    def frame_out(self, destination: str, frame: bytes, now_ns: int) -> None:
        """A frame is about to leave; ``destination`` names the peer."""
        ...

    def command(self, name: str, detail: str, now_ns: int) -> None:
        """A client's command or the driver's answer."""
        ...

    def state_change(self, subject: str, old: str, new: str, now_ns: int) -> None:
        """Something moved from one state of its machine to another."""
        ...


class NullInstrument:
    """Observes nothing."""

    def frame_in(self, source: str, frame: bytes, now_ns: int) -> None:
        """Nothing."""

    def frame_out(self, destination: str, frame: bytes, now_ns: int) -> None:
        """Nothing."""

    def command(self, name: str, detail: str, now_ns: int) -> None:
        """Nothing."""

    def state_change(self, subject: str, old: str, new: str, now_ns: int) -> None:
        """Nothing."""


NULL_INSTRUMENT = NullInstrument()
