"""One client's control session: a state machine that also queues the responses to the client.

States, in order: INIT (adding the response publication and the counter), CONNECTING (waiting for the client's subscription),
CONNECTED (waiting for the authenticator's decision), CHALLENGED, AUTHENTICATED (repeating the OK until the first request),
ACTIVE, REJECTED, DONE. Every state has a deadline except AUTHENTICATED, in which the client may take any time, and ACTIVE, which
has one only while a response cannot be sent.

Nothing here blocks. If the client has no room for a response, the session queues it. Responses keep their order.

A client has proved nothing before AUTHENTICATED. Until its subscription has reported to the response publication, it may not even
be where its requests seem to come from. The driver sends a SETUP to the response channel every 100 ms, so unless every client is
accepted, the session gives up before these exceed three times what the client sent.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import TYPE_CHECKING, Any

from mainstem._internal.address_prefixes import AddressPrefixes, address_of
from mainstem._internal.clock import NEVER_NS, NS_PER_MS
from mainstem._internal.printable import printable
from mainstem.aeron.channel import ChannelUri, with_values
from mainstem.aeron.client.offer_status import OfferStatus
from mainstem.archive.channels import name_in
from mainstem.archive.messages import ResponseCode, encode
from mainstem.archive.server.access import Accept, AcceptAll, Challenge, Reject
from mainstem.archive.server.publications import AddingPublication
from mainstem.archive.server.request_errors import request_error
from mainstem.errors import ArchiveErrorCode, MainstemError

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstem.aeron.client import Aeron
    from mainstem.aeron.client.operation import Operation
    from mainstem.archive.messages import RecordingSignal
    from mainstem.archive.server.access import Authenticator
    from mainstem.archive.server.host_lookups import Lookup, Lookups
    from mainstem.archive.server.settings import ArchiveSettings

PROTOCOL_VERSION = 1 << 16 | 12 << 8
PROTOCOL_MAJOR = 1
REPEAT_NS = 200 * NS_PER_MS  # between two connect responses
CHECK_NS = 10 * NS_PER_MS  # between two checks of an idle session
SEND_ATTEMPTS = 3
MAX_QUEUED_BYTES = 256 << 10  # of the responses that wait for one client; max_queued_responses limits their number
MAX_TEXT_LENGTH = 1024  # characters of an error message: it can quote a channel and must fit into a response
SESSION_COUNTER = 113
# The bytes that may be sent to an unproven address for each byte from it (RFC 9000, 8.1), and what a driver sends there.
MAX_AMPLIFICATION = 3
SETUP_LENGTH, SETUP_INTERVAL_NS = 40, 100 * NS_PER_MS
IPC_SOURCE = "aeron:ipc"  # the source of an image over IPC
_PREFIXES = AddressPrefixes()


def patience_ns(request_length: int) -> int:
    """Return for how long a response publication may announce itself because of a request of this many bytes."""
    setups = MAX_AMPLIFICATION * request_length // SETUP_LENGTH
    # One is sent at the beginning, and one can be sent while the publication is being closed.
    return max(setups - 2, 0) * SETUP_INTERVAL_NS


def version_text(version: int) -> str:
    """Return a control protocol version as text, such as ``1.12.0``."""
    return f"{version >> 16}.{version >> 8 & 255}.{version & 255}"


class State(Enum):
    INIT = 0
    CONNECTING = 1
    CONNECTED = 2
    CHALLENGED = 3
    AUTHENTICATED = 4
    ACTIVE = 5
    REJECTED = 6
    DONE = 7


class ControlSession:
    """One control session. Call ``do_work`` until ``is_done``.

    ``request_length`` is the length of the datagram with the connect request, and ``counter`` the key and the label of the
    session's counter. ``log`` logs a text of a kind, and ``on_close`` is called once, when the session ends.

    It is a candidate of an ``Admission``: ``address`` shares a limit, and is empty over IPC.
    """

    def __init__(
        self,
        aeron: Aeron,
        settings: ArchiveSettings,
        authenticator: Authenticator,
        *,
        session_id: int,
        image: Any,
        request: Any,
        request_length: int,
        channel: str,
        counter: tuple[bytes, str],
        lookups: Lookups,
        log: Callable[[object, str], object],
        on_close: Callable[[ControlSession], object],
        now_ns: int,
    ) -> None:
        self.session_id = session_id
        source: str = image.source_identity
        self.address = "" if source == IPC_SOURCE else _PREFIXES.prefix_of(address_of(source))
        self.image = image
        self.image_id = image.correlation_id
        self.principal = b""
        self.listing: Any = None
        self.searches = self.tokens = 0  # that the session has now
        self.state = State.INIT
        self.rejects_image = ""  # why the archive rejects the image of the client's requests, once the session is done
        self._aeron = aeron
        self._settings = settings
        self._authenticator = authenticator
        self._correlation_id = request.correlation_id
        self._credentials = request.encoded_credentials
        self._challenge: bytes | None = None
        self._has_answer = True
        self._wrong_version = ""
        if request.version >> 16 != PROTOCOL_MAJOR:
            self._wrong_version = (
                f"invalid client version {version_text(request.version)}, archive is {version_text(PROTOCOL_VERSION)}"
            )
        self._channel, self._stream_id = channel, request.response_stream_id
        self._adding: AddingPublication | None = None
        self._publication: Any = None
        self._counter: Any = None
        self._lookups = lookups
        self._lookup: Lookup | None = None
        self._adding_ns = now_ns
        self._counter_key, self._counter_label = counter
        self._adding_counter: Operation[Any] | None = None
        self._log, self._on_close = log, on_close
        is_by_response = "control-mode=response" in channel  # sends nothing before the client asks for it
        self._is_limited = not (isinstance(authenticator, AcceptAll) or not self.address or is_by_response)
        self._patience_ns = min(
            patience_ns(request_length) if self._is_limited else settings.connect_timeout_ns,
            settings.connect_timeout_ns,
        )
        self._deadline_ns = now_ns + settings.connect_timeout_ns
        self._next_ns = now_ns
        self._check_ns = now_ns
        self._queue: deque[bytes] = deque()
        self._queued_bytes = 0
        self._now_ns = now_ns

    @property
    def is_done(self) -> bool:
        return self.state is State.DONE

    @property
    def is_active(self) -> bool:
        return self.state is State.ACTIVE

    @property
    def is_proven(self) -> bool:
        """Whether the client has authenticated."""
        return self.state in (State.AUTHENTICATED, State.ACTIVE)

    @property
    def is_silent(self) -> bool:
        """Whether another session may take the place of this one."""
        return not self.is_proven and not self.is_done

    def begin(self) -> None:
        """Begin. The next ``do_work`` adds what the session needs."""

    def drop(self, reason: str) -> None:
        """End the session because its place is needed."""
        del reason  # of a connection that has sent nothing
        self._abort("its client had not authenticated, and its place was needed")

    @property
    def max_message_length(self) -> int:
        """The length of the longest message that the client can receive, in bytes."""
        length: int = self._publication.max_message_length
        return length

    def is_quiet(self, now_ns: int) -> bool:
        """Whether a duty cycle can skip the session: it was checked recently and has nothing queued for the client."""
        return now_ns < self._check_ns and self.state is State.ACTIVE and not self._queue

    # -- messages from the client ------------------------------------------------------------------------------------

    def activate(self) -> bool:
        """Activate an authenticated session when a request arrives. Return whether the session is active."""
        if self.state is State.AUTHENTICATED:
            self.state = State.ACTIVE
            self._next_ns = self._now_ns + self._settings.session_liveness_check_interval_ns
        return self.state is State.ACTIVE

    def answer_challenge(self, correlation_id: int, credentials: bytes) -> None:
        """Accept the response to a challenge. Ignore it unless the session is CHALLENGED."""
        if self.state is State.CHALLENGED:
            self._correlation_id, self._credentials, self._has_answer = correlation_id, credentials, True

    # -- messages to the client --------------------------------------------------------------------------------------

    def respond(
        self, correlation_id: int, relevant_id: int = 0, code: ResponseCode = ResponseCode.OK, text: str = ""
    ) -> None:
        """Send a response, or queue it."""
        self._enqueue(self.encode_response(correlation_id, relevant_id, code, text))

    def fail(self, correlation_id: int, text: str, code: ArchiveErrorCode = ArchiveErrorCode.GENERIC) -> None:
        """Send an error, or queue it."""
        self.respond(correlation_id, code, ResponseCode.ERROR, text)

    def signal(
        self, signal: RecordingSignal, correlation_id: int, recording_id: int, subscription_id: int, position: int
    ) -> None:
        """Send a recording signal, or queue it."""
        self._enqueue(
            encode(
                "RecordingSignalEvent",
                control_session_id=self.session_id,
                correlation_id=correlation_id,
                recording_id=recording_id,
                subscription_id=subscription_id,
                position=position,
                signal=signal,
            )
        )

    def try_send(self, message: bytes) -> bool:
        """Send a message of a listing unless responses are queued. Return whether it was sent."""
        return not self._queue and self.is_active and self._send(message)

    def encode_response(self, correlation_id: int, relevant_id: int, code: ResponseCode, text: str = "") -> bytes:
        """Return an encoded response of this session."""
        return encode(
            "ControlResponse",
            control_session_id=self.session_id,
            correlation_id=correlation_id,
            relevant_id=relevant_id,
            code=code,
            version=PROTOCOL_VERSION,
            error_message=text[:MAX_TEXT_LENGTH].encode("ascii", "replace").decode("ascii"),
        )

    def _enqueue(self, message: bytes) -> None:
        if self.state is not State.ACTIVE:
            return  # the sender is a recording or a replay that has outlived its session
        if not self._queue and self._send(message):
            return
        if len(self._queue) >= self._settings.max_queued_responses:
            self._abort(f"{len(self._queue)} responses wait for the client, as many as max_queued_responses allows")
            return
        if self._queued_bytes + len(message) > MAX_QUEUED_BYTES:
            self._abort(f"{self._queued_bytes} bytes of responses wait for the client (limit {MAX_QUEUED_BYTES})")
            return
        self._queue.append(message)
        self._queued_bytes += len(message)

    def _send(self, message: bytes) -> bool:
        position = int(OfferStatus.ADMIN_ACTION)
        for _ in range(SEND_ATTEMPTS):
            position = self._publication.offer(message)
            if position != OfferStatus.ADMIN_ACTION:
                break
        if position > 0:
            if self.state is State.ACTIVE:
                self._deadline_ns = NEVER_NS
            return True
        if position in (OfferStatus.CLOSED, OfferStatus.MAX_POSITION_EXCEEDED):
            self._abort(f"the response publication is {OfferStatus(position).name}")
        elif position == OfferStatus.NOT_CONNECTED:
            self.close()
        elif self.state is State.ACTIVE and self._deadline_ns == NEVER_NS:
            self._deadline_ns = self._now_ns + self._settings.connect_timeout_ns
        return False

    # -- the states --------------------------------------------------------------------------------------------------

    def do_work(self, now_ns: int) -> int:
        """Advance the session. Return the work count."""
        self._now_ns = now_ns
        self._check_ns = now_ns + CHECK_NS
        if self.state is State.DONE:
            return 0
        if now_ns >= self._deadline_ns:
            if self.state is State.ACTIVE:
                limit = self._settings.connect_timeout_ns // NS_PER_MS
                self._abort(f"could not send responses for more than {limit} ms")
            else:
                self._abort(f"initial connection not established, state {self.state.name}")
            return 1
        step = _STEPS[self.state]
        before = self.state
        return int(step(self) or self.state is not before)

    def _init(self) -> bool:
        what = "response channel"
        try:
            if self._adding_counter is None:
                self._adding_counter = self._aeron.async_add_counter(
                    SESSION_COUNTER, self._counter_label, key=self._counter_key
                )
            if not self._has_numeric_channel():
                return False
            what = "response publication"
            if self._adding is None:
                self._adding_ns = self._now_ns
                self._adding = AddingPublication(self._aeron, self._channel, self._stream_id)
            if self._publication is None:
                self._publication = self._adding.poll()
            what = "counter"
            if self._counter is None:
                self._counter = self._adding_counter.poll()
        except MainstemError as error:
            self._abort(f"its {what} cannot be added: {error}")
            return True
        if self._publication is None or self._counter is None:
            return False
        self._counter.set_release(self.session_id)
        self.state = State.CONNECTING
        self._deadline_ns = self._adding_ns + self._patience_ns
        return True

    def _has_numeric_channel(self) -> bool:
        """Look up the channel's host if it is a name. Return whether it is known. Raises ArchiveError."""
        if self._adding is not None:
            return True
        values = ChannelUri.parse(self._channel).values
        key = next((each for each in ("endpoint", "control") if name_in(values.get(each, ""))), None)
        if key is None:
            return True
        host = name_in(values[key])
        if self._lookups.are_left_to_driver(host, values[key]):
            return True
        if self._lookup is None:
            self._lookup = self._lookups.start(host, self.address)
        if not self._lookup.is_done:
            return False
        if self._lookup.error:
            raise request_error(self._lookup.error)
        address, port = self._lookup.address, values[key].rpartition(":")[2]
        numeric = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        self._channel, self._lookup = with_values(self._channel, {key: numeric}), None
        return self._has_numeric_channel()

    def _connecting(self) -> bool:
        if self._publication.is_connected:
            self.state = State.CONNECTED
            self._deadline_ns = self._adding_ns + self._settings.connect_timeout_ns
            self._next_ns = self._now_ns
        return False

    def _connected(self) -> bool:
        if self._now_ns < self._next_ns:
            return False
        self._next_ns = self._now_ns + REPEAT_NS
        if self._wrong_version:
            return self._send(
                self.encode_response(self._correlation_id, self.session_id, ResponseCode.ERROR, self._wrong_version)
            )
        return self._authenticate()

    def _challenged(self) -> bool:
        return self._has_answer and self._authenticate()

    def _authenticate(self) -> bool:
        try:
            decision = self._authenticator.authenticate(self._credentials, self._challenge)
        except Exception as error:
            self._log("authenticator", f"session {self.session_id} is rejected: the authenticator failed: {error!r}")
            decision = Reject()
        if isinstance(decision, Accept):
            if self._send(self.encode_response(self._correlation_id, self.session_id, ResponseCode.OK)):
                self.principal = decision.principal
                self.state = State.AUTHENTICATED
                self._deadline_ns, self._next_ns = NEVER_NS, self._now_ns + REPEAT_NS
        elif isinstance(decision, Challenge) and self._challenge is None:
            challenge = encode(
                "Challenge",
                control_session_id=self.session_id,
                correlation_id=self._correlation_id,
                version=PROTOCOL_VERSION,
                encoded_challenge=decision.data,
            )
            if self._send(challenge):
                self._challenge, self._has_answer = decision.data, False
                self.state = State.CHALLENGED
        elif decision is not None:
            self.state = State.REJECTED
            self._next_ns = self._now_ns
        return decision is not None

    def _authenticated(self) -> bool:
        if not self._publication.is_connected:
            self.close()
        elif self._now_ns >= self._next_ns:
            self._next_ns = self._now_ns + REPEAT_NS
            return self._send(self.encode_response(self._correlation_id, self.session_id, ResponseCode.OK))
        return False

    def _active(self) -> bool:
        if not self._publication.is_connected:
            self.close()
            return True
        sent = 0
        while self._queue and self._send(self._queue[0]):
            self._queued_bytes -= len(self._queue.popleft())
            sent += 1
        if self._now_ns >= self._next_ns and not self._queue and not self.is_done:
            self._next_ns = self._now_ns + self._settings.session_liveness_check_interval_ns
            self._send(encode("Ping", control_session_id=self.session_id))
        return sent > 0

    def _rejected(self) -> bool:
        if self._now_ns < self._next_ns:
            return False
        self._next_ns = self._now_ns + REPEAT_NS
        return self._send(
            self.encode_response(
                self._correlation_id,
                ArchiveErrorCode.AUTHENTICATION_REJECTED,
                ResponseCode.ERROR,
                "authentication rejected",
            )
        )

    # -- the end -----------------------------------------------------------------------------------------------------

    def _abort(self, reason: str) -> None:
        if self.is_done:
            return
        text = f"control session {self.session_id} of {printable(self.image.source_identity)}: {reason}"
        self._log((self.state, self.address), text)
        if (
            self.is_proven or not self._is_limited
        ):  # a rejection is repeated, toward an address that may be somebody else's
            self.rejects_image = text[:1000]
        self.close()

    def close(self) -> None:
        """End the session; the client's subscription loses its image at once. Can be called twice."""
        if self.is_done:
            return
        self.state = State.DONE
        self._queue.clear()
        self.listing = None
        if self._adding_counter is not None:
            self._adding_counter.cancel()
        if self._adding is not None:
            self._adding.cancel()
        if self._publication is not None:
            self._publication.revoke()
        if self._counter is not None:
            self._counter.close()
        self._on_close(self)


_STEPS = {
    State.INIT: ControlSession._init,
    State.CONNECTING: ControlSession._connecting,
    State.CONNECTED: ControlSession._connected,
    State.CHALLENGED: ControlSession._challenged,
    State.AUTHENTICATED: ControlSession._authenticated,
    State.ACTIVE: ControlSession._active,
    State.REJECTED: ControlSession._rejected,
}
