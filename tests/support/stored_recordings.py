"""Create the archives ``tests/vectors/recordings_*.tar.xz`` with the code of another commit.

    git worktree add /tmp/other COMMIT && cd /tmp/other && make build
    PYTHONPATH=/tmp/other/src:/tmp/other python .../tests/support/stored_recordings.py /tmp/recordings_COMMIT.tar.xz

Each contains ``closed``, from a recorder that was closed, and ``killed``, from one that ended without closing. The script uses only
code of that commit, and none of this one.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import tarfile
import tempfile
from pathlib import Path

COUNT, TERM = 600, 65_536


def payload(number: int) -> bytes:
    return b"%d" % number * (1 + number % 900)


def write(directory: Path, *, closes: bool) -> None:
    from tests.support.streams import Stream, record

    from mainstem.recording import Recorder

    stream = {
        "session_id": 77,
        "stream_id": 1001,
        "initial_term_id": -5,
        "term_buffer_length": TERM,
        "mtu_length": 1408,
    }
    recorder = Recorder(directory, segment_length=4 * TERM)
    writer = recorder.start(**stream, join_position=0)
    sent = [payload(number) for number in range(COUNT)]
    record(writer, Stream(), sent, time_ns=1_700_000_000 * 10**9)
    # Another recording, without messages.
    recorder.start(**(stream | {"session_id": 78, "stream_id": 1002}), join_position=0)
    if closes:
        recorder.close()
    os._exit(0)


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        for name in ("closed", "killed"):
            writer = multiprocessing.Process(
                target=write, args=(Path(directory) / name,), kwargs={"closes": name == "closed"}
            )
            writer.start()
            writer.join()
            if writer.exitcode:
                sys.exit(f"{name} was not written")
        with tarfile.open(sys.argv[1], "w:xz") as out:
            for path in sorted(Path(directory).rglob("*")):
                if path.suffix != ".lock":
                    out.add(path, path.relative_to(directory))


if __name__ == "__main__":
    main()
