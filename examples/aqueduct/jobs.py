"""A job server that streams progress through a channel that it received, and stops when the receiver is closed.

``python examples/aqueduct/jobs.py``
"""

from __future__ import annotations

import asyncio
import tempfile
from typing import Any

from mainstem import aqueduct
from mainstem.aqueduct import MsgspecSerializer
from mainstem.aqueduct.aio import channel
from mainstem.errors import NoReceivers


async def work(job: dict[str, Any]) -> None:
    """Count to the job's goal, and report progress."""
    progress = job["progress"]
    try:
        for step in range(1, job["steps"] + 1):
            await asyncio.sleep(0.002)
            await progress.send({"job": job["name"], "done": step, "of": job["steps"]})
        progress.finish()
    except NoReceivers:
        print(f"{job['name']}: nobody listens, so it stops")


async def jobs(connection: aqueduct.aio.Connection) -> None:
    running: set[asyncio.Future[None]] = set()
    async for job in connection.receiver:
        task = asyncio.ensure_future(work(job))
        running.add(task)
        task.add_done_callback(running.discard)
    await asyncio.gather(*running)


async def main() -> None:
    files = aqueduct.make_certificates(tempfile.mkdtemp())
    serializers = [MsgspecSerializer()]
    server = await aqueduct.aio.serve(jobs, certificate=files.certificate, key=files.key, serializers=serializers)
    async with (
        server,
        aqueduct.aio.connect("localhost", server.port, ca=files.ca, serializers=serializers) as connection,
    ):
        dredge, dredging = channel()
        await connection.sender.send({"name": "dredge", "steps": 20, "progress": dredge})
        survey, surveying = channel()
        await connection.sender.send({"name": "survey", "steps": 10_000, "progress": survey})
        async for report in dredging:
            if report["done"] % 5 == 0:
                print(report)
        print("dredge is done;", await surveying.receive())
        surveying.abort()
        connection.sender.finish()
        await connection.sender.wait_closed()
        await connection.wait_channels_closed()


if __name__ == "__main__":
    asyncio.run(main())
