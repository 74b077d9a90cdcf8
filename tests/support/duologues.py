"""A duologue server and its clients on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainstem.duologue.channels import ServerChannels
from mainstem.duologue.settings import Settings
from mainstem.errors import BadMessage

if TYPE_CHECKING:
    from mainstem.duologue import Duologue, Server, aio

HERE = "127.0.0.1"


def serving(port: int, **more: Any) -> dict[str, Any]:
    """Return the arguments of ``serve``, except for the handler and the driver."""
    return {"host": HERE, "port": port, "base_port": port + 2, "max_clients": 4, **more}


def calling(port: int, **more: Any) -> dict[str, Any]:
    """Return the arguments of ``connect``, except for the driver."""
    return {"host": HERE, "port": port, "timeout": 15.0, **more}


def server_channels(port: int, **more: Any) -> ServerChannels:
    """Return the channels of a server that is created without ``serve``."""
    return ServerChannels(HERE, port, Settings(**{"base_port": port + 2, "max_clients": 4, **more}))


def echo(duologue: Duologue) -> None:
    """Echo messages that begin with ECHO and refuse any other, as the guide's handler does."""
    for message in duologue:
        if not message.startswith(b"ECHO "):
            raise BadMessage(repr(message))
        duologue.send(message)


async def echo_async(duologue: aio.Duologue) -> None:
    async for message in duologue:
        if not message.startswith(b"ECHO "):
            raise BadMessage(repr(message))
        await duologue.send(message)


def in_use(server: Server | aio.Server) -> tuple[int, int]:
    """Return how many ports and sessions a server's duologues use."""
    core = server._agent.core
    return len(core.ports_in_use), len(core.sessions_in_use)
