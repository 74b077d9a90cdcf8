from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.http_peer import Peer
from tests.support.streams import Stream, record

from mainstem.recording.recorder import Recorder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path


pytest.importorskip("aiohttp")


class Live:
    """A directory with a recording that ``add`` extends."""

    def __init__(self, path: Path, *, session_id: int = 77, term_length: int = 65536) -> None:
        self.path = path
        self.recorder = Recorder(path, segment_length=term_length)
        self.stream = Stream(session_id=session_id, term_length=term_length)
        self.writer = self.stream.start(self.recorder)

    def add(self, count: int, size: int = 100) -> int:
        record(self.writer, self.stream, [b"%d" % i + b"x" * size for i in range(count)], time_ns=1)
        return self.writer.position

    def close(self) -> None:
        self.recorder.close()


@pytest.fixture(autouse=True)
async def _peers() -> AsyncIterator[None]:
    yield
    for peer in list(Peer.open):
        await peer.close()


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    directory = Live(tmp_path / "rec")
    yield directory
    directory.close()
