"""How far a query lags behind its source: directories, patterns, lists, servers and stores."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.many_recordings import make_recordings
from tests.support.queries import STREAM, Progress, recorded
from tests.support.streams import Stream, record

from mainstem._internal.clock import SYSTEM_CLOCK
from mainstem.errors import ConfigurationError
from mainstem.recording import Recorder
from mainstem.recording import reader as readers
from mainstem.recording.shipping.shipper import ArchiveShipper, ShippingOptions
from mainstem.spark.lags import LagListener, lag, lags_of, source_options
from mainstem.store import open_store

if TYPE_CHECKING:
    from pathlib import Path


def test_a_lag_is_of_what_the_source_takes(tmp_path: Path) -> None:
    north, south = recorded(tmp_path / "north"), recorded(tmp_path / "south", count=50)
    for path in ([north, south], str(tmp_path / "*")):
        query: Any = Progress(path, most=0)
        behind = lag(query, path)
        assert [(each.archive, each.recording_id, each.bytes) for each in behind] == [
            (str(north), 0, 100 * 128),
            (str(north), 1, 100 * 128),
            (str(south), 0, 50 * 128),
            (str(south), 1, 50 * 128),
        ]
        assert all(each.seconds for each in behind)
        # Ask for the lag of one archive.
        assert [(each.archive, each.bytes) for each in lag(query, south)] == [(str(south), 50 * 128)] * 2
        query = Progress(path)
        assert [(each.bytes, each.seconds) for each in lag(query, path)] == [(0, 0.0)] * 4


def test_the_lag_behind_a_shipped_recording(tmp_path: Path) -> None:
    path, url = recorded(tmp_path / "rec"), (tmp_path / "store").as_uri()
    shipper = ArchiveShipper(
        path, open_store(url), ShippingOptions(roll_after_ns=0), clock=SYSTEM_CLOCK, stops=lambda: False,
        pause=threading.Event().wait,
    )  # fmt: skip
    shipper.drain()
    shipper.close()
    query: Any = Progress(url, most=0)
    assert [each.bytes for each in lag(query, url)] == [100 * 128] * 2


def test_a_lag_behind_a_server_with_a_token(tmp_path: Path) -> None:
    pytest.importorskip("aiohttp")
    from tests.support.recording_server import RunningServer

    from mainstem.serve.access import Access

    token = "".join(random.Random(1).choices("abcdef", k=32))
    with RunningServer(recorded(tmp_path / "rec"), access=Access((token,))) as server:
        query: Any = Progress(server.url, most=0, token=token)
        assert [each.bytes for each in lag(query, server.url, token=token)] == [100 * 128] * 2
        reports: list[Any] = []
        LagListener(server.url, lambda *each: reports.append(each), {"token": token})
    with pytest.raises(ConfigurationError, match="has no option 'tokn'"):
        lag(query, server.url, tokn=token)


def test_only_recordings_with_a_lag_are_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    growing = make_recordings(tmp_path, 200, growing=3)
    query: Any = Progress(tmp_path)
    opened: list[int] = []
    init = readers.RecordingReader.__init__

    def counted(self: Any, archive: Any, descriptor: Any) -> None:
        opened.append(descriptor.recording_id)
        init(self, archive, descriptor)

    monkeypatch.setattr(readers.RecordingReader, "__init__", counted)
    growing[1].grow()
    lags = lag(query, tmp_path)
    assert (len(lags), [each.recording_id for each in lags if each.bytes], opened) == (200, [198], [198])
    for each in growing:
        each.close()


def test_another_recording_of_the_same_id_has_no_lag(tmp_path: Path) -> None:
    path = recorded(tmp_path / "rec")
    other = tmp_path / "other"
    with Recorder(other) as recorder:
        record(recorder.start(**STREAM, session_id=9, join_position=0), Stream(session_id=9), [bytes(96)])
    for progress in (Progress(path, most=0), Progress(path)):
        assert lags_of(progress.lastProgress["sources"], source_options(other)) == []
