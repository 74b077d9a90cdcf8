"""Mainstem's archive client against Java's archive, on Java's and Mainstem's media drivers, and against Mainstem's archive."""

from __future__ import annotations

import itertools
import sys
import tempfile
import threading
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.interop.conftest import DriverProcess
from tests.interop.java_archive import SEGMENT_LENGTH, JavaArchive
from tests.support import java
from tests.support.case_selection import long_after
from tests.support.ports import free_port
from tests.support.waiting import StallTimeout, wait_for

import mainstem
from mainstem import MediaDriver, archive
from mainstem.archive import RecordingSignal, Signal, extension_channel
from mainstem.archive.server import ArchiveServer
from mainstem.errors import ArchiveError, ArchiveErrorCode, ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [pytest.mark.interop]
COUNT = 400
SMALL = "term-length=64k"


class MainstemArchive:
    """An archive in this process."""

    def __init__(self, archive: Path, directory: str) -> None:
        self.archive = archive
        self.directory = directory
        self.control = f"aeron:udp?endpoint=localhost:{free_port()}"


Served = JavaArchive | MainstemArchive


@contextmanager
def mainstem_archive(path: Path) -> Iterator[MainstemArchive]:
    with MediaDriver.launch() as driver:
        made = MainstemArchive(path, driver.directory)
        options = {"control_channel": made.control, "segment_file_length": SEGMENT_LENGTH}
        with ArchiveServer.launch(path, driver.directory, **options):
            yield made


@contextmanager
def java_archive_on_mainstems_driver(path: Path, directory: Path) -> Iterator[JavaArchive]:
    command = [sys.executable, "-m", "mainstem", "driver"]
    driver = DriverProcess(command, directory, {"AERON_THREADING_MODE": "SHARED"})
    try:
        with JavaArchive(path, directory, has_driver=False) as made:
            yield made
    finally:
        driver.stop()


