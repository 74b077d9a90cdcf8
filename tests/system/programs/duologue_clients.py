"""Several duologue clients in one process. Each sends numbered messages and checks that each comes back once and in order.

Usage: ``duologue_clients.py DIRECTORY ADDRESS PORT COUNT INTERVAL PAUSE``. INTERVAL is the time between a client's messages and
PAUSE the time between its polls for a response, both in seconds. Prints ``ready``, runs until its standard input ends, and then
prints one line of JSON: the number of messages answered for each client, the longest and the 99th-percentile round trip, and
any errors.
"""

from __future__ import annotations

import json
import select
import sys
import time

from mainstem.aeron.client.client import Aeron
from mainstem.duologue import connect
from mainstem.errors import MainstemError


class Talker:
    def __init__(self, aeron: Aeron, address: str, port: int, interval: float) -> None:
        self.client = connect(address, port, timeout=60.0, aeron=aeron)
        self.interval = interval
        self.sent = self.answered = 0
        self.next_s = self.sent_s = 0.0
        self.trips: list[float] = []
        self.error = ""

    def step(self, now: float, stopping: bool) -> None:
        if self.error:
            return
        try:
            if self.sent == self.answered and now >= self.next_s and not stopping:
                self.client.send(f"ECHO {self.client.session_id} {self.sent}")
                self.sent += 1
                self.sent_s, self.next_s = now, now + self.interval
            message = self.client.poll()
        except MainstemError as error:
            self.error = repr(error)
            return
        if message is None:
            return
        if message != f"ECHO {self.client.session_id} {self.answered}".encode() or self.answered >= self.sent:
            self.error = f"{message!r} where {self.answered} of {self.sent} was due"
        self.answered += 1
        self.trips.append(time.monotonic() - self.sent_s)


def main() -> None:
    directory, address, port, count, interval, pause = sys.argv[1:7]
    with Aeron.connect(directory) as aeron:
        talkers = [Talker(aeron, address, int(port), float(interval)) for _ in range(int(count))]
        print("ready", flush=True)
        deadline = 0.0
        while not deadline or time.monotonic() < deadline:
            now = time.monotonic()
            for talker in talkers:
                talker.step(now, bool(deadline))
            if deadline and all(talker.error or talker.sent == talker.answered for talker in talkers):
                break
            if not deadline and select.select([sys.stdin], [], [], float(pause))[0]:
                deadline = now + 30.0
        trips = sorted(trip for talker in talkers for trip in talker.trips)
        report = {
            "answered": [talker.answered for talker in talkers],
            "unanswered": sum(talker.sent - talker.answered for talker in talkers),
            "errors": [talker.error for talker in talkers if talker.error],
            "longest_s": trips[-1] if trips else 0.0,
            "p99_s": trips[int(0.99 * (len(trips) - 1))] if trips else 0.0,
            "median_s": trips[len(trips) // 2] if trips else 0.0,
        }
        print(json.dumps(report), flush=True)
        for talker in talkers:
            talker.client.close()


if __name__ == "__main__":
    main()
