"""Joining the small data files of an Iceberg table, and deleting those that no snapshot names.

Files are joined within their partition, in groups of about the target size; one commit replaces all of them. A catalog takes it
only where the table is as it was read, so no append is lost: where one came first, the same files are committed to the table as
it is then, provided that those which they replace are still in it.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from mainstem.errors import StoreError
from mainstem.spark.formats.base import COMMIT_ATTEMPTS, Compaction
from mainstem.spark.formats.data_files import write

if TYPE_CHECKING:
    from mainstem.spark.formats.iceberg import IcebergTable

# A file above this part of the target size stays as it is.
SMALL = 0.75
PREFIX = "compacted"
OWN = re.compile(rf"(?:part-[^/]+|{PREFIX})-[0-9a-f]{{32}}\.parquet")


def compact(table: IcebergTable, target_bytes: int, keep_s: float | None) -> Compaction:
    """Joins the small files of a table, and with ``keep_s`` forgets snapshots and deletes files older than that."""
    replaced, by = _join(table, target_bytes)
    return Compaction(replaced, by, 0 if keep_s is None else _expire(table, keep_s))


def _groups(loaded: Any, target_bytes: int) -> list[list[Any]]:
    """Scan tasks of small files of one partition that fit into one file."""
    open_groups: dict[tuple[Any, ...], list[Any]] = {}
    groups: list[list[Any]] = []
    for task in loaded.scan().plan_files():
        file = task.file
        # Deletions of rows of others, or another partition spec: not ours to rewrite.
        if task.delete_files or file.spec_id != loaded.metadata.default_spec_id:
            continue
        if file.file_size_in_bytes >= target_bytes * SMALL:
            continue
        key = tuple(file.partition[i] for i in range(len(loaded.spec().fields)))
        group = open_groups.get(key)
        if group is None or sum(each.file.file_size_in_bytes for each in group) >= target_bytes:
            group = open_groups[key] = []
            groups.append(group)
        group.append(task)
    return [group for group in groups if len(group) > 1]


def _join(table: IcebergTable, target_bytes: int) -> tuple[int, int]:
    from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan

    from mainstem.spark.formats.iceberg import data_file, without_retries

    loaded = table.existing()
    groups = _groups(loaded, target_bytes)
    if not groups:
        return 0, 0
    scan = ArrowScan(loaded.metadata, loaded.io, loaded.schema(), AlwaysTrue())
    files = table.files_of(loaded, PREFIX)
    # One group after the other: what is in memory is a batch and a row group.
    written = [
        data_file(each) for group in groups for each in write(files, scan.to_record_batches(group), target_bytes)
    ]
    rows = sum(file.record_count for file in written), sum(task.file.record_count for group in groups for task in group)
    if rows[0] != rows[1]:
        raise StoreError(table.name, f"{rows[0]} rows of {rows[1]} were read for the compaction; nothing is changed")
    replaced = {task.file.file_path: task.file for group in groups for task in group}
    error: Exception | None = None
    for _ in range(COMMIT_ATTEMPTS):
        loaded = table.existing()
        present = {task.file.file_path for task in loaded.scan().plan_files() if not task.delete_files}
        if written[0].file_path in present:
            return len(replaced), len(written)
        if not present.issuperset(replaced):
            raise StoreError(
                table.name, "another writer has replaced files that were being compacted; nothing is changed"
            )
        try:
            with (
                without_retries(loaded).transaction() as transaction,
                transaction.update_snapshot(snapshot_properties={"mainstem.compaction": "true"}).overwrite() as change,
            ):
                for file in replaced.values():
                    change.delete_data_file(file)
                for file in written:
                    change.append_data_file(file)
        except (CommitFailedException, CommitStateUnknownException) as reason:
            error = reason
            continue
        return len(replaced), len(written)
    raise StoreError(table.name, f"cannot commit the compaction: {error}") from error


def _expire(table: IcebergTable, keep_s: float) -> int:
    """Expire snapshots older than this many seconds, delete data files only they use, and return the number of files."""
    from pyarrow.fs import FileSelector, FileType

    before = datetime.now(UTC) - timedelta(seconds=keep_s)
    loaded = table.existing()
    loaded.maintenance.expire_snapshots().older_than(before).commit()
    loaded = table.existing()
    named = {_path(path) for path in loaded.inspect.all_files().column("file_path").to_pylist()}
    data = loaded.metadata.properties.get("write.data.path", f"{loaded.metadata.location.rstrip('/')}/data")
    parts = urlsplit(data)
    files = loaded.io.fs_by_scheme(parts.scheme or "file", parts.netloc)
    deleted = 0
    for info in files.get_file_info(FileSelector(_path(data), allow_not_found=True, recursive=True)):
        is_old = info.mtime is not None and info.mtime <= before
        if info.type == FileType.File and is_old and OWN.fullmatch(info.base_name) and info.path not in named:
            files.delete_file(info.path)
            deleted += 1
    return deleted


def _path(location: str) -> str:
    """A location as its file system names it."""
    from pyiceberg.io.pyarrow import PyArrowFileIO

    return str(PyArrowFileIO.parse_location(location)[2])
