"""One end of an interoperability test: ``peer.py mainstem|pyaeron OPTIONS``, the options as JSON.

Says ``ready``, then a word when something happens that the test waits for, and at last its facts as one line of JSON.
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

PATIENCE_S = 90.0  # a peer that makes no progress for so long gives up and says so


def say(word: str) -> None:
    print(word, flush=True)


def wait(condition: Callable[[], object]) -> bool:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.001)
    return True


def subscribe(end: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Takes ``rounds`` times ``count`` messages; with ``hold`` it then stays, else it waits for the end of the stream."""
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
    """Polls until ``count`` messages are there, or nothing comes any more."""
    patience = time.monotonic() + PATIENCE_S
    while expected.count < count and time.monotonic() < patience:
        if end.poll(expected.take):
            patience = time.monotonic() + PATIENCE_S
            if slow_s:
                time.sleep(slow_s)
        else:
            os.sched_yield()


def publish(end: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Offers ``rounds`` times ``count`` messages; between two rounds its receivers go and others come."""
    traffic = Traffic(options["largest"])
    end.publish(
        options["channel"], options["stream"], exclusive=options["exclusive"], destinations=options["destinations"]
    )
    wait(lambda: end.is_connected)
    say("ready")
    total = refused = 0
    for left in reversed(range(options["rounds"])):
        sent = 0
        patience = time.monotonic() + PATIENCE_S
        while sent < options["count"] and time.monotonic() < patience:
            if end.offer(traffic.message(sent)):
                sent += 1
                patience = time.monotonic() + PATIENCE_S
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
    """Does nothing but look whether the driver is there; what it says when it is not."""
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
        time.sleep(0.5)  # the driver drains what it was given
    say(json.dumps(facts))


if __name__ == "__main__":
    main()
