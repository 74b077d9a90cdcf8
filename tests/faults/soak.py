"""``python -m tests.faults.soak [--minutes 120] [KIND ...]``: programs that keep running, while others come and go.

For each kind of connection (rounds.py), the programs on which others depend run for the whole time: drivers, a subscriber, the
servers of multiplexers and of Aqueduct, a recorder, a shipper, an archive and its replica. Every ten seconds a publisher, a second
subscriber or a client is ended, by SIGKILL or cleanly, and another is started. Received messages are checked as in the rounds, and
messages must keep arriving. The long-running programs must not grow: the soak compares the medians of private memory, descriptors,
mappings and threads in the last quarter of the run with those in the second quarter. If a long-running program exits, the soak
fails.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.faults.chain import Broken
from tests.faults.options import parsed
from tests.faults.rounds import KINDS
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from tests.faults.rounds import Trial

STEP_S = 10.0
CHECKED_STEPS = 6  # steps between two lines of progress; each time, the recordings are read from the beginning
ENVIRONMENT = {"MAINSTEM_FAULTS_PAUSE_S": "0.01", "MAINSTEM_FAULTS_TIMEOUT_SCALE": "10"}
STEADY = {
    "udp": ("driver", "subscriber"),
    "ipc": ("driver", "subscriber"),
    "bymux": ("server",),
    "jmux": ("server",),
    "aqueduct": ("server",),
    "recording": ("recorder", "shipper"),
    "archive": ("driver", "archive", "replica"),
}
# The allowed growth of a median: a share, plus an absolute amount.
SHARE, BESIDES = 0.05, {"memory": 4 << 20, "descriptors": 2, "mappings": 8, "threads": 1}


@dataclass(frozen=True)
class Sample:
    """The resources of a process: bytes of private memory, and counts."""

    memory: int
    descriptors: int
    mappings: int
    threads: int

    @classmethod
    def of(cls, pid: int) -> Sample:
        home = Path("/proc", str(pid))
        status = dict(line.split(":", 1) for line in (home / "status").read_text().splitlines())
        return cls(
            memory=int(status["RssAnon"].split()[0]) << 10,
            descriptors=len(list((home / "fd").iterdir())),
            mappings=(home / "maps").read_text().count("\n"),
            threads=int(status["Threads"]),
        )


def growth(samples: list[Sample]) -> dict[str, tuple[int, int]]:
    """Return the medians of the second and the last quarter, by resource."""
    quarter = len(samples) // 4
    parts = samples[quarter : 2 * quarter], samples[-quarter:]
    medians = [[round(statistics.median(column)) for column in zip(*map(astuple, part), strict=True)] for part in parts]
    return dict(zip(BESIDES, zip(*medians, strict=True), strict=True))


def is_flat(name: str, before: int, after: int) -> bool:
    """Return whether the growth is within the allowed amount."""
    return after <= before * (1 + SHARE) + BESIDES[name]


class Stay:
    """The programs of one kind, and samples of the long-running ones."""

    def __init__(self, kind: str, directory: Path) -> None:
        self.kind = kind
        self.trial: Trial = KINDS[kind](directory)
        self.trial.environment = ENVIRONMENT
        if "subscriber" in STEADY[kind]:
            self.trial.commands["visitor"] = list(self.trial.commands["subscriber"])
        self.guests = sorted(set(self.trial.commands) - set(STEADY[kind]))
        self.visits = 0
        self.messages = 0
        self.samples: dict[str, list[Sample]] = {name: [] for name in STEADY[kind]}

    def begin(self) -> None:
        self.trial.begin()
        self.pids = {name: self.trial.pid(name) for name in self.samples}

    def step(self, number: int, rng: random.Random) -> None:
        """End a guest and start another; messages must have arrived since the last step. Raises AssertionError."""
        if not self.guests:
            if number % CHECKED_STEPS == 0:
                self.messages = self.trial.wait_for_fresh()
        else:
            before = self.messages
            wait_for(lambda: self.trial.arrived() > before, progress=self.trial.arrived)
            self.messages = self.trial.arrived()
            self.trial.logs.free()
            name = rng.choice(self.guests)
            self.trial.end(name, rng.choice((signal.SIGKILL, signal.SIGINT)))
            self.trial.start(name)
            self.visits += 1
        self.trial.keep_alive()
        for name, pid in self.pids.items():
            assert self.trial.pid(name) == pid, f"{self.kind}: {name} has ended"
            self.samples[name].append(Sample.of(pid))

    def result(self) -> dict[str, object]:
        """Return the number of messages and visits, and the growth of each long-running program."""
        grown = {name: growth(samples) for name, samples in self.samples.items()}
        return {"kind": self.kind, "messages": self.messages, "visits": self.visits, "second and last quarter": grown}

    def grown(self) -> list[str]:
        """Return the resources that grew."""
        return [
            f"{self.kind} {name}: {what} from {before:,} to {after:,}"
            for name, samples in self.samples.items()
            for what, (before, after) in growth(samples).items()
            if not is_flat(what, before, after)
        ]


def soak(kinds: list[str], directory: Path, *, steps: int, seed: int) -> list[Stay]:
    """Run the given number of steps of all kinds concurrently. Raises AssertionError."""
    rng = random.Random(seed)
    with ExitStack() as ending:
        stays = []
        for kind in kinds:
            (directory / kind).mkdir()
            stay = Stay(kind, directory / kind)
            ending.callback(stay.trial.close)
            stay.begin()
            stays.append(stay)
        for number in range(steps):
            due = time.monotonic() + STEP_S
            for stay in stays:
                try:
                    stay.step(number, rng)
                except (AssertionError, Broken) as error:
                    raise AssertionError(f"{stay.kind}, step {number}: {error}\n{stay.trial.outputs()}") from error
            if number % CHECKED_STEPS == 0:
                print(json.dumps({stay.kind: stay.messages for stay in stays} | {"step": number}), flush=True)
            time.sleep(max(0.0, due - time.monotonic()))
    return stays


def main() -> int:
    parser = argparse.ArgumentParser(description="programs that stay may not grow while others come and go")
    parser.add_argument("--minutes", type=float, default=120)
    given = parsed(parser)
    steps = max(8, round(given.minutes * 60 / STEP_S))
    with tempfile.TemporaryDirectory(prefix="mainstem-soak-") as directory:
        stays = soak(given.kinds, Path(directory), steps=steps, seed=given.seed)
    for stay in stays:
        print(json.dumps(stay.result()), flush=True)
    grown = [text for stay in stays for text in stay.grown()]
    print("\n".join(f"GROWN: {text}" for text in grown) or "all that stayed is flat")
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main())
