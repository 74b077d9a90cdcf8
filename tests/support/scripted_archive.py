"""The archive's side of control sessions, scripted by a test: it answers requests by name and sends what the test tells it to."""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Self

from mainstem.aeron.client.client import Aeron
from mainstem.archive.messages import decode, encode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import TracebackType

    from mainstem.archive.messages import Message

    Answer = Callable[[Message], Iterable[tuple[str, dict[str, Any]]]]

SESSION = 71
STREAM_IDS = itertools.count(5000)  # one for each archive, so that none receives leftovers of another's requests
VERSION = 0x010C00


def ok(relevant_id: int = 0, *, code: int = 0, text: str = "") -> Answer:
    """Return an answer that sends one response."""
    values = {"relevant_id": relevant_id, "code": code, "version": VERSION, "error_message": text}
    return lambda _: [("ControlResponse", dict(values))]


def error(code: int, text: str) -> Answer:
    """Return an answer that sends an error."""
    return ok(code, code=1, text=text)


def nothing(_: Message) -> list[tuple[str, dict[str, Any]]]:
    """Send no answer."""
    return []


class ScriptedArchive:
    """Serves one client at a time over IPC, in a thread."""

    def __init__(self, directory: str, **answers: Answer) -> None:
        self.answers: Mapping[str, Answer] = {
            "AuthConnectRequest": ok(SESSION),
            "ArchiveIdRequest": ok(42),
            "KeepAliveRequest": nothing,
            "CloseSessionRequest": nothing,
            "StartPositionRequest": ok(0),
            "StopPositionRequest": ok(-1),
            "MaxRecordedPositionRequest": ok(0),
        } | answers
        self.received: list[Message] = []
        self.sent = 0
        self._outgoing: deque[bytes] = deque()
        self._aeron = Aeron.connect(directory)
        self.stream_id = next(STREAM_IDS)
        self._requests = self._aeron.add_subscription("aeron:ipc", self.stream_id)
        self._responses: Any = None
        self._running = True
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @property
    def names(self) -> list[str]:
        """Return the names of the requests received."""
        return [message.name for message in self.received]

    def say(self, name: str, *, correlation_id: int, **values: Any) -> None:
        """Send a message to the client."""
        ids = {} if name == "Ping" else {"correlation_id": correlation_id}
        self._outgoing.append(encode(name, control_session_id=SESSION, **ids, **values))

    def hang_up(self) -> None:
        """Close the response stream."""
        self._responses.revoke()

    def go_away(self) -> None:
        """Stop reading requests until ``come_back``."""
        self._requests.close()

    def come_back(self) -> None:
        """Resume reading requests."""
        self._requests = self._aeron.add_subscription("aeron:ipc", self.stream_id)

    def _run(self) -> None:
        while self._running:
            for data in [] if self._requests.closed else self._requests.poll_bytes(10):
                message = decode(data)
                self.received.append(message)
                if message.name == "AuthConnectRequest":
                    self._connect(message)
                for name, values in self.answers[message.name](message):
                    self.say(name, correlation_id=message.correlation_id, **values)
            while self._outgoing and self._responses is not None and self._responses.offer(self._outgoing[0]) > 0:
                self._outgoing.popleft()
                self.sent += 1
            time.sleep(0.0005)

    def _connect(self, message: Message) -> None:
        if self._responses is not None:
            self._responses.close()
        self._responses = self._aeron.add_exclusive_publication(message.response_channel, message.response_stream_id)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running = False
        self._thread.join()
        self._aeron.close()
