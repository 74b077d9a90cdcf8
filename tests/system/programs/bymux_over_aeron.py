"""The server of a bymux connection over publications: it writes to each stream without end, until it is killed.

Usage: ``bymux_over_aeron.py DIRECTORY``. Publishes on stream 1001 over IPC and reads stream 1002.
"""

from __future__ import annotations

import sys
import threading

import mainstem
from mainstem import bymux


def write(stream: bymux.Stream) -> None:
    while True:
        stream.write(bytes(1_000))


def main() -> None:
    with (
        mainstem.Aeron.connect(sys.argv[1]) as aeron,
        aeron.add_exclusive_publication("aeron:ipc", 1001) as publication,
        aeron.add_subscription("aeron:ipc", 1002) as subscription,
        bymux.over_publications(publication, subscription, role=bymux.Role.REACTIVE, handler=write, ping_interval=None),
    ):
        threading.Event().wait()


if __name__ == "__main__":
    main()
