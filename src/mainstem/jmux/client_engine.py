"""The client's end of a Jmux connection. :mod:`.engine` has the theory of operation."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from mainstem._internal.validation import as_bytes
from mainstem.errors import ClosedError, LocalProtocolError
from mainstem.jmux import codec, events
from mainstem.jmux.codec import Kind
from mainstem.jmux.engine import REPORTS, JmuxEngine
from mainstem.jmux.session import INFINITE, Session
from mainstem.jmux.state import NEXT, Acknowledgment, HalfState, Input, Role
from mainstem.mux.engine import Rule

if TYPE_CHECKING:
    from mainstem.jmux.settings import Settings


class ClientEngine(JmuxEngine):
    """The client's end, without I/O. It sends requests, each in its own session, and receives their responses."""

    role = Role.CLIENT

    def __init__(self, settings: Settings | None = None, *, now_ns: int = 0, peer: str = "server") -> None:
        super().__init__(settings, now_ns=now_ns, peer=peer)
        self._header += codec.encode_connection_header(self.settings.initial_ration)
        self._free_ids = list(range(codec.MAX_SESSIONS))

    # ---- commands

    @property
    def can_open(self) -> bool:
        """Whether a session id is free and the connection is alive."""
        return bool(self._free_ids) and self.failure is None

    @property
    def busy(self) -> int:
        """The number of sessions that hold an id."""
        return codec.MAX_SESSIONS - len(self._free_ids)

    def open_session(self) -> Session:
        """Open a session with the lowest free id. Its first bytes, its end, or ``flush`` open it on the wire."""
        if self.failure is not None:
            self._check_alive()
        if not self._free_ids:
            raise LocalProtocolError(f"all {codec.MAX_SESSIONS} session ids are in use", rule="no-free-session")
        session = Session(
            heapq.heappop(self._free_ids),
            inbound=self._inbound_ration,
            outbound=self._outbound_ration if self.established else -1,
        )
        self.sessions[session.id] = session
        return session

    def request(self, session: Session, request: bytes | bytearray | memoryview) -> None:
        """Queue a whole request on a newly opened session: ``write`` and ``finish`` in one call."""
        session.queue.append(request)
        session.eof_wanted = True
        self._ready.add(session)

    def finish(self, session: Session) -> None:
        """Mark the request as complete. Its eof is sent with its last bytes."""
        if self.failure is not None:
            self._check_alive()
        if session.eof_wanted or session.ended or session.local >= HalfState.FINISHED:
            raise LocalProtocolError(f"eof on session {session.id} a second time", rule="data-on-finished-session")
        session.eof_wanted = True
        if not session.scheduled:
            self._ready.add(session)

    def abort(self, session: Session, detail: bytes = b"") -> None:
        """Give up the session, and notify the server unless nothing of the session was sent."""
        self._check_alive()
        if session.local is HalfState.NONE and not session.ended:
            session.local = session.peer = HalfState.TERMINATED
            session.untouched = True
            self._end(session)
            return
        self._check_may(session, Input.ABORT, "Abort")
        self._send_abort(session, detail)
        self._end_if_done(session)

    def acknowledge(self, session: Session) -> None:
        """Report that the response was processed, as the server's ackRequired flag requested."""
        self._check_alive()
        if session.ack is not Acknowledgment.REQUESTED:
            rule = "duplicate-acknowledgment" if session.ack is Acknowledgment.SENT else "acknowledgment-not-requested"
            raise LocalProtocolError(f"acknowledgment of session {session.id}: {rule}", rule=rule)
        self._check_may(session, Input.ACKNOWLEDGMENT, "Acknowledgment")
        session.ack = Acknowledgment.SENT
        self._control += codec.encode_session(Kind.ACKNOWLEDGMENT, session.id)
        self._end_if_done(session)

    def message_of(self, session: Session, request: bytes | bytearray | memoryview) -> bytes:
        """Return the message for a short request on a newly opened session if it need not wait, and count it as sent.

        Empty if something else is queued, or if the request exceeds the ration or the length of a message. Then call ``request``.
        """
        payload = request if type(request) is bytes else as_bytes(request)
        length = len(payload)
        if (
            length > self._lone_limit
            or length > session.outbound
            or self._control
            or self._increments
            or self._ready.waiting
            or self.failure is not None
        ):
            return b""
        if session.outbound < INFINITE:
            session.outbound -= length
        session.eof_wanted = True
        session.local = HalfState.FINISHED
        session.peer = HalfState.OPEN
        session.sent = length
        return codec.HEADER.pack(codec.DATA | codec.OPEN | codec.EOF, session.id, length) + payload

    # ---- receiving

    def _receive_connection_header(self, data: bytearray) -> None:
        header = codec.decode_connection_header(data)
        if header.version != codec.VERSION:
            self._violated("bad-version", f"unexpected protocol version: {header.version}")
        self._establish(header)
        for session in self.sessions.values():
            session.outbound = self._outbound_ration
            if session.queue.size:
                self._ready.add(session)

    def _receive_whole(self, session_id: int, flags: int, body: bytes) -> None:
        session = self.sessions.get(session_id)
        if (
            flags != codec.EOF | codec.CLOSE
            or session is None
            or session.local is not HalfState.FINISHED
            or session.peer is not HalfState.OPEN
            or len(body) > session.inbound
            or not self.joins_events
        ):
            super()._receive_whole(session_id, flags, body)
            return
        session.peer = HalfState.TERMINATED
        session.response_complete = session.ended = True
        del self.sessions[session_id]
        heapq.heappush(self._free_ids, session_id)
        self.events.append(events.ResponseReceived(session, body))

    def _receive_data_header(self, session_id: int, flags: int) -> Session:
        if flags & codec.OPEN:
            self._violated("open-sent-by-server", REPORTS["open-sent-by-server"])
        if flags & (codec.CLOSE | codec.ACK_REQUIRED) and not flags & codec.EOF:
            self._violated("flags-without-eof", _flags_report(flags))
        session = self.sessions.get(session_id)
        half = HalfState.NONE if session is None else session.peer
        sent = (Input.CLOSE_EOF if flags & codec.CLOSE else Input.EOF) if flags & codec.EOF else Input.DATA
        following = NEXT[Role.SERVER][half][sent]
        if isinstance(following, Rule):
            self._violated(following, REPORTS[following].format(session_id))
        assert session is not None
        return session

    def _finish_data(self, session: Session, flags: int) -> None:
        session.peer = HalfState.TERMINATED if flags & codec.CLOSE else HalfState.FINISHED
        ack_required = bool(flags & codec.ACK_REQUIRED)
        if session.local is not HalfState.TERMINATED:
            session.response_complete = True
            if ack_required:
                session.ack = Acknowledgment.REQUESTED
            self.events.append(events.DataFinished(session, ack_required))
        if not flags & codec.CLOSE:
            return
        if session.local is HalfState.FINISHED and not ack_required:
            self._end(session)
        else:
            self._server_terminated(session)

    def _receive_close(self, session: Session) -> None:
        self._server_terminated(session)

    def _receive_abort(self, session: Session, partial: bool, detail: bytes) -> None:
        if session.local is not HalfState.TERMINATED:
            session.untouched = not partial
            self._send_abort(session)
            self.events.append(events.SessionAborted(session, partial, detail))
        session.ack = Acknowledgment.NOT_REQUESTED
        self._end_if_done(session)

    def _receive_shutdown(self, detail: bytes) -> None:
        self.events.append(events.ShutDown(detail))
        for session in self.sessions.values():
            # The server processed nothing of these sessions, except those that it had finished.
            session.untouched = session.peer is HalfState.OPEN or session.local is HalfState.NONE
        self.fail(ClosedError(f"{self.peer_name} shut down: {detail.decode('utf-8', 'replace')}"))

    def _server_terminated(self, session: Session) -> None:
        if session.local is HalfState.OPEN:
            # The server does not want the rest of the request. Its response is complete nevertheless.
            self._send_abort(session)
            session.ack = Acknowledgment.NOT_REQUESTED
        self._end_if_done(session)

    # ---- internals

    def _is_complete(self, session: Session) -> bool:
        return session.response_complete

    def _fail_session(self, session: Session) -> None:
        if session.local is HalfState.NONE:
            session.untouched = True
        super()._fail_session(session)

    def _end_if_done(self, session: Session) -> None:
        """End the session and free its id once the server has terminated, the client has finished, and no acknowledgment is due."""
        if session.peer is not HalfState.TERMINATED or session.local < HalfState.FINISHED:
            return
        if session.local is HalfState.FINISHED and session.ack is Acknowledgment.REQUESTED:
            return
        self._end(session)

    def _end(self, session: Session) -> None:
        if not session.ended:
            heapq.heappush(self._free_ids, session.id)
        super()._end(session)


def _flags_report(flags: int) -> str:
    eof, close, ack = (str(bool(flags & bit)).lower() for bit in (codec.EOF, codec.CLOSE, codec.ACK_REQUIRED))
    return f"Data: eof={eof},close={close},ackRequired={ack}"
