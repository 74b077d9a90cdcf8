"""A remote shell over bymux: each command has its own stream, so a slow command does not delay the others.

    python examples/remote_shell.py

A request is the command as JSON with a length prefix, then its standard input. The response is a series of frames: a kind (``o``
output, ``e`` errors, ``x`` exit status), a length, the bytes. Without an exit frame the output is incomplete, because bymux's Close
does not say whether a stream was cut off. The server listens on a Unix socket that only its user may open.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from dataclasses import dataclass
from pathlib import Path

from mainstem import bymux

LENGTH = 4
MAX_REQUEST = 65_536
PIECE = 16_384


def frame(kind: bytes, data: bytes) -> bytes:
    return kind + len(data).to_bytes(LENGTH, "big") + data


async def serve(stream: bymux.aio.Stream) -> None:
    """Run one command; kill it when the client disconnects."""
    length = int.from_bytes(await stream.readexactly(LENGTH), "big")
    if length > MAX_REQUEST:
        stream.abort()
        return
    command: list[str] = json.loads(await stream.readexactly(length))
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None

    async def feed(target: asyncio.StreamWriter) -> None:
        async for data in stream:
            target.write(data)
            await target.drain()
        target.close()

    async def send(kind: bytes, source: asyncio.StreamReader) -> None:
        while data := await source.read(PIECE):
            stream.write(frame(kind, data))
            await stream.drain()  # a client that does not read delays only this command

    try:
        await asyncio.gather(feed(process.stdin), send(b"o", process.stdout), send(b"e", process.stderr))
        stream.write(frame(b"x", b"%d" % await process.wait()))
    finally:
        if process.returncode is None:
            process.kill()


@dataclass
class Result:
    status: int
    output: bytes
    errors: bytes


async def run(connection: bymux.aio.Connection, command: list[str], data: bytes = b"") -> Result:
    """Run a command on the other side, and return its complete output."""
    request = json.dumps(command).encode()
    parts = {b"o": b"", b"e": b"", b"x": b""}
    async with connection.open_stream() as stream:
        stream.write(len(request).to_bytes(LENGTH, "big") + request + data)
        stream.finish()
        while not parts[b"x"]:
            head = await stream.readexactly(1 + LENGTH)
            parts[head[:1]] += await stream.readexactly(int.from_bytes(head[1:], "big"))
    return Result(int(parts[b"x"]), parts[b"o"], parts[b"e"])


async def main() -> None:
    with tempfile.TemporaryDirectory() as directory:  # accessible to this user only
        path = str(Path(directory) / "shell")
        async with bymux.aio.serve(serve, path=path), bymux.aio.connect(path=path) as connection:
            slow = asyncio.ensure_future(run(connection, ["sh", "-c", "sleep 2; echo slow"]))
            quick = await run(connection, ["tr", "a-z", "A-Z"], b"high tide\n")
            print(quick.output.decode().strip(), "- the slow one is still running:", not slow.done())
            failed = await run(connection, ["ls", "/no/such/place"])
            print("exit status", failed.status, "- errors:", bool(failed.errors))
            print((await slow).output.decode().strip())


if __name__ == "__main__":
    asyncio.run(main())
