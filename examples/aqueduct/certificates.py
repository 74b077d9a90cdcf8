"""Authorization by certificate: the server asks its clients for certificates, and only one of them may write.

``python examples/aqueduct/certificates.py``
"""

from __future__ import annotations

import asyncio
import tempfile
from typing import Any

from mainstem import aqueduct
from mainstem.aqueduct import MsgspecSerializer
from mainstem.aqueduct.aio import oneshot

WRITERS = {"harbour-master"}


def name_of(connection: aqueduct.aio.Connection) -> str:
    """Return the common name of the client's certificate, which one of the server's authorities has signed."""
    assert connection.peer_certificate is not None
    subject = dict(pair for part in connection.peer_certificate["subject"] for pair in part)
    return str(subject["commonName"])


async def board(connection: aqueduct.aio.Connection) -> None:
    """Accept notices from writers, and refuse everyone else's."""
    name = name_of(connection)
    async for request in connection.receiver:
        accepted = name in WRITERS
        await request["response"].send(f"{name}: {'posted' if accepted else 'refused'} {request['notice']!r}")


async def post(host: str, port: int, notice: str, **files: Any) -> None:
    """Post one notice, as the client that has these files."""
    connecting = aqueduct.aio.connect(host, port, serializers=[MsgspecSerializer()], backend="aioquic", **files)
    async with connecting as connection:
        respond, response = oneshot()
        await connection.sender.send({"notice": notice, "response": respond})
        print(await response)


async def main() -> None:
    files = aqueduct.make_certificates(tempfile.mkdtemp(), clients=["harbour-master", "gull"])
    # Only aioquic can ask clients for certificates; clients may use either library.
    server = await aqueduct.aio.serve(
        board,
        certificate=files.certificate,
        key=files.key,
        client_ca=files.ca,
        serializers=[MsgspecSerializer()],
        backend="aioquic",
    )
    async with server:
        for name in ("harbour-master", "gull"):
            certificate, key = files.clients[name]
            await post("localhost", server.port, "lock closed", ca=files.ca, certificate=certificate, key=key)


if __name__ == "__main__":
    asyncio.run(main())
