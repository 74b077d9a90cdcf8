"""Processes around a recorded stream: ``publish DIRECTORY CHANNEL COUNT`` and ``record DIRECTORY CHANNEL RECORDINGS``.

``record`` runs until it is killed or a line arrives on its standard input. ``publish`` prints ``done`` once it has offered
everything, and keeps the publication open until a line arrives.
"""

from __future__ import annotations

import random
import struct
import sys
import threading
import time
from typing import Any

from mainstem import Aeron, ExclusivePublication
from mainstem.recording import Recorder

STREAM = 1001
TIMEOUT_S = 200


def message(number: int) -> bytes:
    return struct.pack("<q", number) + random.Random(number).randbytes(number * 7 % 2500)


def told() -> threading.Event:
    """Return an event that is set when a line arrives or the parent process is gone."""
    event = threading.Event()

    def wait() -> None:
        sys.stdin.readline()
        event.set()

    threading.Thread(target=wait, daemon=True).start()
    return event


def publish(directory: str, channel: str, count: int) -> None:
    end = told()
    with Aeron.connect(directory) as aeron, aeron.add_exclusive_publication(channel, STREAM) as publication:
        _offer(publication, count)
        print("done", flush=True)
        end.wait()


def _offer(publication: ExclusivePublication, count: int) -> None:
    for number in range(count):
        publication.send(message(number), timeout=TIMEOUT_S)


def record(directory: str, channel: str, recordings: str) -> None:
    end = told()
    with (
        Aeron.connect(directory) as aeron,
        aeron.add_subscription(channel, STREAM) as subscription,
        Recorder(recordings, segment_length=1 << 20) as recorder,
    ):
        recorder.add_subscription(subscription)
        print("ready", flush=True)
        while not end.is_set():
            if not recorder.do_work():
                time.sleep(0.001)


if __name__ == "__main__":
    job: Any = {"publish": lambda d, c, n: publish(d, c, int(n)), "record": record}[sys.argv[1]]
    job(*sys.argv[2:])
