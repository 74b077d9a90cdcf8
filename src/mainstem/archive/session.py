"""The client's end of a control session, without I/O: messages in, messages out.

Theory of operation. Each request carries a correlation id, and so does every message that the archive sends because of it.
``route`` decides where a message belongs: in the inbox of its request, in the events, or nowhere. The archive repeats the
response to a connect request until the first request, so ``route`` skips a response whose request no longer exists. An error
whose request no longer exists is a late error: the archive had accepted a recording, a replay or a replication, and something
failed afterward. It becomes an event, like a recording signal.

Connecting is a sequence of such requests. ``advance`` handles their responses and queues the next message: AuthConnectRequest,
ChallengeResponse if the archive sent a challenge, ArchiveIdRequest if the archive supports it, and KeepAliveRequest, which
activates the session.

A lost session is restarted, which forgets the open requests of the earlier session. ``generation`` tells the sessions apart.

``route`` returns a list and an item instead of storing the item, so that the caller can store it in a statement that no signal
handler interrupts (``mainstem.aeron.client.polled``).
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from mainstem._internal.frozen import frozen
from mainstem.archive.messages import NULL, MessageReader, RecordingSignal, ResponseCode, encode
from mainstem.errors import ArchiveError, ArchiveErrorCode, LocalProtocolError, RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstem.archive.messages import Message

PROTOCOL_VERSION = 1 << 16 | 12 << 8
KNOWS_ARCHIVE_ID = 1 << 16 | 11 << 8
MAX_EVENTS = 1024  # signals and late errors that have not been consumed; the oldest are dropped

_RESPONSES = frozenset({"ControlResponse", "Challenge", "RecordingDescriptor", "RecordingSubscriptionDescriptor"})


@frozen
class Signal:
    """Something that happened to a recording.

    Attributes:
        signal: What happened.
        recording_id: The recording; -1 at the end of a replication that created none.
        subscription_id: The archive's recording subscription, as ``start_recording`` returned it; -1 if there is none.
        position: The recording's position; -1 if there is none.
        correlation_id: The replication id if a replication caused the signal; otherwise the id of the request that caused it.
    """

    signal: RecordingSignal
    recording_id: int
    subscription_id: int
    position: int
    correlation_id: int


class Request:
    """A request, and the messages that the archive has sent because of it."""

    __slots__ = ("__weakref__", "correlation_id", "data", "generation", "inbox")

    def __init__(self, correlation_id: int, data: bytes, generation: int) -> None:
        self.correlation_id = correlation_id
        self.data = data
        self.generation = generation
        self.inbox: list[Message] = []


class ClientSession:
    """One control session.

    Attributes:
        control_session_id: The archive's id for the session; -1 until it is connected.
        generation: The number of restarts.
        step: What the session waits for while it connects.
        outgoing: Messages to send while it connects.
        events: Signals and late errors.
        replays: What gets the late error of a replay as its ``error``, by the correlation id of the replay's request.
    """

    def __init__(
        self,
        next_correlation_id: Callable[[], int],
        *,
        credentials: bytes = b"",
        on_challenge: Callable[[bytes], bytes] | None = None,
        client_info: str = "",
    ) -> None:
        self._next_correlation_id = next_correlation_id
        self._credentials = credentials
        self._on_challenge = on_challenge
        self._client_info = client_info
        self._connecting: Request | None = None
        # Weak, so that a request is forgotten even if an exception from a signal handler ends its call.
        self._requests: WeakValueDictionary[int, Request] = WeakValueDictionary()
        self.control_session_id = NULL
        self.archive_id = NULL
        self.version = 0
        self.is_connected = False
        self.generation = 0
        self.step = ""
        self.outgoing: deque[bytes] = deque()
        self.events: deque[Signal | ArchiveError] = deque(maxlen=MAX_EVENTS)
        self.replays: WeakValueDictionary[int, Any] = WeakValueDictionary()
        self.dropped_events = 0
        self.reader = MessageReader()
        self._nowhere: deque[Any] = deque(maxlen=0)

    @property
    def pending(self) -> int:
        return len(self._requests)

    def restart(self) -> None:
        """Forget the lost session, except for its events. ``connect`` begins the next one."""
        self.generation += 1
        self.control_session_id = self.archive_id = NULL
        self.version = 0
        self.is_connected = False
        self.step = ""
        self._connecting = None
        self._requests.clear()
        self.outgoing.clear()

    def connect(self, response_channel: str, response_stream_id: int) -> None:
        self._ask(
            "the response to the connect request",
            "AuthConnectRequest",
            response_stream_id=response_stream_id,
            version=PROTOCOL_VERSION,
            response_channel=response_channel,
            encoded_credentials=self._credentials,
            client_info=self._client_info,
        )

    def _ask(self, step: str, name: str, **values: Any) -> None:
        self.step = step
        self._connecting = request = self.open_request(name, **values)
        self.outgoing.append(request.data)

    def advance(self) -> None:
        """Handle the response to the current step of connecting, if it has arrived.

        Raises ArchiveError if the archive refused, and any exception from ``on_challenge``. CloseSessionRequest is queued in both
        cases.
        """
        while (request := self._connecting) is not None and request.inbox:
            message = request.inbox[0]
            self._connecting = None
            self.forget(request)
            self.control_session_id = message.control_session_id
            try:
                self._on_connecting(message)
            except BaseException:
                self.outgoing.clear()
                self.outgoing.append(self.closing())
                raise

    def _on_connecting(self, message: Message) -> None:
        if message.name == "Challenge":
            if self._on_challenge is None:
                raise LocalProtocolError("the archive sent a challenge: connect with on_challenge to answer it")
            credentials = self._on_challenge(message.encoded_challenge)
            step = "the response to the answered challenge"
            self._ask(step, "ChallengeResponse", encoded_credentials=bytes(credentials))
        elif message.code != ResponseCode.OK:
            raise response_error("connect to the archive", message)
        elif not self.version and message.version >= KNOWS_ARCHIVE_ID:
            self.version = message.version
            self._ask("the archive's id", "ArchiveIdRequest")
        else:
            if self.version:
                self.archive_id = message.relevant_id
            self.version = message.version
            self.is_connected = True
            self.step = ""
            self.outgoing.append(
                encode("KeepAliveRequest", control_session_id=self.control_session_id, correlation_id=NULL)
            )

    def open_request(self, name: str, /, **values: Any) -> Request:
        """Return a request to send. Raises ConfigurationError if a value does not fit."""
        correlation_id = self._next_correlation_id()
        if name != "AuthConnectRequest":
            values["control_session_id"] = self.control_session_id
        request = Request(correlation_id, encode(name, correlation_id=correlation_id, **values), self.generation)
        self._requests[correlation_id] = request
        return request

    def forget(self, request: Request) -> None:
        """Close a request. Later messages for it are skipped, except errors, which become events."""
        if self._requests.pop(request.correlation_id, None) is not None:
            for message in request.inbox[1:]:
                if message.name == "ControlResponse" and message.code == ResponseCode.ERROR:
                    self._make_room()
                    self.events.append(late_error(message))

    def closing(self) -> bytes:
        """Return the message that ends the session."""
        return encode("CloseSessionRequest", control_session_id=self.control_session_id)

    def route(self, data: bytes) -> tuple[list[Message] | deque[Any], Any]:
        """Return the list or queue where a message belongs, and the item to append."""
        message = self.reader.read(data)
        if message is None:
            return self._nowhere, None
        if self.control_session_id not in (NULL, message.values.get("control_session_id")):
            return self._nowhere, message
        if message.name in _RESPONSES:
            request = self._requests.get(message.correlation_id)
            if request is not None:
                return request.inbox, message
            if message.name == "ControlResponse" and message.code == ResponseCode.ERROR:
                self._make_room()
                error, replay = late_error(message), self.replays.get(message.correlation_id)
                if replay is not None:
                    replay.error = error
                return self.events, error
        elif message.name == "RecordingSignalEvent":
            signal = signal_of(message)
            if signal is not None:
                self._make_room()
                return self.events, signal
        return self._nowhere, message

    def _make_room(self) -> None:
        self.dropped_events += len(self.events) == MAX_EVENTS


def signal_of(message: Message) -> Signal | None:
    """Return the signal in a message; None if it is an unknown one from a newer archive."""
    try:
        signal = RecordingSignal(message.signal)
    except ValueError:
        return None
    return Signal(
        signal=signal,
        recording_id=message.recording_id,
        subscription_id=message.subscription_id,
        position=message.position,
        correlation_id=message.correlation_id,
    )


def response_error(what: str, message: Message) -> ArchiveError | RemoteProtocolError:
    """Return the error for a response whose code is not OK."""
    if message.code == ResponseCode.ERROR:
        code = ArchiveErrorCode(message.relevant_id)
        text = message.error_message or code.name
        return ArchiveError(f"{what}: {text}", code=code, correlation_id=message.correlation_id)
    if message.code == ResponseCode.RECORDING_UNKNOWN:
        code = ArchiveErrorCode.UNKNOWN_RECORDING
        text = f"{what}: unknown recording id: {message.relevant_id}"
        return ArchiveError(text, code=code, correlation_id=message.correlation_id)
    return RemoteProtocolError(f"{what}: unexpected response code {message.code}", rule="response code")


def late_error(message: Message) -> ArchiveError:
    """Return the error for something that the archive had accepted earlier."""
    code = ArchiveErrorCode(message.relevant_id)
    text = message.error_message or code.name
    return ArchiveError(f"the archive reports: {text}", code=code, correlation_id=message.correlation_id)
