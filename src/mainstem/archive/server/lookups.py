"""Looks up the hosts of response channels, each in a thread of its own.

Clients choose these names before they have authenticated, and a name server can take any time to answer. The driver would look them
up in its conductor's thread, where one of them could stop every stream.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING

from mainstem._internal.host_names import numeric_address
from mainstem.archive.server.refusals import refusal

if TYPE_CHECKING:
    from collections.abc import Callable

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
    """The lookups in progress, limited in total and for each address that asked."""

    def __init__(self, look_up: Callable[[str], str] = numeric_address) -> None:
        self._look_up = look_up
        self._running: list[Lookup] = []

    def start(self, host: str, owner: str) -> Lookup:
        """Start to look a host up. Raises ArchiveError if too many lookups are in progress."""
        self._running = [each for each in self._running if not each.is_done]
        of_owner = Counter(each.owner for each in self._running)[owner]
        if len(self._running) >= MAX_LOOKUPS or of_owner >= MAX_LOOKUPS_OF_ADDRESS:
            raise refusal(
                f"cannot look up {host!r}: {len(self._running)} lookups are in progress (limit {MAX_LOOKUPS}), {of_owner} of them "
                f"for this address (limit {MAX_LOOKUPS_OF_ADDRESS}); use a numeric address in the response channel"
            )
        lookup = Lookup(host, owner)
        self._running.append(lookup)
        threading.Thread(target=lookup.run, args=(self._look_up,), name="archive-lookup", daemon=True).start()
        return lookup
