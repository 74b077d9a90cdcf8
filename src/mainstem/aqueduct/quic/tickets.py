"""Session tickets, which let a client send early data in its first flight, and protection against replays of that data.

A server's tickets are used once: taking a ticket out of the store deletes it, durably, before any early data can be read. A
copy of the same first flight finds no ticket, so TLS itself rejects its early data. The secrets are in the same store, so they
cannot outlive the record of their use.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import sqlite3
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MAX_TICKETS = 100_000
"""Maximum number of unused tickets in a store. Older ones are dropped, which costs their clients a full handshake."""


def encode_ticket(ticket: Any) -> str:
    """Encode a session ticket as text. The tickets of both libraries are dataclasses with the same fields."""
    return json.dumps(dataclasses.asdict(ticket), default=_as_text)


def _as_text(value: datetime.datetime | bytes) -> str:
    return value.isoformat() if isinstance(value, datetime.datetime) else bytes(value).hex()


def decode_ticket(text: str, make: Callable[..., Any]) -> Any:
    """Decode a ticket; ``make`` creates it from its fields."""
    fields = json.loads(text)
    for name in ("not_valid_after", "not_valid_before"):
        fields[name] = datetime.datetime.fromisoformat(fields[name])
    for name in ("resumption_secret", "ticket"):
        fields[name] = bytes.fromhex(fields[name])
    fields["other_extensions"] = [(kind, bytes.fromhex(data)) for kind, data in fields["other_extensions"]]
    return make(**fields)


class _Store:
    """A durable table of strings by name. Each entry is taken at most once, even if several processes share the file."""

    def __init__(self, path: str | Path | None) -> None:
        self._lock = threading.Lock()
        if path is not None:
            _make_private(path)
        self._database = sqlite3.connect(
            ":memory:" if path is None else str(path), isolation_level=None, check_same_thread=False
        )
        self._database.execute("PRAGMA synchronous=FULL")
        self._database.execute("PRAGMA busy_timeout=5000")
        self._database.execute("CREATE TABLE IF NOT EXISTS entry (id INTEGER PRIMARY KEY, name BLOB, value TEXT)")
        self._database.execute("CREATE INDEX IF NOT EXISTS entry_name ON entry (name)")

    def put(self, name: bytes, value: str) -> None:
        with self._lock:
            self._database.execute("INSERT INTO entry (name, value) VALUES (?, ?)", (name, value))
            self._database.execute("DELETE FROM entry WHERE id <= (SELECT max(id) FROM entry) - ?", (MAX_TICKETS,))

    def take(self, name: bytes) -> str | None:
        """Delete and return the newest value stored under a name; None if there is none."""
        with self._lock:
            rows = self._database.execute(
                "DELETE FROM entry WHERE id = (SELECT max(id) FROM entry WHERE name = ?) RETURNING value", (name,)
            ).fetchall()
        return rows[0][0] if rows else None

    def replace(self, name: bytes, value: str) -> None:
        """Make ``value`` the only value stored under a name."""
        if self.find(name) != value:
            with self._lock:
                self._database.execute("DELETE FROM entry WHERE name = ?", (name,))
            self.put(name, value)

    def find(self, name: bytes) -> str | None:
        with self._lock:
            rows = self._database.execute(
                "SELECT value FROM entry WHERE name = ? ORDER BY id DESC LIMIT 1", (name,)
            ).fetchall()
        return rows[0][0] if rows else None

    def close(self) -> None:
        with self._lock:
            self._database.close()


def _make_private(path: str | Path) -> None:
    """Make the file readable only by its owner, because it holds resumption secrets. SQLite's journal gets the same mode."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        os.fchmod(fd, 0o600)
    finally:
        os.close(fd)


class ServerTickets:
    """A server's session tickets. Each can be used only once, even if several processes share the file.

    Args:
        path: The file, created if it is missing; None keeps the tickets in memory.

    Example:
        >>> server = serve(handler, tickets=ServerTickets("tickets.db"), certificate=certificate, key=key)
    """

    def __init__(self, path: str | Path | None = None) -> None:
        self._store = _Store(path)

    def keep(self, ticket: Any) -> None:
        """Store a ``ticket`` that a library issued."""
        self._store.put(ticket.ticket, encode_ticket(ticket))

    def fetcher(self, make: Callable[..., Any]) -> Callable[[bytes], Any]:
        """Return the function with which a library fetches and deletes a ticket; ``make`` creates the ticket from its fields."""

        def fetch(label: bytes) -> Any:
            text = self._store.take(label)
            return None if text is None else decode_ticket(text, make)

        return fetch

    def close(self) -> None:
        """Close the file."""
        self._store.close()


class SessionCache:
    """A client's session tickets and address validation tokens, each used only once, and the addresses of servers.

    Args:
        path: The file, created if it is missing; None keeps the data in memory.

    Example:
        >>> connection = connect("gauges.example", 4433, ca=ca, sessions=SessionCache("sessions.db"), early=True)
    """

    def __init__(self, path: str | Path | None = None) -> None:
        self._store = _Store(path)

    def take(self, origin: str, backend: str, make: Callable[..., Any]) -> Any:
        """Return the newest valid ticket of library ``backend`` for ``origin`` (``host:port``), or None; ``make`` creates it."""
        while (text := self._store.take(f"{backend} {origin}".encode())) is not None:
            ticket = decode_ticket(text, make)
            if ticket.is_valid:
                return ticket
        return None

    def keeper(self, origin: str, backend: str) -> Callable[[Any], None]:
        """Return the function that library ``backend`` calls with each ticket for ``origin`` (``host:port``)."""
        return lambda ticket: self._store.put(f"{backend} {origin}".encode(), encode_ticket(ticket))

    def take_token(self, origin: str) -> bytes:
        """Return the newest address validation token for ``origin`` (``host:port``); empty if there is none."""
        return bytes.fromhex(self._store.take(f"token {origin}".encode()) or "")

    def token_keeper(self, origin: str) -> Callable[[bytes], None]:
        """Return the function that a library calls with each token for ``origin`` (``host:port``)."""
        return lambda token: self._store.put(f"token {origin}".encode(), token.hex())

    def keep_address(self, origin: str, address: str) -> None:
        """Remember the IP ``address`` at which ``origin`` (``host:port``) was reached."""
        self._store.replace(f"address {origin}".encode(), address)

    def known_address(self, origin: str) -> str:
        """Return the IP address at which ``origin`` (``host:port``) was last reached; empty if unknown."""
        return self._store.find(f"address {origin}".encode()) or ""

    def close(self) -> None:
        """Close the file."""
        self._store.close()
