"""pyaeron's client, behind the interface that ``peer.py`` expects. Runs under a Python that has pyaeron."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyaeron

if TYPE_CHECKING:
    from collections.abc import Callable


class End:
    """A client with at most one publication and one subscription."""

    def __init__(self, directory: str) -> None:
        self._aeron = pyaeron.Aeron(dir=directory)
        self._publication: Any = None
        self._subscription: Any = None
        self._handlers: dict[Any, Any] = {}

    def publish(self, channel: str, stream: int, *, exclusive: bool, destinations: list[str]) -> None:
        assert not destinations, "pyaeron adds no destinations"
        add = self._aeron.add_exclusive_publication if exclusive else self._aeron.add_publication
        self._publication = add(channel, stream)

    def subscribe(self, channel: str, stream: int) -> None:
        self._subscription = self._aeron.add_subscription(channel, stream)

    @property
    def is_connected(self) -> bool:
        return bool(self._publication.is_connected)

    def offer(self, message: bytes) -> bool:
        return bool(self._publication.offer(message))

    def poll(self, handler: Callable[[bytes], None]) -> int:
        if handler not in self._handlers:
            # Use the same handler for all polls, because it owns the partially assembled messages.
            self._handlers[handler] = lambda buffer, _header: handler(bytes(buffer))
        return int(self._subscription.poll(self._handlers[handler], 64))

    @property
    def has_ended(self) -> bool:
        """Whether every stream has ended."""
        count = self._subscription.image_count
        return all(self._subscription.image_at_index(index).is_end_of_stream for index in range(count))

    def check(self) -> str:
        """Return what went wrong with the client, or an empty string while it works."""
        try:
            self._publication.offer(b"")
        except pyaeron.AeronError as error:
            return f"{type(error).__name__}: {error}"
        return "closed" if self._aeron.is_closed else ""

    def close(self) -> None:
        self._aeron.close()
