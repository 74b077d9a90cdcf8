"""The recordings of a running archive as a location: ``aeron-archive://host:port``, read through its control protocol.

Theory of operation. Listings and positions are requests. Data comes from replays. A replay begins at a frame and ends no later
than the recording's last known end. The reader copies the frames from the replay's image, replaces the replay's ids with the
recording's, and stores them at the same offset in the term as in the segment file. So a reader sees the bytes of the file, except
that an extended recording has the session id of its last extension throughout, because the protocol does not reveal the earlier
ones. At most one term and ``COPY_BYTES`` are in memory. Beyond the image's window, the archive waits for the reader.

A replay that a reader abandons is stopped, so that it does not count toward the archive's limit. A replay that has reached the
end of a segment is kept for the reader that continues with the next one.

If the archive is unreachable, the reader retries with a new session and a new replay from the last position. Reading fails once
no data has arrived for ``timeout`` seconds.

The archive uses a media driver that is already running, or starts one and ends it when it is closed.
"""

from __future__ import annotations

import struct
import time
from contextlib import ExitStack, suppress
from mmap import MADV_DONTNEED, MAP_ANONYMOUS, MAP_PRIVATE, PAGESIZE, mmap
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from mainstem._core.layout import DATA_HEADER_LENGTH, FRAME_SESSION_ID_OFFSET
from mainstem._core.log.columns import FrameWalk
from mainstem._internal.clock import NS_PER_MS, SYSTEM_CLOCK, Deadline
from mainstem._internal.listening import local_address_to
from mainstem._internal.urls import split_url
from mainstem.aeron.client import Aeron
from mainstem.aeron.cnc import CncFile
from mainstem.aeron.directory import default_directory
from mainstem.aeron.driver.media_driver import MediaDriver
from mainstem.aeron.files import MappedFiles
from mainstem.archive.calls import CONTROL_STREAM_ID, RESPONSE_STREAM_ID, ReplayOptions, cut_short
from mainstem.archive.channels import is_local_host
from mainstem.archive.client import BlockingCalls, Client
from mainstem.errors import (
    ArchiveError,
    ArchiveErrorCode,
    ClientTimeout,
    ClosedError,
    ConfigurationError,
    ConnectionLost,
    DriverTimeout,
    OfferError,
    RecordingError,
    StoreError,
    Timeout,
)
from mainstem.recording.catalog import NULL
from mainstem.recording.segments import first_segment_base, segment_name
from mainstem.store.options import archive_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from mainstem.recording.catalog import RecordingDescriptor

T = TypeVar("T")

REPLAY_STREAM_ID = 31
DEFAULT_TIMEOUT_S = 30.0  # longer than a driver takes to notice that a peer is gone
ATTEMPT_S = 5.0  # for one request, or for connecting
WAIT_S = 0.1
DRIVER_TIMEOUT_MS = 10_000
COPY_BYTES = 1 << 20
# Terms larger than this release memory to the kernel as they are read.
KEPT_BYTES = 16 << 20
MAX_SEGMENTS = 1 << 21  # in one recording
_IDS = struct.Struct("<ii")
_AWAY = (ConnectionLost, OfferError, ClosedError, Timeout)
_GONE = (ArchiveErrorCode.UNKNOWN_RECORDING, ArchiveErrorCode.INVALID_POSITION)


