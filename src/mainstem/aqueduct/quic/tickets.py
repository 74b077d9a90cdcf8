"""Session tickets, which let a client send early data in its first flight, and protection against replays of that data.

A server's tickets are used once: taking a ticket out of the store deletes it, durably, before any early data can be read. A
copy of the same first flight finds no ticket, so TLS itself rejects its early data. The secrets are in the same store, so they
cannot outlive the record of their use.

A resumed session inherits the authentication of the handshake that its ticket comes from (RFC 8446, 2.2). So a client stores each
ticket under a name that says everything that decided this authentication (`ticket_name`).

A client with a ticket sends early data by the limits that the server had when it issued the ticket. So a server stores these
`Promises` with each ticket, and ignores the ticket if it no longer keeps them (RFC 9000, 7.4.1). The client then does a full
handshake and sends its early data again.
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import json
import os
import sqlite3
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mainstem._internal.exit_cleanup import leave_at_fork

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstem.aqueduct.settings import Settings

MAX_TICKETS = 100_000
"""Maximum number of unused tickets in a store. Older ones are dropped, which costs their clients a full handshake."""


@dataclasses.dataclass(frozen=True)
class Promises:
    """What a server's tickets say about later connections: its library and protocol, and the limits that may only grow."""

    backend: str
    alpn: str
    max_streams: int
    stream_window: int
    connection_window: int

    @classmethod
    def of(cls, settings: Settings) -> Promises:
        return cls(**{field.name: getattr(settings, field.name) for field in dataclasses.fields(cls)})

    def keeps(self, earlier: dict[str, Any]) -> bool:
        """Return whether a server that now promises this also keeps what it promised ``earlier``."""
        own = dataclasses.asdict(self)
        if own.keys() != earlier.keys():
            return False
        return all(
            value >= earlier[name] if isinstance(value, int) else value == earlier[name] for name, value in own.items()
        )


def ticket_name(settings: Settings, *, origin: str, server_name: str) -> str:
    """Return the name for tickets of ``origin`` (``host:port``) with the authentication that a client's settings require."""
    parts = [
        settings.alpn.encode(),
        server_name.encode(),
        b"verify" if settings.verify else b"accept any",
        *(_content(path) for path in (settings.ca, settings.certificate, settings.key)),
    ]
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8) + part)
    return f"ticket {settings.backend} {origin} {digest.hexdigest()}"


def _content(path: str | Path | None) -> bytes:
    """Return a digest of a file, so that replacing its content makes a difference; empty if there is no file."""
    return b"" if path is None else hashlib.sha256(Path(path).read_bytes()).digest()


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
    """A durable table of strings by name. Each entry is taken at most once, even if several processes share the file.

    A forked child opens the file itself, because SQLite does not support inherited connections. If there is no file, the child's
    table is empty: the parent may take the entries.
    """

    def __init__(self, path: str | Path | None) -> None:
        self._path = path
        self._inherited: list[sqlite3.Connection] = []
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = self._connect()
        leave_at_fork(self)

    def _leave_to_parent(self) -> None:
        self._lock = threading.Lock()
        # Closing an inherited connection could release the parent's locks on the file.
        if self._connection is not None:
            self._inherited.append(self._connection)
        self._connection = None

    @property
    def _database(self) -> sqlite3.Connection:
        """The connection, to be used with the lock held."""
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    def _connect(self) -> sqlite3.Connection:
        if self._path is not None:
            _make_private(self._path)
        connection = sqlite3.connect(
            ":memory:" if self._path is None else str(self._path), isolation_level=None, check_same_thread=False
        )
        try:
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute("PRAGMA busy_timeout=5000")
            connection.execute("CREATE TABLE IF NOT EXISTS entry (id INTEGER PRIMARY KEY, name BLOB, value TEXT)")
            connection.execute("CREATE INDEX IF NOT EXISTS entry_name ON entry (name)")
        except BaseException:
            connection.close()
            raise
        return connection

    def __del__(self) -> None:
        # Python 3.13 warns of an open connection that is collected, but a store that is dropped loses nothing.
        if (connection := self.__dict__.get("_connection")) is not None:
            connection.close()

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
            if self._connection is not None:
                self._connection.close()


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

    def keeper(self, promises: Promises) -> Callable[[Any], None]:
        """Return the function that a library calls with each ticket that it issues with these ``promises``."""

        def keep(ticket: Any) -> None:
            entry = {"promises": dataclasses.asdict(promises), "ticket": encode_ticket(ticket)}
            self._store.put(ticket.ticket, json.dumps(entry))

        return keep

    def fetcher(self, promises: Promises, make: Callable[..., Any]) -> Callable[[bytes], Any]:
        """Return the function with which a library fetches and deletes a ticket; ``make`` creates the ticket from its fields.

        It returns None for tickets that say more than ``promises``.
        """

        def fetch(label: bytes) -> Any:
            text = self._store.take(label)
            if text is None:
                return None
            entry = json.loads(text)
            if "promises" not in entry or not promises.keeps(entry["promises"]):
                return None
            return decode_ticket(entry["ticket"], make)

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

    def take(self, name: str, make: Callable[..., Any]) -> Any:
        """Return the newest valid ticket with this ``name`` (`ticket_name`), or None; ``make`` creates it from its fields."""
        while (text := self._store.take(name.encode())) is not None:
            ticket = decode_ticket(text, make)
            if ticket.is_valid:
                return ticket
        return None

    def keeper(self, name: str) -> Callable[[Any], None]:
        """Return the function that a library calls with each ticket to store under ``name`` (`ticket_name`)."""
        return lambda ticket: self._store.put(name.encode(), encode_ticket(ticket))

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
