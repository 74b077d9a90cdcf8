"""The server's end of a Jmux connection. :mod:`.engine` has the theory of operation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem.errors import ClosedError, LocalProtocolError
from mainstem.jmux import codec, events
from mainstem.jmux.codec import Kind
from mainstem.jmux.engine import REPORTS, JmuxEngine
from mainstem.jmux.session import INFINITE, Session
from mainstem.jmux.state import MAY_OPEN, NEXT, Acknowledgment, HalfState, Input, Role
from mainstem.mux.engine import Rule

if TYPE_CHECKING:
    from mainstem.jmux.settings import Settings


class ServerEngine(JmuxEngine):
    """The server's end, without I/O. It receives requests and sends their responses."""

    role = Role.SERVER

    def __init__(self, settings: Settings | None = None, *, now_ns: int = 0, peer: str = "client") -> None:
        super().__init__(settings, now_ns=now_ns, peer=peer)

    # ---- commands

    def finish(self, session: Session, *, ack_required: bool = False) -> None:
        """Mark the response as complete. If the request is complete too, Close is sent with the last bytes, otherwise later."""
        if self.failure is not None:
            self._check_alive()
        if session.eof_wanted or session.ended or session.local >= HalfState.FINISHED:
            raise LocalProtocolError(f"eof on session {session.id} a second time", rule="data-on-finished-session")
        session.eof_wanted = True
        session.ack_required = ack_required
        if not session.scheduled:
            self._ready.add(session)

    def message_of(self, session: Session) -> bytes:
        """Finish a response whose rest is short and need not wait: return its last message, and count it as sent.

        Empty if something else is queued, or if the rest exceeds the ration or the length of a message. Then call ``finish``.
        """
        length = session.queue.size
        if (
            length > self._lone_limit
            or length > session.outbound
            or session.peer is not HalfState.FINISHED
            or session.local is not HalfState.OPEN
            or session.ack_required
            or session.notify_below >= 0
            or self._control
            or self._increments
            or self.failure is not None
            or not (self._ready.take_only(session) if session.scheduled else not self._ready.waiting)
        ):
            return b""
        message = [codec.HEADER.pack(codec.DATA | codec.EOF | codec.CLOSE, session.id, length)]
        session.queue.take(length, message)
        if session.outbound < INFINITE:
            session.outbound -= length
        session.eof_wanted = True
        session.local = HalfState.TERMINATED
        session.response_sent = True
        session.sent += length
        return b"".join(message)

    def close(self, session: Session) -> None:
        """End a session whose response is finished before its request, and drop the rest of the request."""
        self._check_alive()
        if session.local is HalfState.TERMINATED or session.ended or session.close_wanted:
            return
        if not session.eof_wanted:
            raise LocalProtocolError(f"Close on open session {session.id}", rule="close-on-open-session")
        self.discard(session)
        session.close_wanted = True
        if session.local is HalfState.FINISHED:
            self._send_close(session)
        else:
            self._ready.add(session)

    def abort(self, session: Session, detail: bytes = b"", *, partial: bool = True) -> None:
        """End the session immediately. ``partial=False`` guarantees that nothing of the request was processed."""
        self._check_alive()
        self._check_may(session, Input.ABORT, "Abort")
        if not partial and session.processing:
            raise LocalProtocolError(
                f"session {session.id} is being processed: its abort cannot say that nothing was", rule="partial"
            )
        self._send_abort(session, detail, partial=partial)
        self._end_if_done(session)

    def shut_down(self, detail: bytes = b"") -> None:
        """Send Shutdown, the last message, after which the client can retry every request that was not finished."""
        self._check_alive()
        busy = [s.id for s in self.sessions.values() if s.local is HalfState.OPEN and s.processing]
        if busy:
            raise LocalProtocolError(f"sessions {busy} are being processed: Shutdown would deny that", rule="shutdown")
        self._control += codec.encode_connection(Kind.SHUTDOWN, body=detail)
        self.fail(ClosedError(f"the jmux connection to {self.peer_name} was shut down here"))

    # ---- receiving

    def _receive_connection_header(self, data: bytearray) -> None:
        header = codec.decode_connection_header(data)
        self._header += codec.encode_connection_header(self.settings.initial_ration)
        negotiates = header.version > codec.VERSION and header.reserved & codec.NEGOTIATE
        if header.version != codec.VERSION and not negotiates:
            self._violated("bad-version", f"bad protocol version: {header.version}")
        self._establish(header)

    def _receive_whole(self, session_id: int, flags: int, body: bytes) -> None:
        previous = self.sessions.get(session_id)
        if (
            flags != codec.OPEN | codec.EOF
            or not self.joins_events
            or len(body) > self._inbound_ration
            or (
                previous is not None
                and (
                    previous.peer is not HalfState.FINISHED
                    or previous.local is not HalfState.TERMINATED
                    or previous.ack is Acknowledgment.REQUESTED
                )
            )
        ):
            super()._receive_whole(session_id, flags, body)
            return
        if previous is not None:
            previous.peer = HalfState.TERMINATED
            previous.ended = True
        session = Session(session_id, inbound=self._inbound_ration, outbound=self._outbound_ration)
        if session.inbound < INFINITE:
            session.inbound -= len(body)
        session.peer = HalfState.FINISHED
        session.local = HalfState.OPEN
        session.unconsumed = len(body)
        self.sessions[session_id] = session
        self.events.append(events.RequestReceived(session, body))

    def _receive_data_header(self, session_id: int, flags: int) -> Session:
        if flags & codec.ACK_REQUIRED:
            self._violated("ack-required-sent-by-client", "Data/ackRequired sent by client")
        if flags & codec.CLOSE:
            self._violated("close-sent-by-client", REPORTS["close-sent-by-client"])
        if flags & codec.OPEN:
            return self._receive_open(session_id, flags)
        known = self.sessions.get(session_id)
        sent = Input.EOF if flags & codec.EOF else Input.DATA
        following = NEXT[Role.CLIENT][HalfState.NONE if known is None else known.peer][sent]
        if isinstance(following, Rule):
            self._violated(following, REPORTS[following].format(session_id))
        assert known is not None
        return known

    def _receive_open(self, session_id: int, flags: int) -> Session:
        previous = self.sessions.get(session_id)
        if previous is not None:
            if (previous.peer, previous.local) not in MAY_OPEN:
                following = NEXT[Role.CLIENT][previous.peer][Input.OPEN_EOF if flags & codec.EOF else Input.OPEN]
                assert isinstance(following, Rule)
                self._violated(following, REPORTS[following].format(session_id))
            previous.peer = HalfState.TERMINATED
            self._end(previous)
        session = Session(session_id, inbound=self._inbound_ration, outbound=self._outbound_ration)
        session.peer = session.local = HalfState.OPEN
        self.sessions[session_id] = session
        self.events.append(events.SessionOpened(session))
        return session

    def _finish_data(self, session: Session, flags: int) -> None:  # noqa: ARG002 - a client's Data has no other flag
        session.peer = HalfState.FINISHED
        if session.local is not HalfState.TERMINATED:
            self.events.append(events.DataFinished(session, False))
        if session.local is HalfState.FINISHED:
            self._send_close(session)

    def _receive_abort(self, session: Session, partial: bool, detail: bytes) -> None:  # noqa: ARG002 - clients never set it
        if session.local is not HalfState.TERMINATED:
            self._send_abort(session, partial=True)
            self.events.append(events.SessionAborted(session, True, detail))
        self._end_if_done(session)

    def _receive_acknowledgment(self, session: Session) -> None:
        if session.ack is Acknowledgment.NOT_REQUESTED:
            asked = session.ack_required and not session.ended
            report = "acknowledgment received before EOF sent" if asked else "acknowledgment not requested"
            self._violated("acknowledgment-not-requested", report)
        if session.ack is Acknowledgment.SENT:
            self._violated("duplicate-acknowledgment", "duplicate acknowledgment")
        session.ack = Acknowledgment.SENT
        self.events.append(events.Acknowledged(session, True))

    # ---- sending

    def _send_close(self, session: Session) -> None:
        session.local = HalfState.TERMINATED
        self._control += codec.encode_session(Kind.CLOSE, session.id)
        self._end_if_done(session)

    # ---- internals

    def _is_complete(self, session: Session) -> bool:
        return session.local is HalfState.TERMINATED and session.peer is HalfState.FINISHED

    def _fail_session(self, session: Session) -> None:
        self._refuse_acknowledgment(session)
        super()._fail_session(session)

    def _refuse_acknowledgment(self, session: Session) -> None:
        """Report a requested acknowledgment that can no longer arrive as negative."""
        if session.ack is Acknowledgment.REQUESTED:
            session.ack = Acknowledgment.NOT_REQUESTED
            self.events.append(events.Acknowledged(session, False))

    def _end_if_done(self, session: Session) -> None:
        """End a session that both ends have terminated. If the client only finished, keep it until its id is opened again."""
        if session.local is HalfState.TERMINATED and session.peer is HalfState.TERMINATED:
            self._end(session)

    def _end(self, session: Session) -> None:
        if session.ack is Acknowledgment.REQUESTED:
            self._refuse_acknowledgment(session)
        super()._end(session)
