"""The destinations of a channel, added by commands or learned from status messages (docs/protocols/aeron.md, 19.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstem._core.driver.datagram import Address
from mainstem._internal.frozen import mutable

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstem._core.driver.send_path import SendEndpointCore
    from mainstem.aeron.counters import Gauge

DESTINATION_TIMEOUT_NS = 5_000_000_000
# Limit on the learned destinations of one channel. Anyone can send a status message, and the destination that it adds receives a
# copy of all data for five seconds.
MAX_LEARNED_DESTINATIONS = 4_096
# The receiver id of a destination that a command added, until its first status message.
UNKNOWN_RECEIVER = -1


@mutable
class Destination:
    """One destination. ``name`` is ``host:port`` from the command that added it, or empty if the driver learned it."""

    packed: bytes
    name: str
    registration_id: int


class DestinationTracker:
    """The destinations of a compiled endpoint. Only the sender's thread uses the tracker.

    After ``timeout_ns`` of silence, the tracker removes a learned destination. It keeps one that a command added, and has its name
    resolved again.
    """

    def __init__(
        self,
        core: SendEndpointCore,
        *,
        is_manual: bool,
        timeout_ns: int = DESTINATION_TIMEOUT_NS,
    ) -> None:
        self._core = core
        self._is_manual = is_manual
        self._timeout_ns = timeout_ns
        # The counter for the number of destinations. The conductor sets it before the sender uses the endpoint.
        self.gauge: Gauge | None = None
        self._entries: list[Destination] = []
        # Destinations of commands whose names have no address yet, with the time when they were last due for resolution.
        self._unresolved: dict[int, tuple[Destination, int]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def entries(self) -> list[Destination]:
        return list(self._entries)

    def on_status(self, packed: bytes, receiver_id: int, now_ns: int) -> None:
        """Handle a status message from an unknown address or receiver. Raises OverflowError if there are too many destinations."""
        for index, (address, known_receiver, _) in enumerate(self._core.destinations.rows()):
            if address == packed and (self._is_manual or known_receiver in (UNKNOWN_RECEIVER, receiver_id)):
                self._core.destinations.touch(index, receiver_id, now_ns)
                return
        if not self._is_manual:
            if len(self._entries) >= MAX_LEARNED_DESTINATIONS:
                raise OverflowError(
                    f"no destination was added for a new receiver: the channel already has {MAX_LEARNED_DESTINATIONS}"
                )
            self._add(Destination(packed=packed, name="", registration_id=-1), receiver_id, now_ns)

    def registration_of(self, packed: bytes, receiver_id: int) -> int:
        """Return the registration id of the destination that a receiver's frame came from, or -1 if no command added it."""
        for (address, known_receiver, _), entry in zip(self._core.destinations.rows(), self._entries, strict=True):
            if address == packed and known_receiver in (UNKNOWN_RECEIVER, receiver_id):
                return entry.registration_id
        return -1

    def add(self, packed: bytes, *, name: str, registration_id: int, now_ns: int) -> None:
        self._add(Destination(packed=packed, name=name, registration_id=registration_id), UNKNOWN_RECEIVER, now_ns)

    def add_unresolved(self, *, name: str, registration_id: int) -> None:
        """Add a destination whose name has no address yet; ``move`` sets it."""
        self._unresolved[registration_id] = (Destination(packed=b"", name=name, registration_id=registration_id), 0)

    def _add(self, entry: Destination, receiver_id: int, now_ns: int) -> None:
        self._core.destinations.add(Address(entry.packed), receiver_id, now_ns)
        self._entries.append(entry)
        self._publish()

    def remove(self, matches: Callable[[Destination], bool]) -> bool:
        for registration_id, (waiting, _) in self._unresolved.items():
            if matches(waiting):
                del self._unresolved[registration_id]
                return True
        for index, entry in enumerate(self._entries):
            if matches(entry):
                self._core.destinations.remove(index)
                del self._entries[index]
                self._publish()
                return True
        return False

    def move(self, registration_id: int, packed: bytes, now_ns: int) -> None:
        waiting = self._unresolved.pop(registration_id, None)
        if waiting is not None:
            self.add(packed, name=waiting[0].name, registration_id=registration_id, now_ns=now_ns)
            return
        for entry in self._entries:
            if entry.registration_id == registration_id and entry.packed != packed:
                name = entry.name
                self.remove(lambda each: each.registration_id == registration_id)
                self.add(packed, name=name, registration_id=registration_id, now_ns=now_ns)
                return

    def on_time(self, now_ns: int) -> list[Destination]:
        """Remove silent learned destinations. Return the destinations of commands whose names should be resolved again."""
        rows = self._core.destinations.rows()
        silent = [index for index, row in enumerate(rows) if now_ns - row[2] > self._timeout_ns]
        if self._is_manual:
            for index in silent:
                # Have it resolved only once per timeout.
                self._core.destinations.touch(index, rows[index][1], now_ns)
            return [self._entries[index] for index in silent] + self._still_unresolved(now_ns)
        for index in reversed(silent):
            self._core.destinations.remove(index)
            del self._entries[index]
        if silent:
            self._publish()
        return []

    def _still_unresolved(self, now_ns: int) -> list[Destination]:
        due = [key for key, (_, resolved_ns) in self._unresolved.items() if now_ns - resolved_ns > self._timeout_ns]
        for key in due:
            self._unresolved[key] = (self._unresolved[key][0], now_ns)
        return [self._unresolved[key][0] for key in due]

    def _publish(self) -> None:
        if self.gauge is not None:
            self.gauge.set_release(len(self._entries))
