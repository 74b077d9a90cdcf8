"""Use a capture of real traffic as a test: feed its messages to your program in the simulator, as often as you like.

    python examples/capture_into_test.py CAPTURE STREAM

As a subscriber would see it, a message that was sent twice in the capture occurs once here, and messages are in order. The capture
must be complete (no ``-s``) and must contain the stream from a message's first frame on.
"""

# pyarrow has no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from mainstem.capture import read_frames
from mainstem.sim import Faults, World

if TYPE_CHECKING:
    from mainstem import Fragment, Subscription

BEGIN, END = 0x80, 0x40
COLUMNS = ["frame_type", "session_id", "stream_id", "term_id", "term_offset", "flags", "text", "payload"]
CHANNEL = "aeron:udp?endpoint=10.0.0.2:20121"


class Gauge:
    """The program under test: it records the highest tide."""

    def __init__(self, subscription: Subscription) -> None:
        self.subscription, self.highest, self.count = subscription, 0, 0

    def do_work(self) -> None:
        self.subscription.poll_messages(self.on_message, 10)

    def on_message(self, message: Fragment) -> None:
        self.count += 1
        self.highest = max(self.highest, int(bytes(message).decode()))


def messages_of(capture: str, stream_id: int) -> list[bytes]:
    """Return the messages of a stream in a capture, session by session, each once and in order."""
    frames: dict[tuple[int, int, int], tuple[int, bytes]] = {}
    for batch in read_frames(capture, COLUMNS):
        for row in batch.to_pylist():
            if row["frame_type"] == "DATA" and row["stream_id"] == stream_id and row["text"] != "heartbeat":
                place = row["session_id"], row["term_id"], row["term_offset"]
                frames.setdefault(place, (row["flags"], row["payload"] or b""))
    messages: list[bytes] = []
    parts: list[bytes] = []
    for _, (flags, payload) in sorted(frames.items()):
        if flags & BEGIN:
            parts = []
        parts.append(payload)
        if flags & END:
            messages.append(b"".join(parts))
    return messages


def replay(messages: list[bytes], seed: int) -> Gauge:
    """Send the messages to the program, over a worse network than the one captured."""
    with World(seed, faults=Faults(loss=0.2, duplication=0.1, reorder=0.1)) as world:
        source, target = world.add_host("source"), world.add_host("target")
        gauge = Gauge(target.aeron.add_subscription(CHANNEL, 1001))
        publication = source.aeron.add_publication(CHANNEL, 1001)
        waiting = list(messages)

        def all_there() -> bool:
            if waiting and publication.offer(waiting[0]) > 0:
                del waiting[0]
            gauge.do_work()
            return gauge.count == len(messages)

        world.run_until(all_there, what="the program has every message")
        return gauge


def main(capture: str, stream_id: int) -> None:
    messages = messages_of(capture, stream_id)
    expected = max(int(message) for message in messages)
    for seed in range(3):
        assert replay(messages, seed).highest == expected
    print(f"{len(messages)} messages, three replays, the highest is {expected} in each")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
