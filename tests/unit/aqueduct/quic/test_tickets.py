"""Session tickets are used once, however many processes share the file."""

from __future__ import annotations

import datetime
import gc
import sqlite3
import stat
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest

from mainstem.aqueduct.quic.tickets import Promises, ServerTickets, SessionCache
from mainstem.aqueduct.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


PROMISES = Promises.of(Settings())


@dataclass
class Ticket:
    """The attributes that both libraries' tickets have."""

    ticket: bytes = b"label"
    age_add: int = 1
    cipher_suite: int = 2
    not_valid_after: datetime.datetime = NOW
    not_valid_before: datetime.datetime = NOW
    resumption_secret: bytes = b"secret"
    server_name: str = "localhost"
    max_early_data_size: int | None = None
    other_extensions: list[tuple[int, bytes]] = field(default_factory=list)

    @property
    def is_valid(self) -> bool:
        return True


@pytest.fixture(params=["memory", "file"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path / "tickets.db" if request.param == "file" else None


def test_a_servers_ticket_is_fetched_once(path: Path | None) -> None:
    tickets = ServerTickets(path)
    tickets.keeper(PROMISES)(Ticket())
    other = tickets if path is None else ServerTickets(path)
    assert other.fetcher(PROMISES, Ticket)(b"label") == Ticket()
    assert tickets.fetcher(PROMISES, Ticket)(b"label") is None
    assert other.fetcher(PROMISES, Ticket)(b"label") is None
    tickets.close()
    other.close()


@pytest.mark.parametrize("name", ["max_streams", "stream_window", "connection_window", "backend", "alpn"])
def test_a_server_ignores_tickets_whose_promises_it_does_not_keep(name: str) -> None:
    value = getattr(PROMISES, name)
    is_limit = isinstance(value, int)
    tickets = ServerTickets()
    tickets.keeper(PROMISES)(Ticket())
    assert tickets.fetcher(replace(PROMISES, **{name: value - 1 if is_limit else "other"}), Ticket)(b"label") is None
    if is_limit:
        tickets.keeper(PROMISES)(Ticket())
        assert tickets.fetcher(replace(PROMISES, **{name: value + 1}), Ticket)(b"label") == Ticket()


def test_a_clients_tickets_are_used_once_newest_first(path: Path | None) -> None:
    sessions = SessionCache(path)
    keep = sessions.keeper("localhost:4433")
    for label in (b"first", b"second"):
        keep(Ticket(label))
    taken = [sessions.take("localhost:4433", Ticket) for _ in range(3)]
    assert [ticket and ticket.ticket for ticket in taken] == [b"second", b"first", None]
    sessions.close()


@pytest.mark.parametrize("make", [ServerTickets, SessionCache])
def test_a_store_that_is_dropped_closes_its_file_without_a_warning(
    tmp_path: Path, make: type[ServerTickets | SessionCache]
) -> None:
    connection = make(
        tmp_path / "tickets"
    )._store._database  # since Python 3.13 an open connection warns, an error in tests
    gc.collect()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connection.execute("SELECT 1")


def test_only_the_owner_can_read_resumption_secrets(tmp_path: Path) -> None:
    path = tmp_path / "tickets.db"
    path.touch(mode=0o644)
    tickets = ServerTickets(path)
    tickets.keeper(PROMISES)(Ticket())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    tickets.close()


def test_ticket_files_do_not_follow_symbolic_links(tmp_path: Path) -> None:
    (tmp_path / "tickets.db").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        ServerTickets(tmp_path / "tickets.db")
