"""Mainstem's end of an interoperability test: ``mainstem_peer.py ROLE DIRECTORY CHANNEL STREAM COUNT LARGEST [EXCLUSIVE]``.

Prints ``ready`` and then one line of JSON, as the other peers do.
"""

from __future__ import annotations

import json
import os
import sys
import time

from traffic import Expected, Traffic

import mainstem

PATIENCE_S = 90.0  # a peer that makes no progress for so long gives up and says so


def subscribe(directory: str, channel: str, stream: int, count: int, largest: int) -> dict[str, object]:
    expected = Expected(Traffic(largest))
    slow = float(os.environ.get("SLOW_S", "0"))
    with mainstem.Aeron.connect(directory) as aeron:
        subscription = aeron.add_subscription(channel, stream)
        print("ready", flush=True)
        patience = time.monotonic() + PATIENCE_S

        def on_message(fragment: object) -> None:
            expected.take(bytes(fragment))  # type: ignore[call-overload]

        while expected.count < count and time.monotonic() < patience:
            if subscription.poll_messages(on_message, 64):
                patience = time.monotonic() + PATIENCE_S
                if slow:
                    time.sleep(slow)
            else:
                os.sched_yield()
        time.sleep(0.3)
        subscription.poll_messages(on_message, 64)
    return {"count": expected.count, "fault": expected.fault}


def publish(directory: str, channel: str, stream: int, count: int, largest: int, exclusive: bool) -> dict[str, object]:
    traffic = Traffic(largest)
    with mainstem.Aeron.connect(directory) as aeron:
        add = aeron.add_exclusive_publication if exclusive else aeron.add_publication
        publication = add(channel, stream)
        patience = time.monotonic() + PATIENCE_S
        while not publication.is_connected and time.monotonic() < patience:
            time.sleep(0.001)
        print("ready", flush=True)
        refused = sent = 0
        while sent < count and time.monotonic() < patience:
            if publication.offer(traffic.message(sent)) > 0:
                sent += 1
                patience = time.monotonic() + PATIENCE_S
            else:
                refused += 1
                os.sched_yield()
        publication.close()
        time.sleep(1.0)  # the driver drains what it was given
    return {"sent": sent, "refused": refused}


def main() -> None:
    role, directory, channel, stream, count, largest = sys.argv[1:7]
    if role == "sub":
        facts = subscribe(directory, channel, int(stream), int(count), int(largest))
    else:
        facts = publish(directory, channel, int(stream), int(count), int(largest), sys.argv[7:] == ["exclusive"])
    print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    main()