class RemoteArchive:
    """An archive behind ``aeron-archive://host:port``.

    Options: ``aeron_dir``, the directory of a running media driver; ``response_channel``, where the archive sends responses and
    replays; ``credentials`` or ``credentials_file``; ``control_stream_id``, ``response_stream_id``; ``timeout`` in seconds.
    """

    has_sessions = False  # a replay has a session of its own

    def __init__(self, url: str, options: Mapping[str, str]) -> None:
        self.url = url.rstrip("/")
        values = archive_options(self.url, options)
        host, port = _host_and_port(self.url)
        bare = host.strip("[]")
        self._control = f"aeron:udp?endpoint={host}:{port}"
        self._response: str = (
            values.get("response_channel") or f"aeron:udp?endpoint={_local_host(self.url, bare, port)}:0"
        )
        self._streams = (
            values.get("control_stream_id", CONTROL_STREAM_ID),
            values.get("response_stream_id", RESPONSE_STREAM_ID),
        )
        self._credentials = _credentials(values)
        self._timeout: float = values.get("timeout", DEFAULT_TIMEOUT_S)
        if not 0 < self._timeout <= 3600:
            raise ConfigurationError(f"timeout must be above 0 and at most 3600 seconds (got {self._timeout:g})")
        self._client: Client | None = None
        self._descriptors: list[RecordingDescriptor] | None = None
        self._ends: dict[int, int] = {}
        self._kept: _Replay | None = None
        self._staging = bytearray(COPY_BYTES)
        self._resources = ExitStack()
        try:
            directory = values.get("aeron_dir") or self._running_or_own_driver()
            name = "mainstem-archive-reader"
            self._aeron = self._resources.enter_context(Aeron.connect(directory, client_name=name))
            self._ask("connect", lambda client: client.control_session_id)
        except BaseException:
            self.close()
            raise

    def _running_or_own_driver(self) -> str:
        directory = default_directory()
        if _is_driver_active(directory):
            return directory
        return self._resources.enter_context(MediaDriver.launch()).directory

    @property
    def archive_id(self) -> str:
        """The URL, because an archive can have a different numeric id each time it starts."""
        return self.url

    @property
    def host(self) -> str:
        return ""

    def close(self) -> None:
        self.keep(None)
        self._disconnect()
        self._resources.close()

    # -- the session -----------------------------------------------------------------------------------------------

    def _ask(self, what: str, call: Callable[[Client], T]) -> T:
        """Return the result of a call. Open a new session and retry if the current session has ended."""
        deadline = Deadline(SYSTEM_CLOCK, self._timeout)
        while True:
            try:
                return call(self._connected(deadline))
            except (DriverTimeout, ClientTimeout):
                raise
            except ArchiveError as error:
                # Other readers use replays too; each replay ends when its reader does.
                if error.code is not ArchiveErrorCode.MAX_REPLAYS or deadline.expired:
                    raise
                time.sleep(WAIT_S)
            except _AWAY as error:
                self.lost(deadline, what, error)

    def lost(self, deadline: Deadline, what: str, error: Exception) -> None:
        """Disconnect before another attempt. Raises StoreError once the deadline has passed."""
        self._disconnect()
        if deadline.expired:
            text = f"{what} failed for {self._timeout:g} s: {error}"
            if isinstance(error, Timeout) and "response" in str(error):
                text += "; if the archive cannot reach this address, set the option response_channel"
            raise StoreError(self.url, text) from error
        time.sleep(WAIT_S)

    def _connected(self, deadline: Deadline) -> Client:
        if self._aeron.closed:
            raise self._aeron.error or ClosedError(f"{self.url} is closed")
        if self._client is None or not self._client.connected:
            self._disconnect()
            stream_id, response_stream_id = self._streams
            self._calls = BlockingCalls(
                self._aeron,
                self._control,
                response_channel=self._response,
                stream_id=stream_id,
                response_stream_id=response_stream_id,
                credentials=self._credentials,
                on_challenge=None,
                client_name="mainstem-archive-reader",
            )
            self._client = Client.made(self._calls, None, _attempt(deadline))
        return self._client

    def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    # -- listings and positions ------------------------------------------------------------------------------------

    def refresh(self) -> None:
        self._descriptors = None
        self.keep(None)

    def recordings(self) -> list[RecordingDescriptor]:
        if self._descriptors is None:
            found = self._ask("list the recordings", lambda client: list(client.list_recordings(timeout=ATTEMPT_S)))
            for descriptor in found:
                descriptor.check()
            self._descriptors = found
        return self._descriptors

    def recorded_positions(self, descriptors: Sequence[RecordingDescriptor]) -> list[int | None]:
        return [self._recorded_position(each) for each in descriptors]

    def _recorded_position(self, descriptor: RecordingDescriptor) -> int:
        recording_id, end = descriptor.recording_id, descriptor.stop_position
        if end == NULL:
            end = self._of_recording(
                "ask for the recorded position",
                descriptor,
                lambda client: client.max_recorded_position(recording_id, timeout=ATTEMPT_S),
            )
        self._ends[recording_id] = end
        return end

    def _of_recording(self, what: str, descriptor: RecordingDescriptor, call: Callable[[Client], T]) -> T:
        try:
            return self._ask(what, call)
        except ArchiveError as error:
            if error.code in _GONE:
                raise RecordingError(f"{self.url}: recording {descriptor.recording_id}: {error}") from error
            raise

    def _end(self, descriptor: RecordingDescriptor, position: int = -1) -> int:
        """Return the end of a recording, or its last known position. Ask again if that is not past ``position``."""
        end = (
            self._ends.get(descriptor.recording_id, -1)
            if descriptor.stop_position == NULL
            else descriptor.stop_position
        )
        return end if end > position else self._recorded_position(descriptor)

    def segments(self, descriptor: RecordingDescriptor) -> dict[int, int]:
        first, step, end = first_segment_base(descriptor), descriptor.segment_file_length, self._end(descriptor)
        if (end - first) // step >= MAX_SEGMENTS:
            raise RecordingError(f"{self.url}: recording {descriptor.recording_id} ends at {end}: too many segments")
        return {base: min(step, end - base) for base in range(first, end, step)}

    def segment(self, descriptor: RecordingDescriptor, base: int) -> ReplayedSegment:
        length = min(descriptor.segment_file_length, self._end(descriptor, base) - base)
        return ReplayedSegment(self, descriptor, base, max(length, 0))

    def index(self, descriptor: RecordingDescriptor) -> None:
        """Return None: an archive has no index. Its own positions are available by request."""

    # -- replays ---------------------------------------------------------------------------------------------------

    def replay(self, descriptor: RecordingDescriptor, position: int) -> _Replay:
        """Return the kept replay if it continues at ``position``, else a new one from there."""
        kept, self._kept = self._kept, None
        if kept is not None:
            if kept.recording_id == descriptor.recording_id and kept.position == position < kept.end:
                return kept
            kept.close()
        end = self._end(descriptor, position)
        what = f"replay recording {descriptor.recording_id} from position {position}"
        return self._of_recording(
            what, descriptor, lambda client: _Replay(client, self._calls, self._response, descriptor, position, end)
        )

    def keep(self, replay: _Replay | None) -> None:
        """Keep a replay for the reader that continues from it. Close any replay kept earlier."""
        kept, self._kept = self._kept, replay
        if kept is not None:
            kept.close()

    @property
    def timeout(self) -> float:
        """Seconds without progress after which reading fails."""
        return self._timeout

    @property
    def staging(self) -> bytearray:
        """Buffer for copied frames. Only one thread uses an archive."""
        return self._staging


