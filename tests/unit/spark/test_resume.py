"""Whether a query may continue in a table, given its checkpoint, and the locks of a running query."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstem.cli.ingest import open_ingest
from mainstem.errors import ConfigurationError
from mainstem.recording import Recorder
from mainstem.spark.ingest.options import IngestOptions
from mainstem.spark.ingest.resume import LOCK_FILE, Checkpoint, Locks, check_table, read_checkpoint

if TYPE_CHECKING:
    from pathlib import Path


def checkpoint_at(path: Path, *, committed: int, planned: int) -> Checkpoint:
    for name, last in (("commits", committed), ("offsets", planned)):
        (path / name).mkdir(parents=True, exist_ok=True)
        for number in range(last + 1):
            (path / name / str(number)).write_text("v1\n")
            (path / name / f".{number}.crc").write_text("")
    (path / "metadata").write_text('{"id":"fish"}')
    return read_checkpoint(str(path))


def accepts(checkpoint: Checkpoint, last: int, *, is_empty: bool = False) -> bool:
    try:
        check_table("tides", checkpoint, last, is_empty=is_empty, remedy="use another table")
    except ConfigurationError:
        return False
    return True


@given(st.integers(-1, 12), st.booleans(), st.integers(-1, 15), st.booleans())
def test_a_table_is_continued_only_where_spark_continues(
    committed: int, is_planned: bool, last: int, is_empty: bool
) -> None:
    checkpoint = Checkpoint("c", "fish", committed, committed + is_planned)
    # Spark runs this micro-batch next. The table must skip it only if its rows are already there.
    following = committed + 1
    if checkpoint.is_new:
        assert accepts(checkpoint, last, is_empty=is_empty) == is_empty
    else:
        assert accepts(checkpoint, last) == (last == following - 1 or (is_planned and last == following))


def test_a_checkpoint_is_read_as_spark_writes_it(tmp_path: Path) -> None:
    assert read_checkpoint(str(tmp_path / "none")).is_new
    assert checkpoint_at(tmp_path, committed=10, planned=11) == Checkpoint(str(tmp_path), "fish", 10, 11)
    (tmp_path / "metadata").write_text("fish")
    with pytest.raises(ConfigurationError, match="is not of a checkpoint"):
        read_checkpoint(str(tmp_path))


@pytest.mark.parametrize(
    ("committed", "planned", "last", "reason"),
    [
        (-1, -1, 3, "already has rows.*use another table"),
        (3, 3, -1, "tides has no micro-batch of this query.*the table was deleted or replaced"),
        (3, 4, 2, "the table was deleted or replaced"),
        (3, 3, 4, "the checkpoint was restored from an older copy"),
    ],
)
def test_a_refusal_says_what_to_do(tmp_path: Path, committed: int, planned: int, last: int, reason: str) -> None:
    checkpoint = checkpoint_at(tmp_path, committed=committed, planned=planned)
    with pytest.raises(ConfigurationError, match=reason):
        check_table("tides", checkpoint, last, is_empty=False, remedy="use another table")


def test_a_directory_is_locked_while_its_query_is_active(tmp_path: Path) -> None:
    query = SimpleNamespace(isActive=True)
    first = Locks([tmp_path / "checkpoint", tmp_path / "table"])
    first.hold_for(query)
    (tmp_path / "link").symlink_to(tmp_path / "table")
    for path in (tmp_path / "table", tmp_path / "link", tmp_path / "checkpoint" / ".." / "table"):
        with pytest.raises(ConfigurationError, match="another ingest is using"):
            Locks([tmp_path / "free", path])
    # A refused query leaves no lock behind.
    Locks([tmp_path / "free"]).release()
    query.isActive = False
    second = Locks([tmp_path / "table"])
    take = (
        "import fcntl, sys; file = open(sys.argv[1]); fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB); print('locked')"
    )
    command = [sys.executable, "-c", take, str(tmp_path / "table" / LOCK_FILE)]
    assert b"BlockingIOError" in subprocess.run(command, capture_output=True, check=False).stderr
    second.release()
    assert subprocess.run(command, capture_output=True, check=True).stdout == b"locked\n"


def test_a_table_in_use_is_refused_before_spark_starts(tmp_path: Path) -> None:
    Recorder(tmp_path / "recordings").close()
    options = IngestOptions(source=str(tmp_path / "recordings"), out=tmp_path / "table")
    held = Locks(options.locked_directories)
    # The query is in the middle of its first micro-batch.
    (tmp_path / "table" / "_spark_metadata").mkdir()
    (tmp_path / "table" / "_spark_metadata" / "0").write_text("v1\n")
    with pytest.raises(ConfigurationError, match="another ingest is using"):
        open_ingest(options)
    held.release()
    with pytest.raises(ConfigurationError, match="already has rows"):
        open_ingest(options)
