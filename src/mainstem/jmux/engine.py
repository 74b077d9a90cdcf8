"""The part of the Jmux engine that both roles share. :mod:`.client_engine` and :mod:`.server_engine` add the rest.

:mod:`mainstem.mux.engine` describes the operations, their order, and what can be reordered. These modules manage rations and
route messages. The tables in :mod:`.state` decide which message may follow which.

A session is one request and its response. It has a client's half and a server's half, each NONE, OPEN, FINISHED (all data sent)
or TERMINATED (nothing more will be sent). The messages that an endpoint may send depend on its own half; whether an id may be
opened again depends on both.

Handshake. The client sends its eight-byte header first, and the server responds with its own. Messages may be sent only after
both have been exchanged (``established``). Until then everything waits in the control buffer and in the sessions' queues.

Rations. ``outbound`` is what the peer allows and this end has not used. ``inbound`` is what this end allows and the peer has not
used. A header subtracts its bytes from ``inbound``, and each byte that arrives is added to ``unconsumed`` until ``consume``.
Once the two, plus the bytes that a header has announced and that have not arrived, fall to half of the initial ration, one
IncrementRation restores it. The ration of a discarded session is not restored.

Sending. Control messages (Abort, Close, Acknowledgment, PingAck, IncrementRation) are sent before data. The eof of a request or
response is a flag of its last Data message, so it is sent in the session's turn. A separate Close is sent only if the response
ended before the request. Sessions with data and a ration take turns, each with one Data message of at most ``fragment_limit``
bytes.

At most once. ``delivery`` of a client's session is NONE only while nothing has been sent, or after the server has guaranteed that
it processed nothing (Abort without ``partial``, or Shutdown before it finished). The server keeps this guarantee by means of
``processing``, which is set once an application has seen any of the request. From then on, neither kind of guarantee can be sent.

Ending. The response to an Abort is an Abort, unless both sides have terminated. On the client, an id is free once the server has
terminated, the client has finished, and no acknowledgment is due. The server keeps a session whose client has only finished until
its id is opened again, because a late Acknowledgment, IncrementRation or Abort for it is legal.

Invariants: a session in ``sessions`` has not ended; after ``failure`` is set, every session has ended or failed, with exactly one
``SessionFailed`` event for each incomplete session, and only the control buffer (an Error or Shutdown message) is still sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NoReturn

from mainstem._core.mux.packets import take_data
from mainstem._internal.clock import seconds_ns
from mainstem.errors import ClosedError, ConnectionLost, LocalProtocolError, RemoteProtocolError, Timeout
from mainstem.jmux import codec, events
from mainstem.jmux.codec import CONNECTION_HEADER_LENGTH, MAX_RATION, MESSAGE_HEADER_LENGTH, Kind, Message
from mainstem.jmux.session import INFINITE, Session
from mainstem.jmux.settings import Settings
from mainstem.jmux.state import NEXT, Acknowledgment, HalfState, Input, Role
from mainstem.mux.engine import LONE_BYTES, MAX_OUTSTANDING_PINGS, SEND_LIMIT, BaseEngine, Rule
from mainstem.mux.heartbeat import Verdict

if TYPE_CHECKING:
    from mainstem.errors import MainstemError

_DATA = Kind.DATA


class JmuxEngine(BaseEngine[events.Event]):
    """Base class of a client's and a server's engine.

    If the specification forbids a command, it raises :class:`~mainstem.errors.LocalProtocolError` and sends nothing. After the
    connection has ended, commands raise :class:`~mainstem.errors.ClosedError`.

    If ``joins_events`` is set at the start, a whole request, or the end of a response, is one event instead of three
    (:class:`~.events.RequestReceived`, :class:`~.events.ResponseReceived`).
    """

    PROTOCOL = "jmux"
    settings: Settings
    role: ClassVar[Role]
    joins_events = False

    def __init__(self, settings: Settings | None = None, *, now_ns: int = 0, peer: str = "peer") -> None:
        settings = settings or Settings()
        super().__init__(settings, now_ns=now_ns, peer=peer)
        self._header = bytearray()  # this end's header, until it is sent
        self.established = False
        self._has_header = False  # whether the peer's header has arrived, valid or not
        self.sessions: dict[int, Session] = {}
        self._lone_limit = min(settings.fragment_limit, LONE_BYTES)
        self._inbound_ration = settings.initial_ration or INFINITE
        self._outbound_ration = 0
        self._increments: list[Session] = []
        self._body: Kind | None = None
        self._body_flags = 0
        self._body_session: Session | None = None
        self._body_left = 0
        self._detail = bytearray()
        self._pings: dict[int, int] = {}
        self._next_cookie = 0
        limit = settings.handshake_timeout
        self._handshake_deadline_ns = None if limit is None else now_ns + seconds_ns(limit)

    # ---- receiving

    def receive_data(self, data: bytes | bytearray | memoryview, now_ns: int = 0) -> None:
        if self.failure is not None:
            self._check_alive()
        if self._control:
            self._check_control_limit()
        heartbeat = self._heartbeat
        heartbeat.heard_ns = now_ns
        if heartbeat.pinged_ns >= 0:
            heartbeat.pinged_ns = -1
            self.timeout_moved = True
        view = data if isinstance(data, memoryview) else memoryview(data)
        position, end = 0, len(view)
        while position < end and self.failure is None:
            if self._body is not None:
                step = min(end - position, self._body_left)
                self._receive_body(view[position : position + step])
                position += step
                continue
            carry = self._carry
            # Most input is complete Data messages. Everything else is processed step by step.
            if not carry and self.established and (message := take_data(view, position)) is not None:
                session_id, flags, body, position = message
                self._receive_whole(session_id, flags, body)
                continue
            if not carry and self.established and end - position >= MESSAGE_HEADER_LENGTH:
                self._receive_header(view, position, now_ns)
                position += MESSAGE_HEADER_LENGTH
                continue
            length = MESSAGE_HEADER_LENGTH if self.established else CONNECTION_HEADER_LENGTH
            step = min(length - len(carry), end - position)
            carry += view[position : position + step]
            position += step
            if not self.established:
                self._check_magic(carry)
            if len(carry) == length:
                self._carry = bytearray()
                if self.established:
                    self._receive_header(memoryview(carry), 0, now_ns)
                else:
                    self._has_header = True
                    self._receive_connection_header(carry)

    def receive_eof(self, now_ns: int = 0) -> None:  # noqa: ARG002 - all operations that take input take the time
        self._check_alive()
        if self._carry or self._body is not None:
            self._violated("truncated-message", "the byte stream ended inside a message")
        self.events.append(events.ConnectionEnded())
        left = sum(not self._is_complete(session) for session in self.sessions.values())
        if not self.established:
            self.fail(ConnectionLost(f"{self.peer_name} ended the connection before its jmux header came"))
        elif left:
            requests = "a request was" if left == 1 else f"{left} requests were"
            self.fail(ConnectionLost(f"{self.peer_name} ended the jmux connection while {requests} open"))
        else:
            self.fail(ClosedError(f"{self.peer_name} ended the jmux connection"))

    @property
    def open_sessions(self) -> list[Session]:
        """The sessions that are not over. A session that is stays in ``sessions`` until the client uses its id again."""
        sessions = list(self.sessions.values())
        return [each for each in sessions if not self._is_complete(each) or each.unconsumed or each.queue.size]

    def _is_complete(self, session: Session) -> bool:
        """Return whether a session loses nothing if the connection ends."""
        raise NotImplementedError

    def _check_magic(self, carry: bytearray) -> None:
        # Check each byte as it arrives, so that a peer that does not speak Jmux gets neither a header nor an Error message.
        if not codec.MAGIC.startswith(bytes(carry[:4])):
            message = f"{self.peer_name} does not speak jmux: it began with {bytes(carry[:4]).hex()}"
            error = RemoteProtocolError(message, rule="bad-magic", peer=self.peer_name)
            self._control.clear()
            self.fail(error)
            raise error

    def _receive_connection_header(self, data: bytearray) -> None:
        raise NotImplementedError

    def _establish(self, header: codec.ConnectionHeader) -> None:
        self._outbound_ration = header.initial_ration or INFINITE
        self.established = self.timeout_moved = True
        self.events.append(events.ConnectionEstablished())

    def _receive_header(self, view: memoryview, position: int, now_ns: int) -> None:
        first, second, value = codec.HEADER.unpack_from(view, position)
        kind = codec.KINDS[first]
        if kind is _DATA and second < codec.MAX_SESSIONS:
            flags = first & 0x1E
            self._body_session = session = self._receive_data_header(second, flags)
            if value > session.inbound:
                self._exceeded(session, value)
            if session.inbound < INFINITE:
                session.inbound -= value
            if value:
                self._body, self._body_flags, self._body_left = _DATA, flags, value
            elif flags & codec.EOF:
                self._finish_data(session, flags)
            return
        try:
            decoded = codec.decode_message(view, position)
        except ValueError as error:
            self._violated("bad-message-header", str(error))
        assert decoded is not None
        self._receive_message(decoded, now_ns)

    def _receive_message(self, message: Message, now_ns: int) -> None:
        kind = message.kind
        if kind is Kind.SHUTDOWN and self.role is Role.SERVER:
            self._violated("shutdown-sent-by-client", "Shutdown sent by client")
        if kind is Kind.ABORT and message.flags & codec.PARTIAL and self.role is Role.SERVER:
            self._violated("partial-sent-by-client", "Abort/partial sent by client")
        if kind in codec.WITH_BODY:
            if kind is Kind.ABORT:
                self._body_session = self._session_for(message, Input.ABORT)
            self._detail.clear()
            if message.value:
                self._body, self._body_flags, self._body_left = kind, message.flags, message.value
            else:
                self._finish_body(kind, message.flags)
        elif kind is Kind.INCREMENT_RATION:
            self._receive_increment(self._session_for(message, Input.INCREMENT), message.increment)
        elif kind is Kind.PING:
            self._control += codec.encode_connection(Kind.PING_ACK, cookie=message.value)
            self.events.append(events.PingReceived(message.value))
        elif kind is Kind.PING_ACK:
            if message.value not in self._pings:
                self._violated("unexpected-ping-cookie", f"unexpected ping cookie: {message.value}")
            self.events.append(events.PingAcknowledged(message.value, now_ns - self._pings.pop(message.value)))
        elif kind is Kind.CLOSE:
            self._receive_close(self._session_for(message, Input.CLOSE))
        else:
            self._receive_acknowledgment(self._session_for(message, Input.ACKNOWLEDGMENT))

    def _session_for(self, message: Message, sent: Input) -> Session:
        """Return the session of a message after updating its sender's half; fail if the message breaks a rule."""
        session = self.sessions.get(message.session_id)
        peer = self.role ^ 1
        half = HalfState.NONE if session is None else session.peer
        following = NEXT[peer][half][sent]
        if isinstance(following, Rule):
            self._violated(following, REPORTS[following].format(message.session_id))
        assert session is not None
        session.peer = following
        return session

    def _receive_whole(self, session_id: int, flags: int, body: bytes) -> None:
        session = self.sessions.get(session_id)
        if flags or session is None or session.peer is not HalfState.OPEN:  # else it breaks no rule
            session = self._receive_data_header(session_id, flags)
        length = len(body)
        if length > session.inbound:
            self._exceeded(session, length)
        if session.inbound < INFINITE:
            session.inbound -= length
        if length and not session.discarding:
            session.unconsumed += length
            self.events.append(events.DataReceived(session, body))
        if flags & codec.EOF:
            self._finish_data(session, flags)

    def _receive_data_header(self, session_id: int, flags: int) -> Session:
        raise NotImplementedError

    def _receive_body(self, piece: memoryview) -> None:
        self._body_left -= len(piece)
        kind = self._body
        assert kind is not None
        if kind is _DATA:
            session = self._body_session
            assert session is not None
            if not session.discarding:
                session.unconsumed += len(piece)
                self.events.append(events.DataReceived(session, bytes(piece)))
            if not self._body_left:
                self._body = None
                if self._body_flags & codec.EOF:
                    self._finish_data(session, self._body_flags)
            return
        if kind is not Kind.NO_OPERATION:
            self._detail += piece
        if not self._body_left:
            self._body = None
            self._finish_body(kind, self._body_flags)

    def _finish_body(self, kind: Kind, flags: int) -> None:
        detail = bytes(self._detail)
        if kind is Kind.ABORT:
            assert self._body_session is not None
            self._receive_abort(self._body_session, bool(flags & codec.PARTIAL), detail)
        elif kind is Kind.ERROR:
            self.events.append(events.ErrorReceived(detail))
            text = detail.decode("utf-8", "replace")
            self.fail(RemoteProtocolError(f"{self.peer_name} reports an error of ours: {text}", rule="error-received"))
        elif kind is Kind.SHUTDOWN:
            self._receive_shutdown(detail)

    def _finish_data(self, session: Session, flags: int) -> None:
        raise NotImplementedError

    def _receive_abort(self, session: Session, partial: bool, detail: bytes) -> None:
        raise NotImplementedError

    # These are not called for the role whose peer cannot send the message.

    def _receive_shutdown(self, detail: bytes) -> None:
        raise NotImplementedError

    def _receive_close(self, session: Session) -> None:
        raise NotImplementedError

    def _receive_acknowledgment(self, session: Session) -> None:
        raise NotImplementedError

    def _receive_increment(self, session: Session, increment: int) -> None:
        if session.local is not HalfState.OPEN or session.outbound >= INFINITE:
            return
        if session.outbound + increment > MAX_RATION:
            self._violated("ration-overflow", f"ration overflow: {increment} on top of {session.outbound}")
        session.outbound += increment
        if session.queue.size:
            self._ready.add(session)

    # ---- commands

    def write(self, session: Session, data: bytes | bytearray | memoryview) -> None:
        """Queue bytes of the request or response, which are sent as the ration and turns allow."""
        if self.failure is not None:
            self._check_alive()
        if session.eof_wanted or session.ended or session.local >= HalfState.FINISHED:
            raise LocalProtocolError(f"data on finished session {session.id}", rule="data-on-finished-session")
        session.queue.append(data)
        if not session.scheduled and session.queue.size:
            self._ready.add(session)

    def flush(self, session: Session) -> None:
        """Open the session on the wire before there is data, for clients that read first."""
        if session.local is HalfState.NONE and not session.ended:
            session.flush_wanted = True
            self._ready.add(session)

    def consume(self, session: Session, count: int) -> None:
        """Free the space of bytes that were handed out, and restore the ration once it has fallen to half of its initial value."""
        if not 0 <= count <= session.unconsumed:
            raise LocalProtocolError(
                f"{count} bytes of session {session.id} cannot be consumed: {session.unconsumed} were handed out",
                rule="consume",
            )
        session.unconsumed -= count
        session.processing = True
        left = (self._inbound_ration >> 1) - session.unconsumed - session.inbound
        if left >= 0 and not session.increment_due and self._arriving(session) <= left and self._may_increment(session):
            session.increment_due = True
            self._increments.append(session)

    def increment(self, session: Session, amount: int) -> None:
        """Add to the peer's ration explicitly."""
        self._check_alive()
        self._check_may(session, Input.INCREMENT, "an increment")
        if session.inbound >= INFINITE or session.inbound + amount > MAX_RATION:
            raise LocalProtocolError(f"an increment of {amount} on top of {session.inbound}", rule="ration-overflow")
        try:
            message = codec.encode_increment(session.id, amount)
        except ValueError as error:
            raise LocalProtocolError(str(error), rule="increment-not-expressible") from None
        self._control += message
        session.inbound += amount

    def discard(self, session: Session) -> None:
        """Drop data that still arrives, and stop restoring the ration."""
        session.discarding = True
        session.unconsumed = 0

    def ping(self, *, now_ns: int = 0) -> int:
        """Send a Ping; :class:`~.events.PingAcknowledged` follows."""
        self._check_alive()
        if len(self._pings) >= MAX_OUTSTANDING_PINGS:
            raise LocalProtocolError(f"{MAX_OUTSTANDING_PINGS} pings wait for an answer already", rule="ping-limit")
        while self._next_cookie in self._pings:
            self._next_cookie = (self._next_cookie + 1) & 0xFFFF
        cookie = self._next_cookie
        self._next_cookie = (cookie + 1) & 0xFFFF
        self._pings[cookie] = now_ns
        self._control += codec.encode_connection(Kind.PING, cookie=cookie)
        return cookie

    def no_operation(self) -> None:
        """Send a NoOperation of four bytes (never more: some peers cannot skip a body)."""
        self._check_alive()
        self._control += codec.encode_connection(Kind.NO_OPERATION)

    # ---- sending

    @property
    def wants_to_send(self) -> bool:
        if self._header:
            return True
        if not self.established and not self._may_send():
            return False
        return bool(self._control or self._increments or (self._ready.waiting and self.failure is None))

    def segments_to_send(self, limit: int = SEND_LIMIT) -> list[bytes | memoryview]:
        out: list[bytes | memoryview] = []
        if self._header:
            out.append(bytes(self._header))
            self._header.clear()
        if self.established or self._may_send():
            if self._increments:
                self._emit_increments()
            if self._control:
                out.append(bytes(self._control))
                self._control.clear()
            if self._ready.waiting and self.failure is None:
                self._ready.run(limit, out, self._turn)
        return out

    def _may_send(self) -> bool:
        """Return whether messages can be sent yet. The last one of a failed connection also requires the peer's header."""
        return self.established or (self._has_header and self.failure is not None)

    def _turn(self, session: Session, out: list[bytes | memoryview]) -> int:
        if session.ended or session.local >= HalfState.FINISHED:
            return 0
        queue = session.queue
        count = min(queue.size, session.outbound, self.settings.fragment_limit)
        eof = session.eof_wanted and count == queue.size
        if not (count or eof or (session.flush_wanted and session.local is HalfState.NONE)):
            return 0
        flags = 0
        if session.local is HalfState.NONE:  # a client's, whose first message opens the session
            flags = codec.OPEN
            session.local = session.peer = HalfState.OPEN
        if eof:
            flags |= codec.EOF
            session.local = HalfState.FINISHED
            if self.role is Role.SERVER:
                session.response_sent = True
                if session.peer is HalfState.FINISHED or session.close_wanted:
                    flags |= codec.CLOSE
                    session.local = HalfState.TERMINATED
                if session.ack_required:
                    flags |= codec.ACK_REQUIRED
                    session.ack = Acknowledgment.REQUESTED
        out.append(codec.HEADER.pack(codec.DATA | flags, session.id, count))
        if count:
            queue.take(count, out)
            session.sent += count
            if session.outbound < INFINITE:
                session.outbound -= count
        if queue.size or session.notify_below >= 0:
            self._after_turn(session)
        if eof and session.peer is HalfState.TERMINATED:
            self._end_if_done(session)
        return 4 + count

    def _send_abort(self, session: Session, detail: bytes = b"", *, partial: bool = False) -> None:
        session.local = HalfState.TERMINATED
        session.unsent += session.queue.truncate(0)
        self.discard(session)
        flags = codec.PARTIAL if partial else 0
        self._control += codec.encode_session(Kind.ABORT, session.id, flags=flags, body=detail)

    def _emit_increments(self) -> None:
        for session in self._increments:
            session.increment_due = False
            if not self._may_increment(session):
                continue
            held = session.unconsumed + session.inbound + self._arriving(session)
            amount = codec.largest_increment(self._inbound_ration - held)
            if amount > 0:
                session.inbound += amount
                self._control += codec.encode_increment(session.id, amount)
        self._increments.clear()

    def _arriving(self, session: Session) -> int:
        """Return the number of the session's bytes that a header has announced and that have not arrived."""
        return self._body_left if self._body is not None and self._body_session is session else 0

    def _may_increment(self, session: Session) -> bool:
        """Return whether more data can arrive on the session, and this end is allowed to ask for it."""
        return (
            not session.discarding
            and session.inbound < INFINITE
            and session.peer is HalfState.OPEN
            and session.local in (HalfState.OPEN, HalfState.FINISHED)
            and self.failure is None
        )

    def _after_turn(self, session: Session) -> None:
        if session.queue.size and session.outbound:
            self._ready.add(session)
        if session.queue.size <= session.notify_below:
            session.notify_below = -1
            self.events.append(events.SessionDrained(session))

    # ---- timeouts

    def next_timeout_ns(self) -> int | None:
        if self.failure is not None:
            return None
        if not self.established:
            return self._handshake_deadline_ns
        return self._heartbeat.next_timeout_ns()

    def handle_timeout(self, now_ns: int) -> None:
        self._check_alive()
        if not self.established:
            limit, deadline_ns = self.settings.handshake_timeout, self._handshake_deadline_ns
            if limit is not None and deadline_ns is not None and now_ns >= deadline_ns:
                self._time_out("did not send its connection header", limit)
            return
        verdict = self._heartbeat.check(now_ns)
        if verdict is Verdict.DEAD:
            self._time_out("did not answer a ping", self.settings.ping_timeout)
        if verdict is Verdict.PING and len(self._pings) < MAX_OUTSTANDING_PINGS:
            self.ping(now_ns=now_ns)

    def _time_out(self, what: str, timeout: float) -> NoReturn:
        error = Timeout(f"{self.peer_name} {what} for {timeout:g} s", timeout=timeout)
        self.fail(error)
        raise error

    # ---- internals

    def fail(self, error: MainstemError) -> None:
        """End the connection from outside, for example because its transport broke. All incomplete sessions fail."""
        if self.failure is not None:
            return
        self.failure = error
        for session in list(self.sessions.values()):
            self._fail_session(session)
        self.sessions.clear()

    def _fail_session(self, session: Session) -> None:
        if self._is_complete(session):
            session.ended = True
            return
        session.unsent += session.queue.truncate(0)
        session.ended = session.failed = True
        self.events.append(events.SessionFailed(session))

    def _end_if_done(self, session: Session) -> None:
        """End a session that needs nothing more from either end."""
        raise NotImplementedError

    def _end(self, session: Session) -> None:
        if session.ended:
            return
        session.ended = True
        if self.sessions.get(session.id) is session:
            del self.sessions[session.id]
        if session.queue.size:
            session.unsent += session.queue.truncate(0)
        self.events.append(events.SessionEnded(session))

    def _check_may(self, session: Session, sent: Input, what: str) -> None:
        following = NEXT[self.role][HalfState.TERMINATED if session.ended else session.local][sent]
        if isinstance(following, Rule):
            raise LocalProtocolError(f"{what} on session {session.id} is forbidden now ({following})", rule=following)

    def _exceeded(self, session: Session, length: int) -> NoReturn:
        report = f"input ration exceeded: {length} bytes with {session.inbound} left"
        self._violated("input-ration-exceeded", report)

    def _violated(self, rule: str, report: str) -> NoReturn:
        """End the connection because the peer broke a rule. ``report`` is the detail of the Error message."""
        if not self.established:
            self._control.clear()
        self._control += codec.encode_connection(Kind.ERROR, body=report.encode()[: codec.MAX_LENGTH])
        error = RemoteProtocolError(f"{self.peer_name} broke jmux: {report}", rule=rule, peer=self.peer_name)
        self._body = None
        self.fail(error)
        raise error


# The details of Error messages, in the wording that implementations share.
REPORTS = {
    "inactive-session": "inactive sessionID: {}",
    "open-on-open-session": "Data/open on open session: {}",
    "open-before-previous-session-terminated": "Data/open before previous session terminated",
    "data-on-finished-session": "Data on finished session: {}",
    "close-on-open-session": "Close on open session: {}",
    "close-sent-by-client": "Close sent by client",
    "open-sent-by-server": "remote endpoint attempted to open session",
    "acknowledgment-sent-by-server": "Acknowledgment sent by server",
}
