"""Settings of a duologue server and its clients on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainstem.duologue import ClientSettings, ServerSettings
from mainstem.errors import BadMessage

if TYPE_CHECKING:
    from mainstem.duologue import Duologue, Server, aio

HERE = "127.0.0.1"


def server_settings(port: int, **more: Any) -> ServerSettings:
    return ServerSettings(
        address=HERE, initial_port=port, initial_control_port=port + 1, base_port=port + 2, **{"max_clients": 4, **more}
    )


def client_settings(port: int, **more: Any) -> ClientSettings:
    return ClientSettings(server=HERE, initial_port=port, initial_control_port=port + 1, **{"timeout": 15.0, **more})


def echo(duologue: Duologue) -> None:
    """The guide's handler: sends back what begins with ECHO, and refuses anything else."""
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
    """How many ports and sessions the duologues of a server have."""
    core = server._life.core
    return len(core.ports_in_use), len(core.sessions_in_use)
