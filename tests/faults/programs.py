"""The programs that are killed, stopped and restarted: ``python -m tests.faults.programs ROLE ARGUMENTS``.

Each runs until it is killed or until something it depends on is gone. Then it exits, and its parent restarts it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

from tests.faults.chain import Chain, write_record

from mainstem.errors import Timeout

STREAM = 1001
# A soak sets these: it is slower than rounds, which use the defaults, and has longer timeouts.
PAUSE_S = float(os.environ.get("MAINSTEM_FAULTS_PAUSE_S", "0.001"))
TIMEOUT_SCALE = int(os.environ.get("MAINSTEM_FAULTS_TIMEOUT_SCALE", "1"))
# As short as a busy machine allows: a program that is stopped for three seconds exceeds each of them.
TIMEOUTS = {
    "client_liveness_timeout_ns": TIMEOUT_SCALE * 10**9,
    "image_liveness_timeout_ns": TIMEOUT_SCALE * 10**9,
    "publication_connection_timeout_ns": TIMEOUT_SCALE * 10**9,
    "publication_unblock_timeout_ns": TIMEOUT_SCALE * 2 * 10**9,
    "publication_linger_timeout_ns": 10**9,
    "driver_timeout_ns": TIMEOUT_SCALE * 2 * 10**9,
    "timer_interval_ns": 50 * 10**6,
}
REQUEST_INTERVAL = 20  # messages
# The idle timeout of an Aqueduct; its default is 30 s.
IDLE_S = TIMEOUT_SCALE * 1.4


def open_log(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def driver(directory: str, descriptors: str = "") -> None:
    """Run the driver, with a limit of open files if one is given."""
    from mainstem import MediaDriver

    if descriptors:
        resource.setrlimit(resource.RLIMIT_NOFILE, (int(descriptors), int(descriptors)))

    with MediaDriver.launch(directory, threads=True, **TIMEOUTS):
        while True:
            time.sleep(1)


def client(directory: str) -> Any:
    from mainstem import Aeron

    return Aeron.connect(directory, driver_timeout_ns=TIMEOUTS["driver_timeout_ns"])


def publisher(directory: str, channel: str) -> None:
    with client(directory) as aeron, aeron.add_exclusive_publication(channel, STREAM) as publication:
        chain = Chain(os.urandom(8))
        message = chain.next()
        while not publication.closed:
            if publication.offer(message) > 0:
                message = chain.next()
            time.sleep(PAUSE_S)


def subscriber(directory: str, channel: str, log: str) -> None:
    file = open_log(log)
    with client(directory) as aeron, aeron.add_subscription(channel, STREAM) as subscription:
        while not subscription.closed:
            with contextlib.suppress(Timeout):
                for message in subscription.messages(timeout=0.1, metadata=True):
                    # Each image of a stream is one sequence; the next image may begin elsewhere in the chain.
                    write_record(file, message.image.correlation_id, message.payload)


def archive_client(directory: str, control: str, log: str) -> None:
    """Publish a stream that an archive records, and log each message once the archive reports it as recorded."""
    from mainstem import archive

    file = open_log(log)
    with (
        client(directory) as aeron,
        archive.connect(control, aeron=aeron) as session,
        aeron.add_exclusive_publication("aeron:ipc?term-length=64k", STREAM) as publication,
    ):
        session.start_recording(f"aeron:ipc?session-id={publication.session_id}", STREAM, auto_stop=True)
        recording_id = next(session.events(timeout=10)).recording_id
        chain = Chain(os.urandom(8))
        message, sent = chain.next(), deque[tuple[int, bytes]]()
        while not publication.closed:
            position = publication.offer(message)
            if position > 0:
                sent.append((position, message))
                message = chain.next()
            if position <= 0 or len(sent) >= REQUEST_INTERVAL:
                recorded = session.recording_position(recording_id)
                if recorded is None:
                    break  # the archive has closed it
                while sent and sent[0][0] <= recorded:
                    write_record(file, recording_id, sent.popleft()[1])
            time.sleep(PAUSE_S)


def replicator(directory: str, source: str, replica: str, log: str) -> None:
    """Have a replica copy each recording that ends, and log the copy's recording id and its end position."""
    from mainstem import archive
    from mainstem.archive import RecordingSignal

    with (
        client(directory) as aeron,
        archive.connect(source, aeron=aeron) as origin,
        archive.connect(replica, aeron=aeron) as copy,
        Path(log).open("a", buffering=1) as file,
    ):
        following = max((each.recording_id for each in origin.list_recordings()), default=0)
        while True:
            time.sleep(0.05)
            recording = next(iter(origin.list_recordings(following, count=1)), None)
            if recording is None or recording.stop_position < 0:
                continue  # it does not exist yet, or it has not ended
            following = recording.recording_id + 1
            if recording.stop_position == recording.start_position:
                continue
            replication = copy.replicate(recording.recording_id, source)
            for event in copy.events(timeout=20):
                if not isinstance(event, archive.Signal):
                    raise event
                if event.correlation_id == replication and event.signal is RecordingSignal.REPLICATE_END:
                    print(event.recording_id, recording.stop_position, file=file)
                    break


