"""The events of an archive's replications."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.waiting import STALL_S

from mainstem.archive import RecordingSignal
from mainstem.errors import ArchiveError

if TYPE_CHECKING:
    from mainstem import archive


def end_of_replication(client: archive.Client) -> tuple[list[str], list[ArchiveError]]:
    """Return the signals up to the end of a replication, and the errors among them."""
    names: list[str] = []
    errors: list[ArchiveError] = []
    for event in client.events(timeout=STALL_S):
        if isinstance(event, ArchiveError):
            errors.append(event)
            continue
        names.append(event.signal.name)
        if event.signal is RecordingSignal.REPLICATE_END:
            break
    return names, errors
