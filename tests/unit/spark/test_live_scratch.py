"""Where ``mainstem.live`` keeps a stream it was not told to record: a private directory below the shared one."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from mainstem.errors import ConfigurationError
from mainstem.recording import Recorder
from mainstem.spark.sources.background_recorder import run_directory

if TYPE_CHECKING:
    from pathlib import Path


def test_a_run_is_below_a_private_directory(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    path = run_directory(tmp_path, "run")
    assert path == tmp_path / f"mainstem-live-{os.geteuid()}" / "run"
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_scratch_directory_is_created(tmp_path: Path) -> None:
    assert run_directory(tmp_path / "new" / "scratch", "run").parent.is_dir()


def test_a_directory_outside_the_scratch_space_is_rejected(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / f"mainstem-live-{os.geteuid()}").symlink_to(elsewhere)
    with pytest.raises(ConfigurationError, match="not a directory of this user"):
        run_directory(tmp_path, "run")


def test_what_earlier_runs_left_is_removed_and_a_run_that_records_stays(tmp_path: Path) -> None:
    left, at_work = run_directory(tmp_path, "left"), run_directory(tmp_path, "at-work")
    Recorder(left).close()
    with Recorder(at_work):
        run_directory(tmp_path, "new")
        assert sorted(left.parent.iterdir()) == [at_work]
