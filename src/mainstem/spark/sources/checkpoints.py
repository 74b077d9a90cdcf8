"""What a streaming query has committed, read from its checkpoint: for retention, which must not outrun it.

A checkpoint has ``offsets/<batch>``, written before a batch is read, and ``commits/<batch>``, written when its rows are in the
sink. What the offsets of the last committed batch cover is never read again. Spark's file of offsets: a line with a version, a
line of metadata, then a line of JSON for each source, ``-`` where it had none.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from mainstem.errors import ConfigurationError
from mainstem.recording.shipping.layout import is_archive_id
from mainstem.recording.shipping.retention import ConsumedPosition
from mainstem.spark.sources.offsets import parse_offset
from mainstem.store.base import read_all

if TYPE_CHECKING:
    from mainstem.store import Store

VERSION_LINE = "v1"
# An offset has some 100 bytes for each recording.
MAX_OFFSETS_LENGTH = 64 << 20


def committed_positions(checkpoint: Store) -> list[ConsumedPosition]:
    """How far a query has come.

    Args:
        checkpoint: The directory of its checkpoint.

    Returns:
        The position of each recording of each source of Mainstem's; none where no batch has been committed.

    Raises:
        ConfigurationError: There is no checkpoint, it has another format, or its offsets do not say of which recordings they are.

    Example:
        ``committed_positions(open_store("/data/checkpoints/tides"))``
    """
    batches = _numbers(checkpoint, "offsets/") & _numbers(checkpoint, "commits/")
    if not batches:
        if not _numbers(checkpoint, "offsets/"):
            raise ConfigurationError(
                f"{checkpoint.url} is not a checkpoint of a streaming query: there are no offsets in it"
            )
        return []
    name = f"offsets/{max(batches)}"
    lines = read_all(checkpoint, name, limit=MAX_OFFSETS_LENGTH).decode("utf-8", "replace").splitlines()
    if not lines or lines[0].strip() != VERSION_LINE:
        raise ConfigurationError(f"{checkpoint.url}/{name} has the format {lines[:1]}; {VERSION_LINE} is read")
    committed = []
    for line in lines[2:]:
        try:
            value = json.loads(line)
        except ValueError:
            continue  # no source of Mainstem's: its offsets are JSON objects
        if isinstance(value, dict) and "archives" in value:
            committed += _committed(value, f"{checkpoint.url}/{name}")
    if not committed:
        raise ConfigurationError(f"{checkpoint.url}/{name} has no offsets of recordings")
    return committed


def _numbers(checkpoint: Store, directory: str) -> set[int]:
    names = (file.name.removeprefix(directory) for file in checkpoint.list(directory, recursive=False))
    return {int(name) for name in names if name.isdecimal()}


def _committed(value: dict[str, Any], name: str) -> list[ConsumedPosition]:
    result = []
    for key, archive in parse_offset(value).archives.items():
        # An archive without an identity of its own is named by its location, which is not where it is shipped to.
        archive_id = key if is_archive_id(key) else None
        for recording_id, position in archive.positions.items():
            if recording_id not in archive.identities:
                raise ConfigurationError(
                    f"{name}: it is not known which recording the position of {recording_id} is of"
                )
            result.append(ConsumedPosition(recording_id, archive.identities[recording_id], position, archive_id))
        for recording_id, (position, identity_sum) in archive.finished.items():
            result.append(ConsumedPosition(recording_id, identity_sum, position, archive_id))
    return result
