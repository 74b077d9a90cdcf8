"""Looks up the hosts of response channels, each in a thread of its own.

Clients choose these names before they have authenticated, and a name server can take any time to answer. The driver would look them
up in its conductor's thread, where one of them could stop every stream.

Names that the driver itself resolves are left to it: those of its table, and all names if it resolves the names of other drivers.
Only the driver knows their addresses.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING

from mainstem._internal.host_names import numeric_address
from mainstem.aeron.counters import CounterType
from mainstem.archive.server.request_errors import request_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstem._core.memory.counters import CountersReader

MAX_LOOKUPS = 16  # at once
MAX_LOOKUPS_OF_ADDRESS = 4


class Lookup:
    """One lookup. Once ``is_done``, it has an ``address`` or an ``error``."""

    def __init__(self, host: str, owner: str) -> None:
        self.host, self.owner = host, owner
        self.address = self.error = ""
        self.is_done = False

    def run(self, look_up: Callable[[str], str]) -> None:
        try:
            self.address = look_up(self.host)
        except Exception as error:
            self.error = str(error) or type(error).__name__
        finally:
            self.is_done = True


class Lookups:
    """The lookups in progress, limited in total and for each address that asked.

    ``counters`` are those of the driver, which has allocated the ones of its names before its first client.
    """

    def __init__(self, counters: CountersReader, look_up: Callable[[str], str] = numeric_address) -> None:
        self._look_up = look_up
        self._running: list[Lookup] = []
        of_type: dict[int, list[str]] = {CounterType.NAME_TABLE_ROW: [], CounterType.RESOLVER_NEIGHBORS: []}
        for counter_id in counters:
            if counters.type_id(counter_id) in of_type:
                of_type[counters.type_id(counter_id)].append(counters.label(counter_id))
        self._rows = of_type[CounterType.NAME_TABLE_ROW]
        self._driver_has_resolver = bool(of_type[CounterType.RESOLVER_NEIGHBORS])

    def are_left_to_driver(self, host: str, text: str) -> bool:
        """Whether the driver resolves a host itself. ``text`` is the host with its port, which a row can have, too."""
        starts = tuple(f"NameEntry{{name='{name}'" for name in (host, text))
        return self._driver_has_resolver or any(label.startswith(starts) for label in self._rows)

    def start(self, host: str, owner: str) -> Lookup:
        """Start to look a host up. Raises ArchiveError if too many lookups are in progress."""
        self._running = [each for each in self._running if not each.is_done]
        of_owner = Counter(each.owner for each in self._running)[owner]
        if len(self._running) >= MAX_LOOKUPS or of_owner >= MAX_LOOKUPS_OF_ADDRESS:
            raise request_error(
                f"cannot look up {host!r}: {len(self._running)} lookups are in progress (limit {MAX_LOOKUPS}), {of_owner} of them "
                f"for this address (limit {MAX_LOOKUPS_OF_ADDRESS}); use a numeric address in the response channel"
            )
        lookup = Lookup(host, owner)
        self._running.append(lookup)
        threading.Thread(target=lookup.run, args=(self._look_up,), name="archive-lookup", daemon=True).start()
        return lookup
