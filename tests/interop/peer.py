"""One end of an interoperability test: ``peer.py mainstem|pyaeron OPTIONS``, with the options as JSON.

Prints ``ready``, then a word for each event that the test waits for, and finally its facts as one line of JSON.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

from traffic import Expected, Traffic

if TYPE_CHECKING:
    from collections.abc import Callable

TIMEOUT_S = 90.0  # a peer that makes no progress for this long gives up and says so


def say(word: str) -> None:
    print(word, flush=True)


def wait(condition: Callable[[], object]) -> bool:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.001)
    return True


def subscribe(end: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Receive ``rounds`` times ``count`` messages.

    Then keep polling until killed if ``hold`` is set, or wait for the end of the stream if ``to_end`` is set.
    """
    end.subscribe(options["channel"], options["stream"])
    say("ready")
    total, fault = 0, ""
    expected = Expected(Traffic(options["largest"]))
    for _ in range(options["rounds"]):
        total += expected.begin()
        take(end, expected, options["count"], options["slow_s"])
        fault = fault or expected.fault
        say("round")
    while options["hold"]:
        end.poll(expected.take)
        time.sleep(0.001)
    ended = wait(lambda: end.poll(expected.take) == 0 and end.has_ended) if options["to_end"] else None
    return {"count": total + expected.count, "fault": fault or expected.fault, "ended": ended}


def take(end: Any, expected: Expected, count: int, slow_s: float) -> None:
    """Poll until ``count`` messages have arrived, or until no more arrive."""
    deadline = time.monotonic() + TIMEOUT_S
    while expected.count < count and time.monotonic() < deadline:
        if end.poll(expected.take):
            deadline = time.monotonic() + TIMEOUT_S
            if slow_s:
                time.sleep(slow_s)
        else:
            os.sched_yield()


def publish(end: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Offer ``rounds`` times ``count`` messages; between two rounds, the receivers leave and others join."""
    traffic = Traffic(options["largest"])
    end.publish(
        options["channel"], options["stream"], exclusive=options["exclusive"], destinations=options["destinations"]
    )
    wait(lambda: end.is_connected)
    say("ready")
    total = refused = 0
    for left in reversed(range(options["rounds"])):
        sent = 0
        deadline = time.monotonic() + TIMEOUT_S
        while sent < options["count"] and time.monotonic() < deadline:
            if end.offer(traffic.message(sent)):
                sent += 1
                deadline = time.monotonic() + TIMEOUT_S
            else:
                refused += 1
                os.sched_yield()
        total += sent
        if left:
            wait(lambda: not end.is_connected)
            say("gone")
            wait(lambda: end.is_connected)
    while options["hold"]:
        time.sleep(0.1)
    return {"sent": total, "refused": refused}


def watch(end: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Only check whether the driver is alive, and return what the client reports when it is not."""
    end.publish(options["channel"], options["stream"], exclusive=False, destinations=[])
    say("ready")
    said: list[str] = []
    wait(lambda: said.append(end.check()) or said[-1])
    return {"said": said[-1]}


def main() -> None:
    kind, given = sys.argv[1:]
    options = json.loads(given)
    end = importlib.import_module(f"end_{kind}").End(options["directory"])
    facts = {"sub": subscribe, "pub": publish, "watch": watch}[options["role"]](end, options)
    end.close()
    if options["role"] == "pub":
        time.sleep(0.5)  # time for the driver to drain what it was given
    say(json.dumps(facts))


if __name__ == "__main__":
    main()
