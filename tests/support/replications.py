"""The events of an archive's replications."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.waiting import STALL_S

from mainstem.errors import ArchiveError

if TYPE_CHECKING:
    from mainstem import archive


def end_of_replication(client: archive.Client) -> tuple[list[str], list[ArchiveError]]:
    """Return the signals of a replication and the errors among them, with the STOP of its copy."""
    names: list[str] = []
    errors: list[ArchiveError] = []
    for event in client.events(timeout=STALL_S):
        if isinstance(event, ArchiveError):
            errors.append(event)
            continue
        names.append(event.signal.name)
        is_stopped = "STOP" in names or "EXTEND" not in names or "MERGE" in names
        if "REPLICATE_END" in names and is_stopped:
            break
    return names, errors
