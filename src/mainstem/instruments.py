"""The hook through which a trace, a capture recorder or the simulator observes a protocol engine.

An engine holds one ``Instrument`` and calls it; ``NULL_INSTRUMENT`` does nothing. Lifecycle goes to ``logging`` instead.
"""

from __future__ import annotations

from typing import Protocol

__all__ = ["NULL_INSTRUMENT", "Instrument", "NullInstrument"]


class Instrument(Protocol):
    """The events that a protocol engine reports.

    Every call is on the thread that did the work and must return at once.

    Example:
        >>> class Counting(NullInstrument):
        ...     frames = 0
        ...
        ...     def frame_in(self, source, frame, now_ns):
        ...         self.frames += 1
    """

    def frame_in(self, source: str, frame: bytes, now_ns: int) -> None:
        """A frame arrived.

        Args:
            source: The peer's name or address.
            frame: The frame's bytes.
            now_ns: The monotonic time of the work, in nanoseconds.
        """
        ...

    def frame_out(self, destination: str, frame: bytes, now_ns: int) -> None:
        """A frame is about to leave.

        Args:
            destination: The peer's name or address.
            frame: The frame's bytes.
            now_ns: The monotonic time of the work, in nanoseconds.
        """
        ...

    def command(self, name: str, detail: str, now_ns: int) -> None:
        """A client sent a command, or the driver a response.

        Args:
            name: The command's or response's name.
            detail: Its content as text.
            now_ns: The monotonic time of the work, in nanoseconds.
        """
        ...

    def state_change(self, subject: str, old: str, new: str, now_ns: int) -> None:
        """A state machine moved from one state to another.

        Args:
            subject: What the machine belongs to, as ``stream 3``.
            old: The state before.
            new: The state after.
            now_ns: The monotonic time of the work, in nanoseconds.
        """
        ...


class NullInstrument(Instrument):
    """An instrument that observes nothing: the default, and a base class for those that observe some events only.

    Example:
        >>> connection = Connection(instrument=NullInstrument())
    """

    def frame_in(self, source: str, frame: bytes, now_ns: int) -> None: ...

    def frame_out(self, destination: str, frame: bytes, now_ns: int) -> None: ...

    def command(self, name: str, detail: str, now_ns: int) -> None: ...

    def state_change(self, subject: str, old: str, new: str, now_ns: int) -> None: ...


NULL_INSTRUMENT = NullInstrument()
