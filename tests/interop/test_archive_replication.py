"""Replication between Mainstem's archives and Java's, requested by Mainstem's client and by Java's."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import pytest
from tests.interop.archive_processes import KINDS, forget_mark, running
from tests.interop.java_archive import JavaArchive
from tests.support import java
from tests.support.ports import free_port
from tests.support.replications import end_of_replication
from tests.support.same_recordings import check_equal
from tests.support.waiting import STALL_S, wait_for

import mainstem
from mainstem import archive
from mainstem.archive.server import Accept, ArchiveServer, Challenge, Reject
from mainstem.errors import ArchiveErrorCode
from mainstem.recording.catalog import read_catalog

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.interop.conftest import DriverFactory

pytestmark = [pytest.mark.interop, pytest.mark.long]
COUNT = 400


def descriptor(directory: Path, recording_id: int) -> archive.RecordingDescriptor:
    return next(each for each in read_catalog(directory) if each.recording_id == recording_id)


class Stream:
    """A stream that an archive records, with messages of many lengths, some longer than a frame."""

    def __init__(self, aeron: mainstem.Aeron, source: archive.Client) -> None:
        source.start_recording("aeron:ipc", 1001, auto_stop=True)
        self.publication = aeron.add_exclusive_publication("aeron:ipc?term-length=64k", 1001)
        self.sent = 0
        self.recording_id = next(source.events(timeout=STALL_S)).recording_id  # type: ignore[union-attr]

    def publish(self, count: int) -> int:
        for number in range(self.sent, self.sent + count):
            self.publication.send(number.to_bytes(4, "big") * (1 + number % 600), timeout=STALL_S)
        self.sent += count
        return self.publication.position


def has_copied(client: archive.Client, recording_id: int, position: int) -> bool:
    return client.list_recording(recording_id) is not None and client.max_recorded_position(recording_id) == position


@pytest.mark.parametrize("source", KINDS)
def test_a_java_client_that_replicates_sees_no_difference(
    start_driver: DriverFactory, tmp_path: Path, source: str
) -> None:
    java.require_java()
    driver = start_driver("mainstem").directory
    transcripts = {}
    for kind in KINDS:
        with (
            running(source, tmp_path / f"source-{kind}", driver) as (source_control, _),
            running(kind, tmp_path / kind, driver) as (control, _),
        ):
            done = java.run("ReplicateArchive", driver, source_control, control, free_port())
            assert done.returncode == 0, done.stdout + done.stderr
            transcripts[kind] = done.stdout.splitlines()
    assert transcripts["mainstem"] == transcripts["java"]


@pytest.mark.parametrize("source_kind", KINDS)
def test_a_copy_continues_after_its_archive_was_killed(
    start_driver: DriverFactory, tmp_path: Path, source_kind: str
) -> None:
    driver = start_driver("mainstem").directory
    copy = tmp_path / "copy"
    with ExitStack() as stack:
        source_control, _ = stack.enter_context(running(source_kind, tmp_path / "source", driver))
        aeron = stack.enter_context(mainstem.connect(driver))
        source = stack.enter_context(archive.connect(source_control, aeron=aeron))
        stream = Stream(aeron, source)
        position = stream.publish(COUNT)
        with running("mainstem", copy, driver) as (control, process):
            client = stack.enter_context(archive.connect(control, aeron=aeron))
            client.replicate(stream.recording_id, source_control)
            wait_for(lambda: has_copied(client, 0, position))
            process.kill()
            process.wait()
        stream.publish(COUNT)
        with running("mainstem", copy, driver) as (control, _), archive.connect(control, aeron=aeron) as client:
            assert client.stop_position(0) == position
            client.replicate(stream.recording_id, source_control, dst_recording_id=0)
            end = stream.publish(COUNT)
            wait_for(lambda: client.max_recorded_position(0) == end)
            stream.publication.close()
            assert end_of_replication(client) == (["EXTEND", "STOP", "REPLICATE_END"], [])
            wait_for(lambda: source.stop_position(stream.recording_id) == end)
    check_equal(tmp_path / "source", descriptor(tmp_path / "source", stream.recording_id), copy, descriptor(copy, 0))


@pytest.mark.parametrize("source_kind", KINDS)
def test_a_source_that_is_killed_is_reported_and_the_copy_continues(
    start_driver: DriverFactory, tmp_path: Path, source_kind: str
) -> None:
    driver = start_driver("mainstem").directory
    source_directory = tmp_path / "source"
    with ExitStack() as stack:
        aeron = stack.enter_context(mainstem.connect(driver))
        control, _ = stack.enter_context(running("mainstem", tmp_path / "copy", driver))
        client = stack.enter_context(archive.connect(control, aeron=aeron))
        with running(source_kind, source_directory, driver) as (source_control, process):
            stream = Stream(aeron, stack.enter_context(archive.connect(source_control, aeron=aeron)))
            position = stream.publish(COUNT)
            client.replicate(stream.recording_id, source_control)
            wait_for(lambda: has_copied(client, 0, position))
            process.kill()
            process.wait()
            names, errors = end_of_replication(client)
            assert (names[:2], sorted(names[2:])) == (["REPLICATE", "EXTEND"], ["REPLICATE_END", "STOP"])
            assert len(errors) == 1
            assert client.stop_position(0) == position
        stream.publication.close()
        forget_mark(source_directory)
        with running(source_kind, source_directory, driver) as (source_control, _):
            client.replicate(stream.recording_id, source_control, dst_recording_id=0)
            assert end_of_replication(client) == (["SYNC", "REPLICATE_END"], [])
    check_equal(
        source_directory,
        descriptor(source_directory, stream.recording_id),
        tmp_path / "copy",
        descriptor(tmp_path / "copy", 0),
    )


class ChallengingAuthenticator:
    """The same as ChallengingAuthenticator.java."""

    def authenticate(self, credentials: bytes, challenge: bytes | None) -> Accept | Challenge | Reject:
        if challenge is None and credentials == b"admin:adminC":
            return Challenge(b"challenge!")
        accepted = b"admin:admin" if challenge is None else b"admin:CSadmin"
        return Accept(b"admin") if credentials == accepted else Reject()


@contextmanager
def challenging(kind: str, directory: Path, driver: Path) -> Iterator[str]:
    """Run an archive that challenges the credentials "admin:adminC", and yield its control channel."""
    control = f"aeron:udp?endpoint=localhost:{free_port()}"
    if kind == "java":
        supplier = "ChallengingAuthenticator"
        with JavaArchive(directory, driver, has_driver=False, control=control, authenticator_supplier=supplier):
            yield control
        return
    options = {"control_channel": control, "local_control_stream_id": 11, "segment_file_length": 128 << 10}
    with ArchiveServer.launch(directory, driver, authenticator=ChallengingAuthenticator(), **options):
        yield control


@pytest.mark.parametrize("source_kind", KINDS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_source_that_challenges_is_reported_as_by_java_and_its_client_may_answer(
    start_driver: DriverFactory, tmp_path: Path, kind: str, source_kind: str
) -> None:
    driver = start_driver("mainstem").directory
    source_directory, copy = tmp_path / "source", tmp_path / "copy"
    asked: list[bytes] = []

    def answer(challenge: bytes) -> bytes:
        asked.append(challenge)
        return b"admin:CSadmin"

    with (
        challenging(source_kind, source_directory, driver) as source_control,
        running(kind, copy, driver) as (control, _),
        mainstem.connect(driver) as aeron,
        archive.connect(source_control, aeron=aeron, credentials=b"admin:adminC", on_challenge=answer) as source,
        archive.connect(control, aeron=aeron) as client,
    ):
        assert asked == [b"challenge!"]
        stream = Stream(aeron, source)
        end = stream.publish(COUNT)
        stream.publication.close()
        wait_for(lambda: source.stop_position(stream.recording_id) == end)
        client.replicate(stream.recording_id, source_control, credentials=b"admin:adminC")
        names, (error,) = end_of_replication(client)
        assert names == ["REPLICATE_END"]
        assert error.code is ArchiveErrorCode.REPLICATION_CONNECTION_FAILURE
        assert "Replication does not support challenge/response authentication" in str(error)
        client.replicate(stream.recording_id, source_control, credentials=b"admin:admin")
        assert end_of_replication(client)[1] == []
        assert client.stop_position(0) == end
    check_equal(source_directory, descriptor(source_directory, stream.recording_id), copy, descriptor(copy, 0))