async def mux_server(protocol: str, port: str, log: str) -> None:
    from mainstem import bymux
    from mainstem.jmux import aio as jmux

    file = open_log(log)

    async def serve(stream: Any) -> None:
        """Receive the messages of one stream, each with a length prefix."""
        tag, data = time.monotonic_ns(), b""
        while part := await stream.read(65536):
            data += part
            while len(data) >= 4 and len(data) >= 4 + int.from_bytes(data[:4], "big"):
                end = 4 + int.from_bytes(data[:4], "big")
                write_record(file, tag, data[4:end])
                data = data[end:]

    listen: Any = bymux.aio.serve if protocol == "bymux" else jmux.serve
    async with await listen(serve, "127.0.0.1", int(port)):
        await asyncio.Event().wait()


async def mux_client(protocol: str, port: str) -> None:
    from mainstem import bymux
    from mainstem.jmux import aio as jmux

    chain = Chain(os.urandom(8))
    if protocol == "bymux":
        async with bymux.aio.connect("127.0.0.1", int(port)) as connection, await connection.open_stream() as stream:
            await send(stream, chain)
    async with jmux.connect("127.0.0.1", int(port)) as connection, await connection.open_session() as session:
        await send(session, chain)


async def send(stream: Any, chain: Chain) -> None:
    while True:
        message = chain.next()
        stream.write(len(message).to_bytes(4, "big") + message)
        await stream.drain()
        await asyncio.sleep(PAUSE_S)


async def aqueduct_server(files: str, port: str, log: str) -> None:
    from mainstem import aqueduct

    file = open_log(log)

    async def serve(connection: Any) -> None:
        tag = time.monotonic_ns()
        async for message in connection.receiver:
            write_record(file, tag, bytes(message))

    certificate, key = Path(files, "cert.pem"), Path(files, "key.pem")
    settings = aqueduct.Settings(certificate=str(certificate), key=str(key), idle_timeout=IDLE_S)
    async with aqueduct.aio.serve(serve, port=int(port), settings=settings):
        await asyncio.Event().wait()


async def aqueduct_client(files: str, port: str) -> None:
    from mainstem import aqueduct

    chain = Chain(os.urandom(8))
    settings = aqueduct.Settings(ca=str(Path(files, "ca.pem")), idle_timeout=IDLE_S)
    async with aqueduct.aio.connect("localhost", int(port), settings=settings) as connection:
        while True:
            await connection.sender.send(chain.next())
            await asyncio.sleep(PAUSE_S)


def main() -> None:
    # A shell starts background jobs with SIGINT ignored, and programs inherit that; here SIGINT ends them cleanly.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    role, *arguments = sys.argv[1:]
    program = globals()[role]
    if asyncio.iscoroutinefunction(program):
        asyncio.run(program(*arguments))
    else:
        program(*arguments)


if __name__ == "__main__":
    main()
