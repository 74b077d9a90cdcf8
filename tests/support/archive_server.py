"""An archive on a driver that the test drives itself, and archive clients that send exactly what the test tells them to."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self

from tests.support.waiting import StallTimeout

from mainstem.aeron.client.client import Aeron
from mainstem.aeron.driver.media_driver import MediaDriver
from mainstem.archive.messages import ResponseCode, SourceLocation, decode, encode
from mainstem.archive.server import ArchiveServer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType

    from mainstem.archive.messages import Message

CONTROL = "aeron:ipc?term-length=64k"
CHANNEL = "aeron:ipc?term-length=64k"
SEGMENT = 128 << 10
VERSION = 1 << 16 | 12 << 8


class RunningArchive:
    """A driver, an archive and a client, all driven by ``work``. ``client`` opens a control session."""

    def __init__(self, directory: Path, **options: Any) -> None:
        self._stack = ExitStack()
        values = {"term_buffer_length": 1 << 16, "ipc_term_buffer_length": 1 << 16, "timer_interval_ns": 100_000_000}
        self.directory = directory
        self.driver = self._stack.enter_context(MediaDriver.launch(threading_mode="INVOKER", **values))
        self._options = {
            "control_channel": "",
            "segment_file_length": SEGMENT,
            "low_storage_space_threshold": 0,
            **options,
        }
        self.server: Any = None
        self.start()
        self.aeron = self._stack.enter_context(Aeron.connect(self.driver.directory, driver_invoker=self.work))

    def start(self) -> None:
        """Start the archive; after ``stop``, start it again in the same directory."""
        self.server = ArchiveServer.launch(
            self.directory,
            self.driver.directory,
            threading_mode="INVOKER",
            driver_invoker=self.driver.do_work,
            **self._options,
        )

    def stop(self) -> None:
        self.server.close()

    def work(self) -> int:
        """Run one duty cycle of the driver and the archive."""
        work = self.driver.do_work()
        return work + (self.server.invoke() if self.server is not None else 0)

    def until(self, what: Callable[[], Any], why: str = "") -> Any:
        """Call ``work`` until ``what`` returns something true, and return that."""
        stall = StallTimeout(why)
        while not (result := what()):
            stall.check()
            self.work()
        return result

    def client(self, **fields: Any) -> ControlClient:
        """Return a client that has sent its connect request, with ``fields`` as the request's fields."""
        client = ControlClient(self)
        client.connect(**fields)
        return client

    def connected(self, **fields: Any) -> ControlClient:
        """Return a client whose session is established."""
        client = self.client(**fields)
        client.establish()
        return client

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.server is not None:
            self.server.close()
        self._stack.close()


class ControlClient:
    """The client's side of one control session, message by message."""

    _streams = 2000

    def __init__(self, archive: RunningArchive) -> None:
        self.archive = archive
        ControlClient._streams += 1
        self.stream_id = ControlClient._streams
        self.responses = archive.aeron.add_subscription(CONTROL, self.stream_id)
        self.requests = archive.aeron.add_exclusive_publication(CONTROL, 10)
        self.session_id = -1
        self.received: list[Message] = []
        self._correlation_id = self.stream_id * 1_000_000

    def connect(self, *, version: int = VERSION, credentials: bytes = b"", channel: str = CONTROL) -> int:
        self._correlation_id += 1
        self.send_bytes(
            encode(
                "AuthConnectRequest",
                correlation_id=self._correlation_id,
                response_stream_id=self.stream_id,
                version=version,
                response_channel=channel,
                encoded_credentials=credentials,
                client_info="name=test",
            )
        )
        return self._correlation_id

    def establish(self) -> None:
        """Wait until the session is established, and activate it."""
        response = self.response()
        assert response.code == ResponseCode.OK, response
        self.session_id = response.control_session_id
        assert self.ask("ArchiveIdRequest") == self.archive.server.settings.id

    def send_bytes(self, message: bytes) -> None:
        self.archive.until(lambda: self.requests.offer(message) > 0, "a request is sent")

    def send(self, name: str, *, session_id: int | None = None, **fields: Any) -> int:
        """Send a request; return its correlation id."""
        self._correlation_id += 1
        session_id = self.session_id if session_id is None else session_id
        self.send_bytes(encode(name, control_session_id=session_id, correlation_id=self._correlation_id, **fields))
        return self._correlation_id

    def poll(self) -> None:
        self.received += [decode(data) for data in self.responses.poll_bytes(100)]

    def take(self, matches: Callable[[Message], bool]) -> Message:
        """Wait for a message that matches, remove it from the received messages and return it."""

        def find() -> Message | None:
            self.poll()
            return next((each for each in self.received if matches(each)), None)

        found: Message = self.archive.until(find, f"a message among {self.received}")
        self.received.remove(found)
        return found

    def response(self, correlation_id: int | None = None) -> Message:
        """Return the response to the last request, or to the given one."""
        correlation_id = self._correlation_id if correlation_id is None else correlation_id
        names = ("ControlResponse", "Challenge")
        return self.take(lambda each: each.name in names and each.correlation_id == correlation_id)

    def signal(self) -> tuple[int, int, int]:
        """Return the next signal: its code, the recording and the position."""
        found = self.take(lambda each: each.name == "RecordingSignalEvent")
        return found.signal, found.recording_id, found.position

    def ask(self, name: str, **fields: Any) -> int:
        """Send a request, and return the relevant id of its OK response."""
        response = self.response(self.send(name, **fields))
        assert response.code == ResponseCode.OK, response
        return int(response.relevant_id)

    def error(self, name: str, **fields: Any) -> tuple[int, str]:
        """Send a request that fails; return the error's code and text."""
        response = self.response(self.send(name, **fields))
        assert response.code == ResponseCode.ERROR, response
        return response.relevant_id, response.error_message

    def record(self, stream_id: int = 1001, *, channel: str = CHANNEL, auto_stop: bool = False) -> int:
        """Start a recording; return its subscription id."""
        return self.ask(
            "StartRecordingRequest2",
            stream_id=stream_id,
            source_location=SourceLocation.LOCAL,
            auto_stop=int(auto_stop),
            channel=channel,
        )

    def listed(self, name: str, **fields: Any) -> list[Message]:
        """Return the descriptors of a listing, up to its end."""
        correlation_id = self.send(name, **fields)
        found = []
        while True:
            message = self.take(lambda each: each.values.get("correlation_id") == correlation_id)
            if message.name == "ControlResponse":
                assert message.code in (ResponseCode.RECORDING_UNKNOWN, ResponseCode.SUBSCRIPTION_UNKNOWN), message
                return found
            found.append(message)

    def close(self) -> None:
        self.responses.close()
        self.requests.close()
