"""A publisher with a fixed rate: ``DIRECTORY CHANNEL STREAM RATE SECONDS SIZE``.

Each message begins with the epoch time in nanoseconds at which it was offered. At the end, prints ``published COUNT POSITION
SECONDS``.
"""

from __future__ import annotations

import sys
import time

import numpy as np
import pyarrow as pa

from mainstem import Aeron

TICK_S = 0.001


def main() -> None:
    directory, channel, stream, rate, seconds, size = sys.argv[1:]
    length, count = int(size), max(round(int(rate) * TICK_S), 1)
    rows = np.random.default_rng(1).integers(0, 256, (count, length), np.uint8)
    offsets = pa.py_buffer((np.arange(count + 1) * length).astype("<i4"))
    column = pa.Array.from_buffers(pa.binary(), count, [None, offsets, pa.py_buffer(rows.reshape(-1))])
    with Aeron.connect(directory) as aeron, aeron.add_exclusive_publication(channel, int(stream)) as publication:
        while not publication.is_connected:
            time.sleep(0.001)
        begin = time.monotonic()
        published, due = 0, 0
        while (elapsed := time.monotonic() - begin) < float(seconds):
            if (due := int(elapsed * int(rate))) <= published:
                time.sleep(min((published + 1 - due) / int(rate), TICK_S))
                continue
            rows[:, :8] = np.frombuffer(np.int64(time.time_ns()).tobytes(), np.uint8)
            taken, _ = publication.offer_arrow(column, count=min(count, due - published))
            published += taken
            if not taken:
                time.sleep(0.0001)
        print("published", published, publication.position, time.monotonic() - begin, flush=True)
        sys.stdin.readline()


if __name__ == "__main__":
    main()
