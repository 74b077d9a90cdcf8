"""An archive is killed and restarted: what clients of Mainstem's archive and of Java's see."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest
from tests.interop.archive_processes import KINDS, forget_mark, running
from tests.support.waiting import STALL_S, wait_for

import mainstem
from mainstem import archive
from mainstem.archive import RecordingSignal, Signal
from mainstem.errors import ConnectionLost, Delivery, MainstemError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.interop.conftest import DriverFactory

pytestmark = [pytest.mark.interop, pytest.mark.long]
COUNT = 300
LIVENESS = {"AERON_CLIENT_LIVENESS_TIMEOUT": "5s", "AERON_IMAGE_LIVENESS_TIMEOUT": "5s"}


def payload(number: int) -> bytes:
    return number.to_bytes(4, "big") * (1 + number % 600)


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_resumes_after_its_archive_was_killed_and_restarted(
    start_driver: DriverFactory, tmp_path: Path, kind: str
) -> None:
    driver = start_driver("mainstem", **LIVENESS).directory
    with mainstem.connect(driver) as aeron:
        with running(kind, tmp_path, driver) as (control, process):
            client = archive.connect(control, aeron=aeron)
            client.start_recording("aeron:ipc", 1001)
            publication = aeron.add_exclusive_publication("aeron:ipc?term-length=64k", 1001)
            (event,) = [next(client.events(timeout=STALL_S))]
            assert isinstance(event, Signal)
            recording_id = event.recording_id
            for number in range(COUNT):
                publication.send(payload(number), timeout=STALL_S)
            wait_for(lambda: client.recording_position(recording_id) == publication.position)
            events = client.events(timeout=STALL_S)
            failures: list[MainstemError] = []

            def ask() -> None:
                try:
                    while True:
                        client.recording_position(recording_id, timeout=STALL_S)
                except MainstemError as error:
                    failures.append(error)

            asking = threading.Thread(target=ask)
            with client.replay(recording_id, "aeron:ipc", 1002) as replay:
                messages = replay.messages(timeout=STALL_S, metadata=True)
                read = [next(messages) for _ in range(100)]
                asking.start()
                process.kill()
                process.wait()
                # The client reads what the archive sent before it died. Then the iterator raises, because the replay is incomplete.
                position = None
                try:
                    for message in messages:
                        read.append(message)  # noqa: PERF402 - what came before the error counts
                except ConnectionLost as lost:
                    position = lost.position
                assert position == read[-1].position
            asking.join()
            with pytest.raises(ConnectionLost):
                next(events)
        assert isinstance(failures[0], ConnectionLost)
        assert (failures[0].delivery, failures[0].may_retry) == (Delivery.UNKNOWN, False)
        assert (client.connected, client.closed) == (False, False)
        publication.close()
        forget_mark(tmp_path)
        with running(kind, tmp_path, driver, control):
            end = client.stop_position(recording_id)
            assert client.connected
            # The restarted archive repairs the recording from its frames, so it has everything that was recorded.
            assert end is not None
            assert end >= read[-1].position
            if read[-1].position < end:
                with client.replay(recording_id, "aeron:ipc", 1003, position=read[-1].position) as replay:
                    read += replay.messages(timeout=STALL_S, metadata=True)
            assert [each.payload for each in read] == [payload(number) for number in range(COUNT)]
            client.start_recording("aeron:ipc", 1004, auto_stop=True)
            with aeron.add_exclusive_publication("aeron:ipc?term-length=64k", 1004):
                signal = next(client.events(timeout=STALL_S))
                assert isinstance(signal, Signal)
                assert signal.signal is RecordingSignal.START
            client.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_the_asyncio_client_does_the_same(start_driver: DriverFactory, tmp_path: Path, kind: str) -> None:
    driver = start_driver("mainstem", **LIVENESS).directory
    async with mainstem.aio.connect(driver) as aeron:
        with running(kind, tmp_path, driver) as (control, process):
            client = await archive.aio.connect(control, aeron=aeron)
            await client.start_recording("aeron:ipc", 1001)
            publication = await aeron.add_exclusive_publication("aeron:ipc?term-length=64k", 1001)
            events = client.events(timeout=STALL_S)
            await anext(events)
            for number in range(COUNT):
                await publication.send(payload(number), timeout=STALL_S)
            # This bounded replay has reached its end when the archive dies, so it is complete.
            bounded = await client.replay(0, "aeron:ipc", 1002, length=64)
            # This replay follows its recording.
            following = await client.replay(0, "aeron:ipc", 1003)
            read = [await anext(following.messages(timeout=STALL_S, metadata=True))]
            process.kill()
            process.wait()
            with pytest.raises(ConnectionLost):
                async for _ in events:
                    pass
            assert [each async for each in bounded.messages(timeout=STALL_S)] == [payload(0)]
            position = None
            try:
                async for message in following.messages(timeout=STALL_S, metadata=True):
                    read.append(message)  # noqa: PERF401 - what came before the error counts
            except ConnectionLost as lost:
                position = lost.position
            assert position == read[-1].position
            assert [each.payload for each in read] == [payload(number) for number in range(len(read))]
            for each in (bounded, following, publication):
                await each.close()
        assert (client.connected, client.closed) == (False, False)
        forget_mark(tmp_path)
        waiting = asyncio.ensure_future(client.stop_position(0, timeout=STALL_S))
        with running(kind, tmp_path, driver, control):
            assert await waiting >= read[-1].position
            assert client.connected
            await client.close()
