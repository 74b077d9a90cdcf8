"""Create recordings of any size quickly: numbered messages of one length, with payloads that do not compress.

python benchmarks/harness/recordings.py DIRECTORY --size 10g [--payload 256]
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mainstem._internal.units import parse_size
from mainstem.recording import Recorder

if TYPE_CHECKING:
    from collections.abc import Callable

# `tests.support.many_recordings` creates large numbers of small recordings.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

TERM = 16 << 20
HEADER = 32
RUN = 256 << 10


def template(payload: int, seed: int = 1) -> np.ndarray:
    """Return one term of frames, without the term ids and message numbers, which are filled in later."""
    kind = np.dtype(
        [
            ("length", "<i4"),
            ("version", "u1"),
            ("flags", "u1"),
            ("type", "<u2"),
            ("term_offset", "<i4"),
            ("session", "<i4"),
            ("stream", "<i4"),
            ("term_id", "<i4"),
            ("reserved", "<i8"),
            ("number", "<i8"),
            ("rest", "u1", (payload - 8,)),
        ]
    )
    assert kind.itemsize % HEADER == 0, "a payload whose frame needs no padding"
    frames = np.zeros(TERM // kind.itemsize, kind)
    frames["length"], frames["flags"], frames["type"] = kind.itemsize, 0xC0, 1
    frames["term_offset"] = np.arange(len(frames)) * kind.itemsize
    frames["session"], frames["stream"] = 77, 1001
    frames["rest"] = np.random.default_rng(seed).integers(0, 256, frames["rest"].shape, np.uint8)
    return frames


def make(
    directory: Path, size: int, payload: int = 256, *, step_us: int = 3, text: Callable[[int], bytes] | None = None
) -> int:
    """Create a recording of about ``size`` bytes in ``directory``. Return the number of messages in it.

    ``text`` creates the payload of a message from its index in the term. Every term has the same payloads.
    """
    frames = template(payload)
    if text is not None:
        texts = b"".join(text(number) for number in range(len(frames)))
        frames.view(np.uint8).reshape(len(frames), -1)[:, HEADER:] = np.frombuffer(texts, np.uint8).reshape(
            len(frames), -1
        )
    per_run = RUN // frames.itemsize
    rest = TERM - frames.nbytes
    messages = 0
    now_ns = time.time_ns()
    with Recorder(directory) as recorder:
        writer = recorder.start(
            session_id=77,
            stream_id=1001,
            initial_term_id=0,
            term_buffer_length=TERM,
            mtu_length=1408,
            join_position=0,
        )
        for term in range(max(size // TERM, 1)):
            frames["term_id"] = term
            if text is None:
                frames["number"] = np.arange(messages, messages + len(frames))
            data = memoryview(frames.view(np.uint8).reshape(-1).data)
            for first in range(0, len(frames), per_run):
                at = first * frames.itemsize
                writer.write(data[at : at + per_run * frames.itemsize], now_ns + (messages + first) * step_us * 1000)
            messages += len(frames)
            if rest:
                header = frames[:1].copy().view(np.uint8)[:HEADER].copy()
                header.view("<i4")[0], header.view("<i4")[2] = rest, frames.nbytes
                header.view("<u2")[3] = 0
                writer.write(memoryview(header.tobytes().ljust(rest, b"\0")), now_ns + messages * step_us * 1000)
    return messages


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--size", default="1g")
    parser.add_argument("--payload", type=int, default=256)
    given = parser.parse_args()
    started = time.monotonic()
    messages = make(given.directory, parse_size(given.size, name="--size"), given.payload)
    print(f"{messages:,} messages in {time.monotonic() - started:.1f} s")


if __name__ == "__main__":
    main()
