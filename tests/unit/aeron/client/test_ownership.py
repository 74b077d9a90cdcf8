"""A driver's directory that belongs to another user: one warning, or an error before anything is mapped."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from tests.unit.aeron.tools.driver_files import DriverFiles

from mainstem._internal.clock import SYSTEM_CLOCK
from mainstem._internal.log_throttle import warn_once
from mainstem.aeron.client import Aeron
from mainstem.aeron.files import MappedFiles
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OTHER = 54321  # a uid without an entry
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to another user")


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[DriverFiles]:
    warn_once.cache_clear()
    made = DriverFiles(tmp_path)
    made.cnc.to_driver.consumer_heartbeat_ms = SYSTEM_CLOCK.epoch_ms()
    yield made
    made.cnc.close()


class CountingFiles(MappedFiles):
    def __init__(self) -> None:
        super().__init__()
        self.mapped: list[str] = []

    def map(self, path: str):
        self.mapped.append(path)
        return super().map(path)


def give(driver: DriverFiles, what: str) -> str:
    path = os.path.join(driver.directory, what).rstrip("/")
    os.chown(path, OTHER, -1)
    return path


@as_root
@pytest.mark.parametrize("what", ["", "cnc.dat"])
def test_a_driver_of_another_user_is_named_in_one_warning(
    driver: DriverFiles, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = give(driver, what)
    for _ in range(2):
        Aeron.connect(driver.directory, use_invoker=True).close()
    (record,) = [each for each in caplog.records if each.name == "mainstem.aeron.client"]
    assert record.levelname == "WARNING"
    assert record.getMessage().startswith(f"{path} belongs to user {OTHER}, who can read")


@as_root
@pytest.mark.parametrize("what", ["", "cnc.dat"])
def test_a_driver_of_another_user_is_refused_before_anything_is_mapped(driver: DriverFiles, what: str) -> None:
    path = give(driver, what)
    files = CountingFiles()
    with pytest.raises(ConfigurationError, match=f"{path} belongs to user {OTHER}"):
        Aeron.connect(driver.directory, require_own_driver=True, use_invoker=True, files=files)
    assert files.mapped == []


def test_a_users_own_driver_causes_no_warning(driver: DriverFiles, caplog: pytest.LogCaptureFixture) -> None:
    Aeron.connect(driver.directory, require_own_driver=True, use_invoker=True).close()
    assert [each for each in caplog.records if each.name == "mainstem.aeron.client"] == []


@as_root
def test_a_driver_of_root_is_trusted(driver: DriverFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: OTHER)
    Aeron.connect(driver.directory, require_own_driver=True, use_invoker=True).close()
