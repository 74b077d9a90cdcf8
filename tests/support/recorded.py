"""How far a recording is, asked by tests that may ask before the archive, having seen the stream, has made it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mainstem import archive


def recorded_position(client: archive.Client, recording_id: int) -> int | None:
    """Return the position up to which a recording has been written or at which it stopped; None if there is no such recording."""
    for each in client.list_recordings(recording_id, count=1):
        if each.recording_id == recording_id:
            return client.recording_position(recording_id) if each.stop_position == -1 else each.stop_position
    return None


def has_stopped(client: archive.Client, recording_id: int) -> bool:
    """Return whether there is such a recording and it has stopped."""
    found = client.list_recordings(recording_id, count=1)
    return any(each.recording_id == recording_id and each.stop_position != -1 for each in found)