class _Replay:
    """A replay up to the recording's end, as known when the replay started."""

    def __init__(
        self,
        client: Client,
        calls: BlockingCalls,
        channel: str,
        descriptor: RecordingDescriptor,
        position: int,
        end: int,
    ) -> None:
        self.recording_id, self.position, self.end = descriptor.recording_id, position, end
        self._ids = descriptor.session_id, descriptor.stream_id
        self._client, self._calls = client, calls
        self._walk, self._own = FrameWalk(), FrameWalk()
        self._late_error()
        options = ReplayOptions(self.recording_id, channel, REPLAY_STREAM_ID, position, length=end - position)
        replay = calls.unchecked_replay(options, Deadline(SYSTEM_CLOCK, ATTEMPT_S))
        self._subscription, started = calls.run(replay)
        self._id = started.replay_id

    def take(self, staging: bytearray, deadline: Deadline) -> tuple[int, int]:
        """Copy whole frames to ``staging``. Return the number of bytes used there and the number of bytes of the stream.

        The difference is padding. Raises ConnectionLost if the replay has ended, and Timeout once the deadline has passed.
        """
        subscription, walk = self._subscription, self._walk
        while True:
            image = next(iter(subscription.images), None)
            if image is not None:
                if image.position != self.position:
                    raise ConnectionLost(f"the replay is at position {image.position} instead of {self.position}")
                offset, limit = image.readable()
                walk.copy(image.log, offset, limit, staging)
                length = walk.offset - offset
                if length and not image.closed:
                    # Of padding, which can only be the last frame, copy just the header.
                    copied = walk.last - offset + DATA_HEADER_LENGTH if walk.others else length
                    self._readdress(staging, copied)
                    self.position += length
                    image.release(self.position)
                    return copied, length
                if image.closed or image.is_end_of_stream:
                    raise self._ended("the archive stopped it" if image.is_publication_revoked else "its stream ended")
            elif subscription.is_end_of_stream or not self._client.connected:
                raise self._ended("its stream was lost")
            if deadline.expired:
                raise Timeout(f"no data came from position {self.position}", timeout=deadline.timeout or 0.0)
            subscription.wait_for_data(timeout=WAIT_S)

    def _readdress(self, staging: bytearray, length: int) -> None:
        """Write the recording's ids into the frames. The last one can be padding."""
        self._own.readdress(staging, 0, length, *self._ids)
        if self._own.others:
            _IDS.pack_into(staging, self._own.last + FRAME_SESSION_ID_OFFSET, *self._ids)

    def _ended(self, why: str) -> ConnectionLost | ArchiveError:
        """Return the error for a replay that ended early: the archive's if it reported one."""
        what = f"replay of recording {self.recording_id}"
        return self._late_error() or cut_short(what, self.position, self.end, why)

    def _late_error(self) -> ArchiveError | None:
        """Discard the session's events. Return the last error among them."""
        found = None
        with suppress(Timeout, ConnectionLost):
            for event in self._client.events(timeout=0):
                found = event if isinstance(event, ArchiveError) else found
        return found

    def close(self) -> None:
        """Stop the replay without waiting."""
        self._subscription.close()
        if self._client.connected:
            with self._calls.lock:
                self._calls.send_once("StopReplayRequest", replay_session_id=self._id)


