"""A duologue client that is suspended between two calls.

Usage: ``duologue_suspended.py VARIANT ADDRESS PORT DIRECTORY SERVER_KEY``. VARIANT is ``blocking`` or ``asyncio``. An empty
DIRECTORY starts a driver, and SERVER_KEY, in hexadecimal, encrypts. Sends ``part 1 of 2`` and receives its response, prints ``up``,
waits for a line of its standard input, and then prints the types of the next call's error and of ``error``.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from mainstem import duologue


def arguments() -> dict[str, Any]:
    _, _, host, port, directory, key = sys.argv
    return {"host": host, "port": int(port), "directory": directory or None, "server_key": bytes.fromhex(key)}


def report(error: Exception, client: Any) -> None:
    print(type(error).__name__, type(client.error).__name__, flush=True)


def run_blocking() -> None:
    client = duologue.connect(**arguments())
    client.send(b"part 1 of 2")
    client.receive()
    print("up", flush=True)
    sys.stdin.readline()
    try:
        client.receive()
    except Exception as error:
        report(error, client)
    client.abort()


async def run_asyncio() -> None:
    client = await duologue.aio.connect(**arguments())
    await client.send(b"part 1 of 2")
    await client.receive()
    print("up", flush=True)
    sys.stdin.readline()
    try:
        await client.receive()
    except Exception as error:
        report(error, client)
    client.abort()
    await client.close()


if __name__ == "__main__":
    if sys.argv[1] == "blocking":
        run_blocking()
    else:
        asyncio.run(run_asyncio())
