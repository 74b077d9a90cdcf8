"""The name resolver ``csv_table``: names with two addresses each, for tests and demonstrations (docs/protocols/aeron.md, 22.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mainstem.aeron.channel_values import address as read_address
from mainstem.aeron.channel_values import parse_address
from mainstem.aeron.counters import name_table_row
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from mainstem._core.memory.counters import CounterCell
    from mainstem.aeron.driver.counters import DriverCounters

# Values of a row's counter. Every other value stands for the first address.
SECOND = 1
NOWHERE = -1


class Row(NamedTuple):
    """A name and its addresses. ``key`` is the only URI parameter that the row applies to, or None for every host name."""

    name: str
    key: str | None
    first: str
    second: str


def parse_rows(text: str) -> list[Row]:
    """Parse ``name,address,second-address|…`` or the older ``name,uri-param,address,second-address|…``.

    Raises ConfigurationError if a row is neither, or there is none.
    """
    rows = [_row(part) for part in text.split("|") if part.strip()]
    if not rows:
        raise ConfigurationError("AERON_NAME_RESOLVER_INIT_ARGS: a csv_table resolver requires at least one row")
    return rows


def _row(text: str) -> Row:
    parts = [part.strip() for part in text.split(",")]
    if all(parts):
        if len(parts) == 3:
            return Row(parts[0], None, parts[1], parts[2])
        if len(parts) == 4:
            return Row(*parts)
    raise ConfigurationError(
        f"AERON_NAME_RESOLVER_INIT_ARGS: {text!r} must be NAME,ADDRESS,SECOND-ADDRESS"
        " or NAME,PARAMETER,ADDRESS,SECOND-ADDRESS"
    )


class CsvTable:
    """A table of names. Each row has a counter, with which any program that maps the driver's counters switches its address."""

    def __init__(self, text: str, counters: DriverCounters) -> None:
        self._rows = [
            (row, counters.allocate(name_table_row(row.name, row.first, row.second))) for row in parse_rows(text)
        ]

    def lookup(self, text: str, key: str, *, again: bool) -> str:
        """Return what replaces ``text``, the ``host:port`` of URI parameter ``key``, in a row for that parameter, or ``text``.

        The second address is for ``again``, a re-resolution. An address without a port gets that of ``text``. Raises LookupError if
        the row is switched off.
        """
        try:
            host, port = read_address(text)
        except ValueError:
            return text
        for row, switch in self._rows:
            if row.key == key and row.name in (text, host):
                address = _chosen(row, switch, again=again)
                return address if _has_port(address) else f"{address}:{port}"
        return text

    def host(self, name: str) -> str:
        """Return the host that replaces host ``name`` in a row for every parameter, or ``name``.

        Raises LookupError if the row is switched off.
        """
        for row, switch in self._rows:
            if row.key is None and row.name == name:
                return _chosen(row, switch, again=False)
        return name


def _chosen(row: Row, switch: CounterCell, *, again: bool) -> str:
    value = switch.get_acquire()
    if value == NOWHERE:
        raise LookupError(f"Unable to resolve host=({row.name}): (forced), by counter {switch.counter_id}")
    return row.second if again or value == SECOND else row.first


def _has_port(address: str) -> bool:
    try:
        parse_address(address)
    except ValueError:
        return False
    return True
