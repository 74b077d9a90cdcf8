"""Requests that are authorized by the client's TLS certificate.

python examples/mux_certificates.py
"""

from __future__ import annotations

import asyncio
import tempfile

from mainstem import jmux
from mainstem.aqueduct import make_certificates
from mainstem.errors import Aborted

ALLOWED = {"ada.example"}


def common_name(session: jmux.aio.ServerSession) -> str:
    """Return the name in the client's certificate, which the TLS handshake has verified."""
    certificate = session.peer_certificate or {}
    return next((value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"), "")


async def serve(session: jmux.aio.ServerSession) -> None:
    name = common_name(session)
    if name not in ALLOWED:
        session.reject(f"{name} is not allowed")
        return
    request = await session.read(-1)
    host, *_ = session.peer_address
    session.write(b"%s from %s sent %d bytes" % (name.encode(), host.encode(), len(request)))


async def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        files = make_certificates(directory, clients=("ada.example", "eve.example"))
        async with jmux.aio.serve(
            serve, "127.0.0.1", 0, certificate=files.certificate, key=files.key, client_ca=files.ca
        ) as server:
            for certificate, key in files.clients.values():
                async with jmux.aio.connect(
                    "127.0.0.1", server.port, ca=files.ca, certificate=certificate, key=key
                ) as client:
                    try:
                        print((await client.request(b"request")).decode())
                    except Aborted as error:
                        print(error)


if __name__ == "__main__":
    asyncio.run(main())
