"""Receives messages as a bymux, Jmux or Aqueduct server, builds frames from them, and records these.

Messages over bymux and Jmux are length-prefixed (``mainstem.message_keys.framed``), as ``mainstem.channel`` sends them. A message
can have a key before its payload, which becomes the reserved value.

A bymux sender knows that its messages are recorded when the server ends its half of the stream. A Jmux sender knows it when it
receives the response. Aqueduct acknowledges messages on arrival, so an acknowledgment does not mean that they are recorded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainstem._core.layout import DATA_HEADER_LENGTH, FLAG_BEGIN, FLAG_END, FRAME_ALIGNMENT, TYPE_DATA, TYPE_PAD
from mainstem._internal.clock import SYSTEM_CLOCK, Clock
from mainstem.aeron.logbuffer import framed_length
from mainstem.aeron.protocol.layouts import DATA_HEADER
from mainstem.errors import ConfigurationError, RecordingError, RemoteProtocolError
from mainstem.message_keys import KEY_LENGTH, FrameSplitter, MessageKey

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mainstem.recording.recorder import Recorder
    from mainstem.recording.writer import RecordingWriter


# -- messages as frames in segments ------------------------------------------------------------------------------------
#
# These messages have no frames yet, so frames are built here. A message is one frame, or several if it is long, and never crosses
# the end of a term.


TERM_LENGTH = 64 << 20
# The longest possible frame. It needs the fewest headers, and these frames are not sent in datagrams.
MTU_LENGTH = 65_504
MAX_MESSAGE_LENGTH = 16 << 20
RUN_LENGTH = 256 << 10


class MessageLog:
    """One recording for messages. A restarted recorder continues the recording of the same session.

    ``session_id`` and ``stream_id`` appear in its rows. It is closed by the recorder, or by ``Recorder.stop`` with ``writer``.
    """

    def __init__(
        self,
        recorder: Recorder,
        *,
        stream_id: int,
        session_id: int = 0,
        channel: str = "",
        source_identity: str = "",
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._session_id, self._stream_id, self._clock = session_id, stream_id, clock
        self.writer: RecordingWriter = recorder.start(
            session_id=session_id,
            stream_id=stream_id,
            initial_term_id=0,
            term_buffer_length=TERM_LENGTH,
            mtu_length=MTU_LENGTH,
            join_position=0,
            channel=channel,
            source_identity=source_identity,
        )

    @property
    def position(self) -> int:
        return self.writer.position

    def write(self, messages: Iterable[tuple[int, bytes]]) -> int:
        """Record pairs of reserved value and payload, and return their number. They are in the files when this returns.

        Raises RecordingError if a message is longer than 16 MiB, after recording the messages before it.
        """
        run, count = bytearray(), 0
        for reserved, payload in messages:
            if len(payload) > MAX_MESSAGE_LENGTH:
                self._flush(run)
                raise RecordingError(f"a message of {len(payload)} bytes is longer than {MAX_MESSAGE_LENGTH}")
            size = framed_length(len(payload), MTU_LENGTH - DATA_HEADER_LENGTH)
            left = TERM_LENGTH - (self.position + len(run)) % TERM_LENGTH
            if run and (len(run) + size > RUN_LENGTH or size > left):
                self._flush(run)
            if size > left:
                self._pad(left)
            self._append(run, reserved, payload)
            count += 1
        self._flush(run)
        return count

    def _append(self, run: bytearray, reserved: int, payload: bytes) -> None:
        most = MTU_LENGTH - DATA_HEADER_LENGTH
        for at in range(0, max(len(payload), 1), most):
            part = payload[at : at + most]
            flags = (FLAG_BEGIN if at == 0 else 0) | (FLAG_END if at + most >= len(payload) else 0)
            run += self._header(self.position + len(run), DATA_HEADER_LENGTH + len(part), flags, TYPE_DATA, reserved)
            run += part
            run += bytes(-len(run) % FRAME_ALIGNMENT)

    def _header(self, position: int, length: int, flags: int, kind: int, reserved: int) -> bytes:
        term_id, offset = divmod(position, TERM_LENGTH)
        return DATA_HEADER.pack(length, 0, flags, kind, offset, self._session_id, self._stream_id, term_id, reserved)

    def _pad(self, length: int) -> None:
        header = self._header(self.position, length, FLAG_BEGIN | FLAG_END, TYPE_PAD, 0)
        self.writer.write(memoryview(header.ljust(length, b"\0")), self._clock.epoch_ns())

    def _flush(self, run: bytearray) -> None:
        if run:
            self.writer.write(memoryview(bytes(run)), self._clock.epoch_ns())
            run.clear()


OK = b"ok"


class MessageRecorder:
    """Records messages. If ``keyed`` is True, each payload starts with a key, which becomes the reserved value."""

    def __init__(self, log: MessageLog, *, keyed: bool, on_messages: Callable[[int], object] = lambda _: None) -> None:
        self._log, self._keyed, self._on_messages = log, keyed, on_messages

    def take(self, messages: list[bytes]) -> None:
        """Record messages. Raises RemoteProtocolError if a key is missing or invalid."""
        self._log.write(map(self._pair, messages))
        self._on_messages(len(messages))

    def _pair(self, message: bytes) -> tuple[int, bytes]:
        if not self._keyed:
            return 0, message
        try:
            return MessageKey.decode(message).reserved_value(), message[KEY_LENGTH:]
        except ValueError as error:
            raise RemoteProtocolError(f"a message has an invalid key: {error}") from None

    async def drain(self, stream: Any) -> None:
        """Record the messages of a byte stream until it ends. Raises RemoteProtocolError if it ends inside a message."""
        splitter = FrameSplitter()
        async for data in stream:
            if messages := splitter.feed(data):
                self.take(messages)
        if not splitter.is_between_messages:
            raise RemoteProtocolError("the stream ended inside a message")


async def listen(protocol: str, host: str, port: int, intake: MessageRecorder, **options: Any) -> Any:
    """Start a server that passes its messages to ``intake``. The caller closes it.

    ``options`` are those of the protocol's ``serve``. Raises ConfigurationError for an unknown protocol.
    """
    if protocol == "bymux":
        from mainstem import bymux

        return await bymux.aio.serve(intake.drain, host, port, **options)
    if protocol == "jmux":
        from mainstem.jmux import aio as jmux

        async def respond(session: Any) -> None:
            await intake.drain(session)
            session.write(OK)

        return await jmux.serve(respond, host, port, **options)
    if protocol == "aqueduct":
        from mainstem.aqueduct import aio

        async def entrypoint(connection: Any) -> None:
            async for message in connection.receiver:
                intake.take([bytes(message)])

        return await aio.serve(entrypoint, host, port, **options)
    raise ConfigurationError(f"the protocol must be bymux, jmux or aqueduct (got {protocol!r})")
