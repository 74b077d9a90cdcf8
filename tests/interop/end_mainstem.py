"""Mainstem's client, behind the interface that ``peer.py`` expects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mainstem

if TYPE_CHECKING:
    from collections.abc import Callable


class End:
    """A client with at most one publication and one subscription."""

    def __init__(self, directory: str) -> None:
        self._aeron = mainstem.Aeron.connect(directory)
        self._publication: Any = None
        self._subscription: Any = None

    def publish(self, channel: str, stream: int, *, exclusive: bool, destinations: list[str]) -> None:
        add = self._aeron.add_exclusive_publication if exclusive else self._aeron.add_publication
        self._publication = add(channel, stream)
        for destination in destinations:
            self._publication.add_destination(destination)

    def subscribe(self, channel: str, stream: int) -> None:
        self._subscription = self._aeron.add_subscription(channel, stream)

    @property
    def is_connected(self) -> bool:
        return bool(self._publication.is_connected)

    def offer(self, message: bytes) -> bool:
        return bool(self._publication.offer(message) > 0)

    def poll(self, handler: Callable[[bytes], None]) -> int:
        return int(self._subscription.poll_messages(lambda fragment: handler(bytes(fragment)), 64))

    @property
    def has_ended(self) -> bool:
        """Whether every stream has ended."""
        return all(image.is_end_of_stream for image in self._subscription.images)

    def check(self) -> str:
        """Return what went wrong with the client, or an empty string while it works."""
        if self._aeron.closed:
            try:
                self._publication.send(b"", timeout=1.0)
            except mainstem.MainstemError as error:
                return f"{type(error).__name__}: {error}"
            return "closed"
        return ""

    def close(self) -> None:
        self._aeron.close()
