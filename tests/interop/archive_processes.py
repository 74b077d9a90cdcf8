"""Archives of both kinds, each in its own process on a running driver."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tests.interop.java_archive import JavaArchive
from tests.interop.mainstem_archive import mainstem_archive
from tests.support.ports import free_port

from mainstem.recording.mark_file import MARK_FILE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KINDS = ["java", "mainstem"]
MESSAGE_TIMEOUT = "2s"  # how long an archive waits for a message from another


@contextmanager
def running(kind: str, directory: Path, driver: Path, control: str = "") -> Iterator[tuple[str, Any]]:
    """Run an archive; yield its control channel (on a free port by default) and its process, which the test may kill."""
    control = control or f"aeron:udp?endpoint=localhost:{free_port()}"
    if kind == "java":
        with JavaArchive(directory, driver, has_driver=False, control=control, message_timeout=MESSAGE_TIMEOUT) as made:
            yield made.control, made.process
        return
    with mainstem_archive(directory, driver, control, "--set", f"message_timeout={MESSAGE_TIMEOUT}") as process:
        yield control, process


def forget_mark(directory: Path) -> None:
    """Let an archive start where another was killed, as if ten seconds had passed."""
    (directory / MARK_FILE).unlink()
