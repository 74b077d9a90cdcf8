"""The last things that happened, kept for the moment when something goes wrong."""

from __future__ import annotations

from collections import deque

TRACE_LENGTH = 400  # lines: enough to see a stall's cause, short enough to read


class Trace:
    """An ``Instrument`` that remembers the newest events as lines of text.

    Args:
        length: How many events are remembered.
    """

    def __init__(self, *, length: int = TRACE_LENGTH) -> None:
        self._events: deque[tuple[int, str, str, bytes]] = deque(maxlen=length)
        self.total = 0

    def note(self, text: str, now_ns: int, frame: bytes = b"") -> None:
        """Adds one line.

        Args:
            text: The line.
            now_ns: Simulated time in nanoseconds.
            frame: Its first 40 bytes are added in hexadecimal.
        """
        self.total += 1
        # Formatted only when it is read: most runs go well.
        self._events.append((now_ns, text, "", frame))

    def frame_in(self, source: str, frame: bytes, now_ns: int) -> None:
        """Notes a datagram that arrives.

        Args:
            source: The sender's address.
            frame: The datagram.
            now_ns: Simulated time in nanoseconds.
        """
        self.total += 1
        self._events.append((now_ns, "in from ", source, frame))

    def frame_out(self, destination: str, frame: bytes, now_ns: int) -> None:
        """Notes a datagram that is sent.

        Args:
            destination: The receiver's address.
            frame: The datagram.
            now_ns: Simulated time in nanoseconds.
        """
        self.total += 1
        self._events.append((now_ns, "out to ", destination, frame))

    def command(self, name: str, detail: str, now_ns: int) -> None:
        """Notes a client's command.

        Args:
            name: The command.
            detail: Its fields as text.
            now_ns: Simulated time in nanoseconds.
        """
        self.note(f"{name} {detail}", now_ns)

    def state_change(self, subject: str, old: str, new: str, now_ns: int) -> None:
        """Notes a change of state.

        Args:
            subject: What changed.
            old: The state before.
            new: The state after.
            now_ns: Simulated time in nanoseconds.
        """
        self.note(f"{subject}: {old} -> {new}", now_ns)

    def __str__(self) -> str:
        return "\n".join(
            f"{now_ns / 1e9:.6f} {text}{f'{peer}: ' if peer else ''}{frame[:40].hex()}"
            for now_ns, text, peer, frame in self._events
        )