@pytest.fixture(scope="module", params=["java", pytest.param("java-on-mainstem", marks=pytest.mark.long), "mainstem"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Run an archive, with the driver that it and the clients use."""
    path = tmp_path_factory.mktemp("archive")
    with ExitStack() as stack:
        if request.param == "mainstem":
            yield stack.enter_context(mainstem_archive(path))
            return
        java.require_java()
        root = stack.enter_context(tempfile.TemporaryDirectory(prefix="mainstem-interop-", dir="/dev/shm"))
        directory = Path(root) / "aeron"
        if request.param == "java":
            yield stack.enter_context(JavaArchive(path, directory, has_driver=True))
        else:
            yield stack.enter_context(java_archive_on_mainstems_driver(path, directory))


@pytest.fixture
def aeron(served: Served) -> Iterator[mainstem.Aeron]:
    with mainstem.connect(served.directory) as client:
        yield client


def messages(count: int = COUNT) -> list[bytes]:
    """Return `count` messages, some longer than a frame."""
    return [number.to_bytes(4, "big") * (1 + number % 600) for number in range(count)]


def signal(client: archive.Client, kind: RecordingSignal) -> Signal:
    """Return the next event, which must be that signal."""
    event = next(client.events(timeout=30.0))
    assert isinstance(event, Signal), event
    assert event.signal is kind
    return event


def recorded(
    client: archive.Client, aeron: mainstem.Aeron, stream_id: int, *, channel: str = "aeron:ipc", count: int = COUNT
) -> tuple[int, int]:
    """Record some messages, and return the recording's id and end position."""
    client.start_recording(channel, stream_id, auto_stop=True)
    joined = "|" if "?" in channel else "?"
    with aeron.add_exclusive_publication(f"{channel}{joined}{SMALL}", stream_id) as publication:
        recording_id = signal(client, RecordingSignal.START).recording_id
        for message in messages(count):
            publication.send(message)
        end = publication.position
        wait_for(lambda: client.recording_position(recording_id) == end)
    assert signal(client, RecordingSignal.STOP).position == end
    return recording_id, end


@pytest.mark.parametrize(
    "channels",
    long_after(1, [(("control", None),), (("aeron:ipc", None),), (("control", "aeron:udp?endpoint=127.0.0.1:0"),)]),
    ids=["udp", "ipc", "udp to an address"],
)
def test_connect_record_list_and_replay(
    served: Served, aeron: mainstem.Aeron, channels: tuple[str, str | None]
) -> None:
    control = served.control if channels[0] == "control" else channels[0]
    with archive.connect(control, response_channel=channels[1], aeron=aeron, client_name="tides") as client:
        assert client.protocol_version >= (1, 11, 0)
        recording_id, end = recorded(client, aeron, 1001)
        described = client.list_recording(recording_id)
        assert described is not None
        assert (described.stream_id, described.start_position, described.stop_position) == (1001, 0, end)
        assert described.original_channel == "aeron:ipc"
        assert recording_id in [each.recording_id for each in client.list_recordings()]
        assert [each.recording_id for each in client.list_recordings_for_uri("ipc", 1001)][-1] == recording_id
        found = client.find_last_matching_recording("ipc", 1001, described.session_id)
        assert (found, client.find_last_matching_recording("ipc", 1001, 12345)) == (recording_id, None)
        assert client.start_position(recording_id) == 0
        assert (client.stop_position(recording_id), client.recording_position(recording_id)) == (end, None)
        for channel in ("aeron:ipc", "aeron:udp?endpoint=localhost:0"):
            with client.replay(recording_id, channel, 1002) as subscription:
                assert list(subscription.messages(timeout=30.0)) == messages()
        assert client.stats() == archive.ClientStats(pending=0, events=0, dropped_events=0, refused={})


def test_a_replay_begins_and_ends_where_it_was_asked_to(served: Served, aeron: mainstem.Aeron) -> None:
    with archive.connect(served.control, aeron=aeron) as client:
        recording_id, end = recorded(client, aeron, 1011)
        with client.replay(recording_id, "aeron:ipc", 1012) as subscription:
            ends = [each.position for each in subscription.messages(timeout=30.0, metadata=True)]
        assert ends[-1] == end
        middle = ends[COUNT // 2]
        for options, expected in (
            ({"position": middle}, messages()[COUNT // 2 + 1 :]),
            ({"length": middle}, messages()[: COUNT // 2 + 1]),
            ({"position": middle, "follow": False, "file_io_max_length": 65536}, messages()[COUNT // 2 + 1 :]),
        ):
            with client.replay(recording_id, "aeron:ipc", 1012, **options) as subscription:
                assert list(subscription.messages(timeout=30.0)) == expected
        with pytest.raises(ArchiveError) as caught:
            client.replay(recording_id, "aeron:ipc", 1012, position=end)
        assert caught.value.code is ArchiveErrorCode.INVALID_POSITION
        with pytest.raises(ArchiveError) as caught:
            client.replay(99_999, "aeron:ipc", 1012)
        assert caught.value.code is ArchiveErrorCode.UNKNOWN_RECORDING


def test_a_replay_follows_an_active_recording_and_is_bounded_by_a_counter(
    served: Served, aeron: mainstem.Aeron
) -> None:
    with (
        archive.connect(served.control, aeron=aeron) as client,
        aeron.add_counter(1001, "limit") as limit,
    ):
        client.start_recording("aeron:ipc", 1021, auto_stop=True)
        with aeron.add_exclusive_publication(f"aeron:ipc?{SMALL}", 1021) as publication:
            recording_id = signal(client, RecordingSignal.START).recording_id
            first = publication.send(b"first")
            wait_for(lambda: client.recording_position(recording_id) == first)
            limit.set(first)
            with (
                client.replay(recording_id, "aeron:ipc", 1022) as following,
                client.replay(recording_id, "aeron:ipc", 1023, limit_counter_id=limit.counter_id) as bounded,
            ):
                followed, limited = (each.messages(timeout=30.0) for each in (following, bounded))
                assert (next(followed), next(limited)) == (b"first", b"first")
                second = publication.send(b"second")
                assert next(followed) == b"second"
                assert bounded.poll_bytes() == []
                limit.set(second)
                assert next(limited) == b"second"
                publication.close()
                assert list(followed) == []
                client.stop_all_replays(recording_id)
                assert list(limited) == []


def test_stopping_by_every_identity(served: Served, aeron: mainstem.Aeron) -> None:
    with archive.connect(served.control, aeron=aeron) as client:
        stops: list[tuple[int, Callable[[int, int], Any]]] = [
            (1031, lambda _subscription, _recording: client.stop_recording("aeron:ipc", 1031)),
            (1032, lambda subscription, _recording: client.stop_recording_subscription(subscription)),
            (1033, lambda _subscription, recording: client.stop_recording_by_identity(recording)),
        ]
        for stream_id, stop in stops:
            subscription_id = client.start_recording("aeron:ipc", stream_id)
            listed = client.list_recording_subscriptions("ipc", stream_id)
            assert [each.subscription_id for each in listed] == [subscription_id]
            with aeron.add_publication(f"aeron:ipc?{SMALL}", stream_id):
                recording_id = signal(client, RecordingSignal.START).recording_id
                assert client.stop_position(recording_id) is None
                stop(subscription_id, recording_id)
                assert signal(client, RecordingSignal.STOP).recording_id == recording_id
            assert client.list_recording_subscriptions("", stream_id) == []
        assert client.stop_recording_by_identity(recording_id) is False
        for call in (lambda: client.stop_recording_subscription(7), lambda: client.stop_recording("aeron:ipc", 7)):
            with pytest.raises(ArchiveError) as caught:
                call()
            assert caught.value.code is ArchiveErrorCode.UNKNOWN_SUBSCRIPTION


def published(
    client: archive.Client,
    aeron: mainstem.Aeron,
    channel: str,
    stream_id: int,
    sent: list[bytes],
    kind: RecordingSignal,
) -> tuple[int, int]:
    """Send messages to a recording subscription that stops by itself, and return the recording's id and end position."""
    with aeron.add_exclusive_publication(channel, stream_id) as publication:
        recording_id = signal(client, kind).recording_id
        for message in sent:
            publication.send(message)
        end = publication.position
        wait_for(lambda: client.max_recorded_position(recording_id) == end)
    assert signal(client, RecordingSignal.STOP).position == end
    return recording_id, end


def replayed(client: archive.Client, recording_id: int) -> list[bytes]:
    with client.replay(recording_id, "aeron:ipc", 1099) as subscription:
        return list(subscription.messages(timeout=30.0))


def test_extending_a_recording(served: Served, aeron: mainstem.Aeron) -> None:
    with archive.connect(served.control, aeron=aeron) as client:
        recording_id, end = recorded(client, aeron, 1051)
        stopped = client.list_recording(recording_id)
        assert stopped is not None
        client.extend_recording(recording_id, "aeron:ipc", 1051, auto_stop=True)
        channel = extension_channel("aeron:ipc", stopped)
        extended, longer = published(client, aeron, channel, 1051, messages(), RecordingSignal.EXTEND)
        assert extended == recording_id
        assert longer > end
        assert replayed(client, recording_id) == messages() * 2
        # A publication that starts at another position: the archive notices only after it has accepted the request.
        client.extend_recording(recording_id, "aeron:ipc", 1051, auto_stop=True)
        with aeron.add_exclusive_publication(f"aeron:ipc?{SMALL}", 1051):
            late = next(client.events(timeout=30.0))
        assert isinstance(late, ArchiveError)
        assert late.code is ArchiveErrorCode.INVALID_EXTENSION
        with pytest.raises(ArchiveError) as caught:
            client.extend_recording(recording_id, "aeron:ipc", 9)
        assert caught.value.code is ArchiveErrorCode.UNKNOWN_RECORDING


def test_a_recording_is_truncated_and_purged(served: Served, aeron: mainstem.Aeron) -> None:
    with archive.connect(served.control, aeron=aeron) as client:
        recording_id, end = recorded(client, aeron, 1061)
        with client.replay(recording_id, "aeron:ipc", 1062) as subscription:
            ends = [each.position for each in subscription.messages(timeout=30.0, metadata=True)]
        wait_for(lambda: client.stats().pending == 0)
        files = client.truncate_recording(recording_id, ends[9])
        assert files == end // SEGMENT_LENGTH
        assert signal(client, RecordingSignal.DELETE).recording_id == recording_id
        assert replayed(client, recording_id) == messages(10)
        with pytest.raises(ArchiveError) as caught:
            client.truncate_recording(recording_id, end)
        assert caught.value.code is ArchiveErrorCode.INVALID_POSITION
        wait_for(lambda: purged(client, recording_id) == 1)
        assert client.list_recording(recording_id) is None
        with pytest.raises(ArchiveError) as caught:
            client.purge_recording(recording_id)
        assert caught.value.code is ArchiveErrorCode.UNKNOWN_RECORDING
        assert not list(served.archive.glob(f"{recording_id}-*"))


def purged(client: archive.Client, recording_id: int) -> int:
    """Return how many files are deleted, or 0 while the archive is still ending a replay."""
    try:
        return client.purge_recording(recording_id)
    except ArchiveError as error:
        if error.code is not ArchiveErrorCode.ACTIVE_RECORDING:
            raise
        return 0


def test_old_segments_are_listed_detached_and_deleted(served: Served, aeron: mainstem.Aeron) -> None:
    with archive.connect(served.control, aeron=aeron) as client:
        recording_id, end = recorded(client, aeron, 1071, count=COUNT + 100)
        assert end > 3 * SEGMENT_LENGTH

        def files() -> int:
            return len(list(served.archive.glob(f"{recording_id}-*.rec")))

        total = files()
        client.detach_segments(recording_id, SEGMENT_LENGTH)
        assert (client.start_position(recording_id), files()) == (SEGMENT_LENGTH, total)
        assert client.attach_segments(recording_id) == 1
        assert client.start_position(recording_id) == 0
        client.detach_segments(recording_id, SEGMENT_LENGTH)
        assert client.delete_detached_segments(recording_id) == 1
        signal(client, RecordingSignal.DELETE)
        assert files() == total - 1
        assert client.purge_segments(recording_id, 2 * SEGMENT_LENGTH) == 1
        signal(client, RecordingSignal.DELETE)
        assert (client.start_position(recording_id), files()) == (2 * SEGMENT_LENGTH, total - 2)
        with pytest.raises(ArchiveError, match=r"detach_segments of recording \d+: "):
            client.detach_segments(recording_id, 2 * SEGMENT_LENGTH + 32)


def test_segments_move_to_the_recording_that_continues(served: Served, aeron: mainstem.Aeron) -> None:
    """The source is truncated at a segment boundary, so that another recording can start there."""
    with archive.connect(served.control, aeron=aeron) as client:
        source, _ = recorded(client, aeron, 1081)
        client.truncate_recording(source, SEGMENT_LENGTH)
        signal(client, RecordingSignal.DELETE)
        stopped = client.list_recording(source)
        assert stopped is not None
        before = replayed(client, source)
        client.start_recording("aeron:ipc", 1081, auto_stop=True)
        channel = extension_channel("aeron:ipc", stopped)
        continued, _ = published(client, aeron, channel, 1081, messages(), RecordingSignal.START)
        assert client.start_position(continued) == SEGMENT_LENGTH
        assert client.migrate_segments(source, continued) == 1
        signal(client, RecordingSignal.DELETE)
        assert client.start_position(continued) == 0
        assert replayed(client, continued)[: len(before)] == before
        assert replayed(client, continued)[-COUNT:] == messages()


def test_the_channel_of_a_recording_is_updated(served: Served, aeron: mainstem.Aeron) -> None:
    with archive.connect(served.control, aeron=aeron) as client:
        recording_id, _ = recorded(client, aeron, 1091, count=1)
        client.update_channel(recording_id, "aeron:udp?endpoint=localhost:20121|alias=tides")
        described = client.list_recording(recording_id)
        assert described is not None
        assert described.original_channel == "aeron:udp?endpoint=localhost:20121|alias=tides"
        with pytest.raises(ArchiveError, match="unknown recording id: 99999") as caught:
            client.update_channel(99_999, "aeron:ipc")
        assert caught.value.code is ArchiveErrorCode.UNKNOWN_RECORDING


def test_everything_over_response_channels(served: Served, aeron: mainstem.Aeron) -> None:
    """Neither responses nor replays need a client port that the archive can reach."""
    control, replays = (f"aeron:udp?control-mode=response|control=localhost:{free_port()}" for _ in range(2))
    with archive.connect(served.control, response_channel=control, aeron=aeron) as client:
        recording_id, _ = recorded(client, aeron, 1101)
        for _ in range(2):
            with client.replay(recording_id, replays, 1102) as subscription:
                assert list(subscription.messages(timeout=30.0)) == messages()
            assert len(aeron.stats().publications) == 1
        with pytest.raises(ArchiveError) as caught:
            client.replay(recording_id, replays, 1102, position=1 << 40)
        assert caught.value.code is ArchiveErrorCode.INVALID_POSITION
        assert len(aeron.stats().subscriptions) == 1


@contextmanager
def live(aeron: mainstem.Aeron, client: archive.Client, stream_id: int) -> Iterator[tuple[int, str, list[bytes]]]:
    """Publish and record a stream that keeps growing; yield the recording, the channel to join, and the messages so far."""
    control = f"localhost:{free_port()}"
    channel = f"aeron:udp?control-mode=dynamic|control={control}"
    client.start_recording(channel, stream_id, auto_stop=True)
    sent: list[bytes] = []
    stopped = threading.Event()
    with aeron.add_exclusive_publication(f"{channel}|ssc=true|{SMALL}", stream_id) as publication:
        recording_id = signal(client, RecordingSignal.START).recording_id

        def publish() -> None:
            for number in itertools.count():
                message = number.to_bytes(4, "big") * (1 + number % 600)
                sent.append(message)
                publication.send(message)
                if stopped.wait(0 if number < COUNT else 0.002):
                    break

        thread = threading.Thread(target=publish)
        thread.start()
        try:
            wait_for(lambda: len(sent) > COUNT)
            yield recording_id, f"aeron:udp?endpoint=localhost:0|control={control}", sent
        finally:
            stopped.set()
            thread.join()


MANUAL = "aeron:udp?control-mode=manual"
ANY_PORT = "aeron:udp?endpoint=localhost:0"


def test_a_replay_is_merged_with_the_live_stream(served: Served, aeron: mainstem.Aeron) -> None:
    with (
        archive.connect(served.control, aeron=aeron) as client,
        live(aeron, client, 1121) as (recording_id, join, sent),
    ):
        with (
            aeron.add_subscription(MANUAL, 1121) as subscription,
            client.replay_merge(subscription, recording_id, ANY_PORT, join) as merge,
        ):
            got: list[bytes] = []
            stall = StallTimeout("the merge")
            merged_at = 0
            for message in merge.messages(timeout=30.0):
                stall.check(len(got))
                got.append(message)
                if not merge.is_merged:
                    merged_at = len(got)
                elif len(got) == merged_at + 200:
                    break
            assert got == sent[: len(got)]
            assert merged_at >= COUNT
            (image,) = subscription.images
            wait_for(lambda: image.active_transport_count == 1)
            got.append(next(merge.messages(timeout=30.0)))
            wait_for(lambda: bool(more := merge.poll_bytes(1)) and not got.extend(more))
            assert got == sent[: len(got)]
            assert repr(merge).endswith(", merged>")
        assert merge.closed
        # A later merge starts where this one ended, and is abandoned before it completes.
        with (
            aeron.add_subscription(MANUAL, 1121) as subscription,
            client.replay_merge(subscription, recording_id, ANY_PORT, join, position=merge.position) as again,
        ):
            assert next(again.messages(timeout=30.0)) == sent[len(got)]
            again.close()
            wait_for(lambda: not any(image.active_transport_count for image in subscription.images))


def test_a_merge_without_a_recording_fails_with_the_archives_error(served: Served, aeron: mainstem.Aeron) -> None:
    with archive.connect(served.control, aeron=aeron) as client, aeron.add_subscription(MANUAL, 1121) as subscription:
        merge = client.replay_merge(subscription, 99_999, ANY_PORT, ANY_PORT)
        with pytest.raises(ArchiveError) as caught:
            next(merge.messages(timeout=30.0))
        assert caught.value.code is ArchiveErrorCode.UNKNOWN_RECORDING
        assert merge.error is caught.value
        assert merge.closed
        with pytest.raises(ConfigurationError, match="must have 'control-mode=manual' uri=aeron:ipc"):
            client.replay_merge(aeron.add_subscription("aeron:ipc", 1), 1, ANY_PORT, ANY_PORT)


async def test_a_merge_for_asyncio(served: Served, aeron: mainstem.Aeron) -> None:
    with (
        archive.connect(served.control, aeron=aeron) as client,
        live(aeron, client, 1131) as (recording_id, join, sent),
    ):
        async with (
            mainstem.aio.connect(served.directory) as near,
            archive.aio.connect(served.control, aeron=near) as reader,
            near.add_subscription(MANUAL, 1131) as subscription,
            reader.replay_merge(subscription, recording_id, ANY_PORT, join) as merge,
        ):
            got: list[bytes] = []
            async for message in merge:
                got.append(message)
                if merge.is_merged:
                    break
            assert got == sent[: len(got)]


def test_a_recording_is_replicated_from_another_archive(served: Served, aeron: mainstem.Aeron, tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="mainstem-interop-", dir="/dev/shm") as root:
        other_directory = Path(root) / "aeron"
        with (
            JavaArchive(tmp_path / "source", other_directory, has_driver=True) as other,
            mainstem.connect(other.directory) as far,
            archive.connect(other.control, aeron=far) as source,
            archive.connect(served.control, aeron=aeron) as client,
        ):
            recording_id, end = recorded(source, far, 1111)

            def replicate(**options: Any) -> list[Signal]:
                replication_id = client.replicate(recording_id, other.control, **options)
                seen: list[Signal] = []
                while not seen or seen[-1].signal is not RecordingSignal.REPLICATE_END:
                    event = next(client.events(timeout=60.0))
                    assert isinstance(event, Signal), event
                    if event.signal is not RecordingSignal.STOP:
                        assert event.correlation_id == replication_id
                        seen.append(event)
                wait_for(lambda: client.list_recording_subscriptions("", 1111) == [])
                while client.stats().events:
                    next(client.events(timeout=1.0))
                return seen

            with source.replay(recording_id, "aeron:ipc", 1112) as subscription:
                ends = [each.position for each in subscription.messages(timeout=30.0, metadata=True)]
            seen = replicate(stop_position=ends[9])
            assert [each.signal.name for each in seen] == ["REPLICATE", "EXTEND", "REPLICATE_END"]
            copy = seen[0].recording_id
            assert client.stop_position(copy) == ends[9]
            seen = replicate(dst_recording_id=copy, channel_tag_id=41, subscription_tag_id=42)
            assert [each.signal.name for each in seen] == ["EXTEND", "SYNC", "REPLICATE_END"]
            assert client.stop_position(copy) == end
            assert replayed(client, copy) == messages()
            with pytest.raises(ArchiveError) as caught:
                client.stop_replication(99_999)
            assert caught.value.code is ArchiveErrorCode.UNKNOWN_REPLICATION


def test_credentials_and_a_challenge(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="mainstem-interop-", dir="/dev/shm") as root:
        directory = Path(root) / "aeron"
        properties = {"authenticator_supplier": "ChallengingAuthenticator"}
        with (
            JavaArchive(tmp_path / "archive", directory, has_driver=True, **properties) as served,
            mainstem.connect(directory) as aeron,
        ):
            with archive.connect(served.control, aeron=aeron, credentials=b"admin:admin") as client:
                assert list(client.list_recordings()) == []
            options: dict[str, Any] = {"aeron": aeron, "credentials": b"admin:adminC"}
            for answer in (b"admin:CSadmin", b"guess"):
                asked: list[bytes] = []

                def on_challenge(challenge: bytes, asked: list[bytes] = asked, answer: bytes = answer) -> bytes:
                    asked.append(challenge)
                    return answer

                if answer == b"guess":
                    with pytest.raises(ArchiveError) as caught:
                        archive.connect(served.control, **options, on_challenge=on_challenge)
                    assert caught.value.code is ArchiveErrorCode.AUTHENTICATION_REJECTED
                else:
                    with archive.connect(served.control, **options, on_challenge=on_challenge) as client:
                        assert list(client.list_recordings()) == []
                assert asked == [b"challenge!"]
            with pytest.raises(ArchiveError, match="authentication rejected"):
                archive.connect(served.control, aeron=aeron, credentials=b"guess")


async def test_the_asyncio_client_does_the_same(served: Served) -> None:
    async with (
        mainstem.aio.connect(served.directory) as aeron,
        archive.aio.connect(served.control, aeron=aeron) as client,
    ):
        await client.start_recording("aeron:ipc", 1041, auto_stop=True)
        events = client.events(timeout=30.0)
        async with aeron.add_exclusive_publication(f"aeron:ipc?{SMALL}", 1041) as publication:
            started = await anext(events)
            assert isinstance(started, Signal)
            for message in messages():
                await publication.send(message)
            end = publication.position
            while await client.recording_position(started.recording_id) != end:
                pass
        assert [each.stop_position async for each in client.list_recordings_for_uri("", 1041)][-1] in (-1, end)
        async with await client.replay(started.recording_id, "aeron:udp?endpoint=localhost:0", 1042) as subscription:
            assert [each async for each in subscription.messages(timeout=30.0)] == messages()
