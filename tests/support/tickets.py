"""Read a client's session cache without removing tickets from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.waiting import until

if TYPE_CHECKING:
    from mainstem.aqueduct import SessionCache
    from mainstem.aqueduct.aio import Connection


def has_entry(sessions: SessionCache, name: str) -> bool:
    names = sessions._store._database.execute("SELECT name FROM entry").fetchall()
    return any(entry[0].startswith(name.encode()) for entry in names)


def has_ticket(sessions: SessionCache, backend: str, origin: str) -> bool:
    return has_entry(sessions, f"ticket {backend} {origin} ")


def has_token(sessions: SessionCache, origin: str) -> bool:
    return has_entry(sessions, f"token {origin}")


async def completed(connection: Connection, sessions: SessionCache, origin: str, backend: str) -> None:
    """Wait until the handshake is complete and the client has the ticket for the next one."""
    await until(lambda: connection._protocol.adapter.lifecycle.handshake_done and has_ticket(sessions, backend, origin))
