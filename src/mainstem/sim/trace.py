"""The most recent events, for reports of failures."""

from __future__ import annotations

from collections import deque

TRACE_LENGTH = 400  # lines: enough to show the cause of a stall, short enough to read


class Trace:
    """An ``Instrument`` that keeps the most recent ``length`` events as lines of text."""

    def __init__(self, *, length: int = TRACE_LENGTH) -> None:
        self._events: deque[tuple[int, str, str, bytes]] = deque(maxlen=length)
        self.total = 0

    def note(self, text: str, now_ns: int, frame: bytes = b"") -> None:
        """Add a line, ``text``, for the simulated time ``now_ns``, with the first 40 bytes of ``frame`` in hexadecimal."""
        self.total += 1
        # Formatted only when the trace is read, since most runs pass.
        self._events.append((now_ns, text, "", frame))

    def frame_in(self, source: str, frame: bytes, now_ns: int) -> None:
        """Note ``frame``, a datagram from ``source`` that arrives at ``now_ns``."""
        self.total += 1
        self._events.append((now_ns, "in from ", source, frame))

    def frame_out(self, destination: str, frame: bytes, now_ns: int) -> None:
        """Note ``frame``, a datagram sent to ``destination`` at ``now_ns``."""
        self.total += 1
        self._events.append((now_ns, "out to ", destination, frame))

    def command(self, name: str, detail: str, now_ns: int) -> None:
        """Note a client's command: its ``name`` and its fields as text, ``detail``, at ``now_ns``."""
        self.note(f"{name} {detail}", now_ns)

    def state_change(self, subject: str, old: str, new: str, now_ns: int) -> None:
        """Note that ``subject`` changed from the ``old`` to the ``new`` state at ``now_ns``."""
        self.note(f"{subject}: {old} -> {new}", now_ns)

    def __str__(self) -> str:
        return "\n".join(
            f"{now_ns / 1e9:.6f} {text}{f'{peer}: ' if peer else ''}{frame[:40].hex()}"
            for now_ns, text, peer, frame in self._events
        )
