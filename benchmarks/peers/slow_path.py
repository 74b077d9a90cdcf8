"""A path with latency between one client and one server on this host: datagrams arrive ``delay`` seconds later."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from aqueduct_common import Options, ready, run

SOCKET_BUFFER = 4 << 20


class Way(asyncio.DatagramProtocol):
    """One end of the path. Datagrams that arrive here leave at the other end."""

    def __init__(self, delay: float, address: Any = None) -> None:
        self.delay = delay
        self.address = address
        self.other: Way
        self.transport: asyncio.DatagramTransport

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, option, SOCKET_BUFFER)

    def datagram_received(self, data: bytes, address: Any) -> None:
        if self.address is None:
            self.address = address
        asyncio.get_running_loop().call_later(self.delay, self.other.forward, data)

    def forward(self, data: bytes) -> None:
        self.transport.sendto(data, self.address)


async def serve(options: Options) -> None:
    loop = asyncio.get_running_loop()
    near, far = Way(options.delay), Way(options.delay, ("127.0.0.1", options.to))
    near.other, far.other = far, near
    await loop.create_datagram_endpoint(lambda: near, local_addr=("127.0.0.1", options.port))
    await loop.create_datagram_endpoint(lambda: far, local_addr=("127.0.0.1", 0))
    ready()
    await loop.create_future()


if __name__ == "__main__":
    run(serve, serve)
