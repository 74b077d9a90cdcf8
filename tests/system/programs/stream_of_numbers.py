"""Publishers and a reader of numbered messages, each in its own process: ``publish`` NUMBER COUNT, or ``read`` COUNT.

Every message contains its sender and its number and is padded with bytes derived from both, so the reader detects any lost,
repeated, reordered, or torn message. The last argument is the location: a driver's directory or, with the prefix ``log:``, a
log file that the reader itself cleans and limits.
"""

from __future__ import annotations

import json
import struct
import sys
import time
from typing import Any

from mainstem import Aeron, BufferClaim, OfferStatus
from mainstem._core.log.append import ConcurrentAppender
from mainstem._core.log.read import ImageReader
from mainstem.aeron.files import MappedFiles
from mainstem.aeron.logbuffer import LogBuffers

CHANNEL, STREAM = "aeron:ipc", 1001
HEAD = struct.Struct("<iq")
FILL = [bytes([i]) * 4000 for i in range(256)]
BATCH = 64
TIMEOUT_S = 240


def message(publisher: int, number: int) -> bytes:
    length = 3000 if number % 1000 == 999 else number % 50
    return HEAD.pack(publisher, number) + FILL[(number * 31 + publisher) % 256][:length]


def until(condition: Any) -> None:
    end = time.monotonic() + TIMEOUT_S
    while not condition():
        if time.monotonic() > end:
            sys.exit("waited for too long")
        time.sleep(0.0005)


def publish(publisher: int, count: int, publication: Any) -> None:
    """Publish with batches, single offers, and claims in turn."""
    claim, number = BufferClaim(), 0
    while number < count:
        way = number // BATCH % 3
        batch = [message(publisher, n) for n in range(number, min(number + BATCH, count))]
        while batch:
            if way == 0:
                taken, answer = publication.offer_many(batch)
            elif way == 1 or len(batch[0]) > publication.max_payload_length:
                answer = publication.offer(batch[0])
                taken = 1 if answer > 0 else 0
            else:
                answer = publication.try_claim(len(batch[0]), claim)
                taken = 1 if answer > 0 else 0
                if taken:
                    with claim:
                        claim.view[:] = batch[0]
            number += taken
            del batch[:taken]
            if answer in (OfferStatus.CLOSED, OfferStatus.MAX_POSITION_EXCEEDED):
                sys.exit(f"publisher {publisher}: {OfferStatus(answer).name}")
            if not taken and answer != OfferStatus.ADMIN_ACTION:
                time.sleep(0.0001)


class Checker:
    """A counter of messages that ends the process at the first wrong one."""

    def __init__(self, publishers: int) -> None:
        self.next = dict.fromkeys(range(publishers), 0)
        self.seen = 0

    def take(self, messages: list[bytes]) -> None:
        for found in messages:
            publisher, number = HEAD.unpack_from(found)
            if number != self.next.get(publisher):
                sys.exit(f"publisher {publisher}: message {number} came where {self.next.get(publisher)} was due")
            if found != message(publisher, number):
                sys.exit(f"publisher {publisher}: message {number} is torn")
            self.next[publisher] = number + 1
            self.seen += 1


def report(checker: Checker) -> None:
    print(json.dumps({"seen": checker.seen, "next": checker.next}))


def read_subscription(count: int, directory: str) -> None:
    with Aeron.connect(directory) as aeron, aeron.add_subscription(CHANNEL, STREAM) as subscription:
        print("ready", flush=True)
        checker = Checker(2)
        end = time.monotonic() + TIMEOUT_S
        while checker.seen < count:
            checker.take(subscription.poll_bytes(1000))
            if not subscription.wait_for_data(timeout=0.01) and time.monotonic() > end:
                break
        report(checker)


def read_log(count: int, path: str, counters_path: str) -> None:
    """Read a log, cleaning behind the reader and raising the limit like a driver."""
    files = MappedFiles()
    log, counters = files.map(path), files.map(counters_path)
    term_length = LogBuffers(log).term_length
    image = ImageReader(log, counters, 1)
    checker, cleaned = Checker(2), 0
    print("ready", flush=True)
    end = time.monotonic() + TIMEOUT_S
    while checker.seen < count and time.monotonic() < end:
        checker.take(image.poll_bytes(1000))
        while cleaned < image.position:
            offset = cleaned % term_length
            part = min(image.position - cleaned, term_length - offset)
            log.zero(cleaned // term_length % 3 * term_length + offset, part)
            cleaned += part
        counters.put_i64_release(0, cleaned + term_length // 2)
    report(checker)


def main() -> None:
    role, *arguments, where = sys.argv[1:]
    on_log = where.startswith("log:")
    path = where.removeprefix("log:")
    if role == "read":
        if on_log:
            read_log(int(arguments[0]), path, path + ".counters")
        else:
            read_subscription(int(arguments[0]), path)
    elif on_log:
        files = MappedFiles()
        publish(
            int(arguments[0]), int(arguments[1]), ConcurrentAppender(files.map(path), files.map(path + ".counters"), 0)
        )
    else:
        with Aeron.connect(path) as aeron, aeron.add_publication(CHANNEL, STREAM) as publication:
            until(lambda: publication.is_connected)
            publish(int(arguments[0]), int(arguments[1]), publication)


if __name__ == "__main__":
    main()
