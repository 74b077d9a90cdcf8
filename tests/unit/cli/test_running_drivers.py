"""Which drivers `--all`, `doctor` and hints find: those of the current user."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from tests.unit.aeron.tools.driver_files import DriverFiles

from mainstem._internal.clock import SYSTEM_CLOCK
from mainstem.cli import _drivers
from mainstem.cli._drivers import hint_of_drivers, running_drivers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DriverFiles]:
    monkeypatch.setattr(_drivers, "SHARED_MEMORY", tmp_path)
    (tmp_path / "aeron-me").mkdir()
    made = DriverFiles(tmp_path / "aeron-me")
    made.cnc.to_driver.consumer_heartbeat_ms = SYSTEM_CLOCK.epoch_ms()
    yield made
    made.cnc.close()


def test_drivers_of_this_user_are_found(driver: DriverFiles) -> None:
    assert running_drivers() == [driver.directory]
    assert driver.directory in hint_of_drivers("/nowhere")


def test_directories_of_other_users_and_links_are_not_opened(
    driver: DriverFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "aeron-link").symlink_to(driver.directory)
    assert running_drivers() == [driver.directory]

    def opened(directory: str) -> None:
        raise AssertionError(f"{directory} was opened")

    monkeypatch.setattr(_drivers, "DirectoryReader", opened)
    other = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: other)
    assert running_drivers() == []
    assert driver.directory not in hint_of_drivers("/nowhere")