class ReplayedSegment:
    """One segment of a recording, read through replays. Its memory is valid for one iteration."""

    is_mapped = False

    def __init__(self, archive: RemoteArchive, descriptor: RecordingDescriptor, base: int, length: int) -> None:
        self.name = f"{archive.url}/{segment_name(descriptor.recording_id, base)}"
        self.length = length
        self.memory: mmap | bytes = b""
        self._archive, self._descriptor, self._base = archive, descriptor, base
        self._term = descriptor.term_buffer_length

    def place(self, offset: int) -> int:
        return offset % self._term

    def chunks(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        if start >= end:
            return
        archive, staging = self._archive, self._archive.staging
        if not self.memory:
            self.memory = mmap(-1, self._term, flags=MAP_PRIVATE | MAP_ANONYMOUS)
        replay: _Replay | None = None
        deadline = Deadline(SYSTEM_CLOCK, archive.timeout)
        at = start
        try:
            while at < end:
                try:
                    if replay is None:
                        replay = archive.replay(self._descriptor, self._base + at)
                    copied, length = replay.take(staging, deadline)
                except (DriverTimeout, ClientTimeout):
                    raise
                except ArchiveError as error:
                    raise RecordingError(f"{self.name}: {error}") from error
                except _AWAY as error:
                    if replay is not None:
                        replay.close()
                        replay = None
                    archive.lost(
                        deadline, f"read recording {self._descriptor.recording_id} at {self._base + at}", error
                    )
                    continue
                self._store(at, staging, copied, length)
                yield at, min(at + length, end)
                at += length
                if replay.position == replay.end and at < end:
                    replay.close()
                    replay = None
                deadline = Deadline(SYSTEM_CLOCK, archive.timeout)
        finally:
            if replay is not None:
                if at == self._descriptor.segment_file_length and replay.position < replay.end:
                    archive.keep(replay)
                else:
                    replay.close()

    def _store(self, offset: int, staging: bytearray, copied: int, length: int) -> None:
        """Move frames to their offset in the term. Bytes after a padding header are zeros, as in the file."""
        memory, at = self.memory, self.place(offset)
        assert isinstance(memory, mmap), "chunks has made it"
        if self._term > KEPT_BYTES:
            last = at // PAGESIZE * PAGESIZE
            if last:
                memory.madvise(MADV_DONTNEED, 0, last)
        memory[at : at + copied] = memoryview(staging)[:copied]
        if copied < length:
            memory[at + copied : at + length] = bytes(length - copied)

    def read(self, start: int, end: int) -> bytes:
        if end > self.length:
            raise RecordingError(f"{self.name} ends at {self.length} bytes, before {end}")
        # A replay must begin at a frame. The start of a term is one, and so is the start of the recording.
        first = max(start - start % self._term, self._descriptor.start_position - self._base)
        data = bytearray(max(min(first, end) - start, 0))
        for at, limit in self.chunks(first, end):
            place = self.place(max(at, start))
            if limit > start:
                data += self.memory[place : place + limit - max(at, start)]
        return bytes(data)

    def close(self) -> None:
        memory, self.memory = self.memory, b""
        if isinstance(memory, mmap):
            with suppress(BufferError):
                memory.close()


def _attempt(deadline: Deadline) -> float:
    return min(ATTEMPT_S, deadline.left or ATTEMPT_S)


def _is_driver_active(directory: str) -> bool:
    try:
        cnc = CncFile.map(MappedFiles(), directory)
    except ConfigurationError:
        return False
    if cnc is None:
        return False
    try:
        return cnc.is_driver_active(now_ms=SYSTEM_CLOCK.epoch_ns() // NS_PER_MS, timeout_ms=DRIVER_TIMEOUT_MS)
    finally:
        cnc.close()


def _host_and_port(url: str) -> tuple[str, int]:
    parts = split_url(url)
    host, port = parts.hostname or "", parts.port
    if parts.username is not None or parts.password is not None:
        raise ConfigurationError(
            "a user or password in a URL ends up in logs and plans; give credentials with the option credentials_file"
        )
    if not host or not port or parts.path or parts.query or parts.fragment:
        raise ConfigurationError(f"{url!r}: must be aeron-archive://HOST:PORT, the archive's control channel over UDP")
    return (f"[{host}]" if ":" in host else host), port


def _local_host(url: str, host: str, port: int) -> str:
    """Return an address of this host that the archive can reach, for use in a channel."""
    if is_local_host(host):
        return "[::1]" if ":" in host else "localhost"
    try:
        address = local_address_to(host, port)
    except OSError as error:
        raise StoreError(url, f"no route to {host}: {error.strerror or error}") from None
    return f"[{address}]" if ":" in address else address


def _credentials(values: Mapping[str, str]) -> bytes:
    path = values.get("credentials_file")
    if path is None:
        return values.get("credentials", "").encode()
    try:
        return Path(path).read_bytes().rstrip(b"\r\n")
    except OSError as error:
        raise ConfigurationError(f"credentials_file: {path}: {error.strerror}") from None
