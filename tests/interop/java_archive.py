"""Aeron Archive for Java in its own process, with its own media driver or on a running one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Self

from tests.support import java
from tests.support.ports import free_port
from tests.support.waiting import STALL_S, StallTimeout

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

SEGMENT_LENGTH = 128 << 10


class JavaArchive:
    """An archive with small segments; ``control`` is its UDP channel, on a free port by default."""

    def __init__(
        self, archive: Path, driver: Path, *, has_driver: bool, control: str = "", **properties: object
    ) -> None:
        java.require_java()
        self.directory = str(driver)
        self.archive = archive
        self.control = control or f"aeron:udp?endpoint=localhost:{free_port()}"
        settings: dict[str, object] = {
            "aeron.dir": driver,
            "aeron.archive.dir": archive,
            "aeron.archive.control.channel": self.control,
            "aeron.archive.replication.channel": "aeron:udp?endpoint=localhost:0",
            "aeron.archive.recording.events.enabled": "false",
            "aeron.archive.segment.file.length": SEGMENT_LENGTH,
            "aeron.archive.threading.mode": "SHARED",
            "aeron.threading.mode": "SHARED",
            "aeron.term.buffer.sparse.file": "true",
            "aeron.spies.simulate.connection": "true",
        }
        settings |= {f"aeron.archive.{name.replace('_', '.')}": value for name, value in properties.items()}
        main = "io.aeron.archive.ArchivingMediaDriver" if has_driver else "io.aeron.archive.Archive"
        self.process = java.start(main, properties=settings, stderr=None)
        stall = StallTimeout("the archive starts")
        mark = archive / "archive-mark.dat"
        while not (mark.exists() and mark.read_bytes()[8:12] != bytes(4)):
            assert self.process.poll() is None, "the archive ended at start"
            stall.check()
            time.sleep(0.05)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.terminate()
        self.process.communicate(timeout=STALL_S)
