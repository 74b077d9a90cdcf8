"""What ingest reads before and besides its query, from every location of the source and with the same options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.support.queries import Progress, recorded

from mainstem.errors import ConfigurationError
from mainstem.recording.index import index_file
from mainstem.spark.ingest.options import IngestOptions
from mainstem.spark.ingest.query import _check_times, remaining, sample

if TYPE_CHECKING:
    from pathlib import Path

TOKEN = "0123456789abcdef-token"


def check(source: str, tmp_path: Path, messages: int, **options: str) -> None:
    ingest = IngestOptions(source=source, out=tmp_path / "table", source_options=options)
    assert len(sample(ingest)) == messages
    _check_times(ingest)
    query: Any = Progress(source, most=0, **options)
    assert remaining(query, ingest) == (0, messages * 128)


def test_a_sample_the_times_and_the_rest_are_of_a_pattern(tmp_path: Path) -> None:
    recorded(tmp_path / "rec" / "north")
    recorded(tmp_path / "rec" / "south", count=50)
    check(str(tmp_path / "rec" / "*"), tmp_path, 300)
    index_file(tmp_path / "rec" / "south", 1).unlink()
    with pytest.raises(ConfigurationError, match=r"recording 1 of .*south: it has no index"):
        _check_times(IngestOptions(source=str(tmp_path / "rec" / "*"), out=tmp_path / "table"))


def test_a_sample_the_times_and_the_rest_are_of_a_server_with_a_token(tmp_path: Path) -> None:
    pytest.importorskip("aiohttp")
    from tests.support.recording_server import RunningServer

    from mainstem.serve.access import Access

    with RunningServer(recorded(tmp_path / "rec"), access=Access((TOKEN,))) as server:
        check(server.url, tmp_path, 200, token=TOKEN)
