"""The recorder of a query that reads a live channel, without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.waiting import wait_for

from mainstem import Aeron, MediaDriver
from mainstem.errors import RecordingError
from mainstem.recording import Recorder, open_recordings
from mainstem.spark.sources.background_recorder import BackgroundRecorder

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.system
CHANNEL, STREAM = "aeron:ipc?term-length=64k", 1001


def test_a_query_records_once_the_process_of_its_earlier_run_has_ended(tmp_path: Path) -> None:
    with MediaDriver.launch() as driver, Aeron.connect(driver.directory) as aeron:
        with Recorder(tmp_path):
            recorder = BackgroundRecorder(tmp_path, CHANNEL, (STREAM,), driver.directory, temporary=False)
        try:
            with aeron.add_publication(CHANNEL, STREAM) as publication:
                wait_for(lambda: publication.is_connected)
                publication.send(b"message")

                def recorded() -> int:
                    recorder.check()
                    with open_recordings(tmp_path) as recordings:
                        return max((reader.end_position() for reader in recordings), default=0)

                wait_for(lambda: recorded() == publication.position)
        finally:
            recorder.close()


def test_a_query_reads_what_another_recorder_records_and_ends_before_that(tmp_path: Path) -> None:
    with Recorder(tmp_path):
        BackgroundRecorder(tmp_path, CHANNEL, (STREAM,), "no driver", temporary=False).close()


def test_a_directory_that_cannot_be_recorded_to_is_an_error(tmp_path: Path) -> None:
    Recorder(tmp_path).close()
    (catalog,) = tmp_path.glob("*.catalog")
    catalog.write_bytes(b"\xff" * 4096)
    with pytest.raises(RecordingError, match="catalog"):
        BackgroundRecorder(tmp_path, CHANNEL, (STREAM,), "no driver", temporary=False).close()
