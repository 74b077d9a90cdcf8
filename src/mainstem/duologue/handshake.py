"""The server's all-clients channel: its clients and their requests."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mainstem._internal.address_prefixes import address_of
from mainstem._internal.clock import seconds_ns
from mainstem.duologue.messages import MAX_TEXT_LENGTH
from mainstem.errors import MainstemError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstem._core.log.fragment import Fragment
    from mainstem.aeron.client.subscription import Image, Subscription
    from mainstem.duologue.settings import Settings
    from mainstem.duologue.stats import ServerStats

UNFRAGMENTED = 0xC0
MESSAGES_AT_ONCE = 10  # in one duty cycle: a flood of HELLOs leaves time for those who have joined
# Requests of one stream that are processed: a client whose first was refused may try again, not forever.
MAX_REQUESTS = 4


@dataclass(slots=True)
class Handshake:
    """A client on the all-clients channel, by session id."""

    image: Image
    address: str
    since_ns: int
    requests: int = 0


class Handshakes:
    """The clients on the all-clients channel. The image handlers run in the conductor's thread and only queue."""

    def __init__(self, settings: Settings, stats: ServerStats) -> None:
        self._stats = stats
        self._timeout_ns = seconds_ns(settings.handshake_timeout)
        self._max_term_length = settings.max_term_length
        self._changes: deque[tuple[bool, Image]] = deque()
        self._clients: dict[int, Handshake] = {}

    def on_available(self, image: Image) -> None:
        self._changes.append((True, image))

    def on_unavailable(self, image: Image) -> None:
        self._changes.append((False, image))

    def do_work(self, subscription: Subscription, now_ns: int, on_request: Callable[[Handshake, bytes], None]) -> int:
        """Run one duty cycle; ``on_request`` gets every request to process."""
        work = self._take_changes(now_ns)
        work += subscription.poll(lambda fragment: self._on_fragment(fragment, now_ns, on_request), MESSAGES_AT_ONCE)
        silent = [each for each in self._clients.values() if now_ns - each.since_ns >= self._timeout_ns]
        for client in silent:
            self.refuse(client, "nothing more to say here")
        return work

    def _take_changes(self, now_ns: int) -> int:
        work = 0
        while self._changes:
            available, image = self._changes.popleft()
            work += 1
            if not available:
                client = self._clients.get(image.session_id)
                if client is not None and client.image is image:
                    del self._clients[image.session_id]
                continue
            self._stats.handshakes += 1
            client = Handshake(image, address_of(image.source_identity), now_ns)
            self._clients[image.session_id] = client
            if image.term_length > self._max_term_length:
                self.refuse(client, f"a term of {image.term_length} bytes is too long")
        return work

    def _on_fragment(self, fragment: Fragment, now_ns: int, on_request: Callable[[Handshake, bytes], None]) -> None:
        # The image's handler ran before its first message could be polled, but possibly after the queue was emptied above.
        self._take_changes(now_ns)
        client = self._clients.get(fragment.header.session_id)
        if client is None:
            return
        client.requests += 1
        if client.requests > MAX_REQUESTS:
            self.refuse(client, "too many requests")
            return
        client.since_ns = now_ns
        # A message of several frames is not a HELLO, and is never reassembled.
        whole = fragment.header.flags & UNFRAGMENTED == UNFRAGMENTED and len(fragment) <= MAX_TEXT_LENGTH
        on_request(client, bytes(fragment) if whole else b"")

    def refuse(self, client: Handshake, reason: str) -> None:
        """Ask the driver to end the client's stream."""
        if self._clients.get(client.image.session_id) is client:
            del self._clients[client.image.session_id]
        self._stats.handshakes_refused += 1
        if not client.image.closed:
            # Under a flood the driver may be behind with its commands; then the stream ends by itself, later.
            with suppress(MainstemError):
                client.image.async_reject(reason)
