"""Seeded rounds of real faults: SIGKILL, SIGSTOP for longer than every timeout, and restarts.

A trial keeps the programs of one kind of connection running. Each round kills or stops one to three of them and waits until
messages arrive again. Received messages are checked by their hash chain (chain.py), which does not depend on Mainstem.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.faults.chain import Broken, Chain, Follower, Logs, recorded_messages
from tests.faults.programs import STREAM, TIMEOUTS, client
from tests.support.held_publisher import HeldPublisher
from tests.support.ports import free_port
from tests.support.waiting import STALL_S, wait_for

ROOT = Path(__file__).parents[2]
STOPPED_S = (1.5, 3.0)  # longer than the timeouts in programs.TIMEOUTS, which are one or two seconds
AWAY_S = (0.0, 1.0)
FRESH = 200  # messages that must arrive after the faults
POLL_S = 0.05


class Trial:
    """Programs that are restarted whenever they end, and the logs of received messages."""

    from_start = False
    stopped_s = STOPPED_S

    def __init__(self, root: Path) -> None:
        self.root = root
        self.commands: dict[str, list[str]] = {}
        self.environment: dict[str, str] = {}
        self.faults = {"killed": 0, "stopped": 0}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._starts = 0
        (root / "logs").mkdir()
        self.logs = Logs(root / "logs", from_start=self.from_start)

    def role(self, *arguments: object) -> list[str]:
        return [sys.executable, "-m", "tests.faults.programs", *map(str, arguments)]

    def start(self, name: str) -> None:
        self._starts += 1
        paths = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
        # Each start has its own log, {log}.
        command = [
            part.replace("{log}", str(self.root / "logs" / f"{self._starts:06d}.log")) for part in self.commands[name]
        ]
        with (self.root / f"{name}.out").open("ab") as out:
            self._processes[name] = subprocess.Popen(
                command,
                env=os.environ | self.environment | {"PYTHONPATH": paths},
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def pid(self, name: str) -> int:
        """Return a program's process id."""
        return self._processes[name].pid

    def keep_alive(self) -> None:
        """Restart programs that have ended, such as a client whose driver is gone or an end whose peer is gone."""
        for name in self.commands:
            if name not in self._processes or self._processes[name].poll() is not None:
                self.start(name)

    def arrived(self) -> int:
        """Return how many messages have arrived; raises Broken."""
        self.keep_alive()
        return self.logs.check()

    def wait_for_fresh(self) -> int:
        goal = self.arrived() + FRESH
        wait_for(lambda: self.arrived() >= goal, progress=self.arrived, poll_s=POLL_S)
        return goal

    def begin(self) -> None:
        for name in self.commands:
            self.start(name)
        self.wait_for_fresh()

    def round(self, rng: random.Random) -> list[str]:
        """Inject one to three faults and wait until messages arrive again; return a description of the faults."""
        done = []
        for _ in range(rng.randrange(1, 4)):
            name = rng.choice(sorted(self.commands))
            if rng.random() < 0.5:
                self.end(name, signal.SIGKILL)
                self.faults["killed"] += 1
                done.append(f"kill {name}")
                time.sleep(rng.uniform(*AWAY_S))
                self.start(name)
            else:
                self._signal(name, signal.SIGSTOP)
                self.faults["stopped"] += 1
                done.append(f"stop {name}")
                time.sleep(rng.uniform(*self.stopped_s))
                self._signal(name, signal.SIGCONT)
        self.wait_for_fresh()
        return done

    def end(self, name: str, number: int) -> None:
        """End a program with a signal, and wait for its exit."""
        self._signal(name, number)
        self._processes[name].wait(STALL_S)

    def _signal(self, name: str, number: int) -> None:
        if self._processes[name].poll() is not None:
            self.start(name)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._processes[name].pid, number)

    def outputs(self) -> str:
        """Return the end of each program's output."""
        return "\n".join(
            f"--- {path.name}\n{path.read_text(errors='replace')[-1500:]}" for path in self.root.glob("*.out")
        )

    def close(self) -> None:
        for process in self._processes.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


class Stream(Trial):
    """A publisher, a subscriber, and the driver that both need."""

    channel = "aeron:udp?endpoint=127.0.0.1:{port}|term-length=64k"

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        directory, channel = root / "driver", self.channel.format(port=free_port())
        self.commands = {
            "driver": self.role("driver", directory),
            "publisher": self.role("publisher", directory, channel),
            "subscriber": self.role("subscriber", directory, channel, "{log}"),
        }


class Ipc(Stream):
    """The same programs over IPC."""

    channel = "aeron:ipc?term-length=64k"


class Mux(Trial):
    """Both ends of a bymux connection; the messages of each stream begin with the first one."""

    from_start = True
    protocol = "bymux"

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        port = free_port()
        self.commands = {
            "server": self.role("mux_server", self.protocol, port, "{log}"),
            "client": self.role("mux_client", self.protocol, port),
        }


class Jmux(Mux):
    """Both ends of a Jmux connection."""

    protocol = "jmux"


class Aqueduct(Trial):
    """Client and server of an Aqueduct."""

    from_start = True

    def __init__(self, root: Path) -> None:
        from mainstem.aqueduct import make_certificates

        super().__init__(root)
        port = free_port()
        make_certificates(root / "certificates")
        self.commands = {
            "server": self.role("aqueduct_server", root / "certificates", port, "{log}"),
            "client": self.role("aqueduct_client", root / "certificates", port),
        }


class Recording(Trial):
    """A recorder and a shipper; the publisher holds the stream for them, and each message is recorded and shipped exactly once."""

    stopped_s = (4.5, 6.0)

    def __init__(self, root: Path) -> None:
        from mainstem import MediaDriver
        from mainstem.recording import Recorder

        super().__init__(root)
        channel = "aeron:ipc?term-length=256k"
        self.recordings = root / "recordings"
        self.recordings.mkdir()
        Recorder(self.recordings).close()
        # The publisher is a thread of this process; on a busy machine, the driver must not time it out.
        patient = {"client_liveness_timeout_ns": 4 * 10**9, "publication_unblock_timeout_ns": 5 * 10**9}
        self.driver = MediaDriver.launch(**TIMEOUTS | patient)
        chain, self._made = Chain(b"recorded"), dict[int, bytes]()

        def payload(number: int) -> bytes:
            if number not in self._made:
                self._made.clear()
                self._made[number] = chain.next()
            return self._made[number]

        self.publisher = HeldPublisher(
            self.driver.directory, self.recordings, channel=channel, stream_id=STREAM, payload=payload
        )
        mainstem = [sys.executable, "-m", "mainstem"]
        recorded = ["--out", str(self.recordings), "--stream", str(STREAM), "--dir", self.driver.directory]
        shipped = ["--flush-interval", "1s", "--chunk-size", "64k"]
        self.commands = {
            "recorder": [*mainstem, "record", channel, *recorded, "--segment-length", "256k"],
            "shipper": [*mainstem, "ship", str(self.recordings), str(root / "store"), *shipped],
        }

    def arrived(self) -> int:
        """Return the number of messages in the store, after checking that they form a chain from the first message on."""
        from mainstem.errors import RecordingError
        from mainstem.recording import messages, open_recordings

        self.keep_alive()
        if self.publisher.error is not None:
            raise self.publisher.error
        follower = Follower("the store", from_start=True)
        try:
            with open_recordings(self.root / "store") as recordings:
                for reader in recordings:
                    for _, message in messages(reader, reader.start_position, reader.end_position()):
                        follower.take(message)
        except RecordingError:
            return 0  # nothing has been shipped yet
        return follower.count

    def wait_for_fresh(self) -> int:
        self.publisher.goal += FRESH
        wait_for(
            lambda: self.arrived() >= self.publisher.goal,
            progress=lambda: (self.publisher.published, self.arrived()),
            poll_s=POLL_S,
        )
        self.check_segments()
        return self.publisher.goal

    def check_segments(self) -> None:
        """Check the segment files, using only the frames in them."""
        segments = sorted(self.recordings.glob("0-*.rec"), key=lambda path: int(path.stem.partition("-")[2]))
        follower = Follower("the segments", from_start=True)
        for message in recorded_messages(segments, 1 << 62):
            follower.take(message)
            if follower.count == self.publisher.published:
                return
        raise AssertionError(f"{follower.count} messages of {self.publisher.published} are recorded")

    def close(self) -> None:
        self.publisher.close()
        super().close()
        self.driver.close()


class Archive(Trial):
    """An archive, its driver, a client whose stream it records, and a replica that copies each recording that has ended.

    Whatever is killed, everything that the archive reported as recorded is in the recording, and everything that the replica
    reported as copied is in the copy. According to its files and to a replay, no recording or copy has a gap or a duplicate
    message.
    """

    from_start = True

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.recordings, self.directory = root / "archive", str(root / "driver")
        self.replicas, self.copied = root / "replica", root / "copied"
        self.copied.mkdir()
        self.control, self.replica = (f"aeron:udp?endpoint=127.0.0.1:{free_port()}" for _ in range(2))
        self.environment = {"AERON_DRIVER_TIMEOUT": f"{TIMEOUTS['driver_timeout_ns'] // 10**6}ms"}
        self.commands = {
            "driver": self.role("driver", self.directory),
            "archive": self._archive(self.recordings, self.control),
            "client": self.role("archive_client", self.directory, self.control, "{log}"),
            "replica": self._archive(self.replicas, self.replica, "local_control_stream_id=11"),
            "replicator": self.role("replicator", self.directory, self.control, self.replica, self.copied / "ends"),
        }
        self._recorded: dict[bytes, int] = {}  # messages in the recording, by the chain's nonce
        self._ended: dict[int, int] = {}  # messages of each recording that has ended
        self._copies: dict[int, int] = {}  # the end position of each copy that has ended

    def _archive(self, directory: Path, control: str, *settings: str) -> list[str]:
        words = ["--archive-dir", str(directory), "--dir", self.directory, "--control", control]
        for each in ("segment_file_length=128k", "low_storage_space_threshold=0", *settings):
            words += ["--set", each]
        return [sys.executable, "-m", "mainstem", "archive", *words]

    def wait_for_fresh(self) -> int:
        goal = super().wait_for_fresh()
        self.check_recordings()
        self.check_copies()
        wait_for(self.is_replayed, progress=self.arrived, poll_s=POLL_S)
        return goal

    def check_recordings(self) -> None:
        """Check the segment files, using only the frames in them, up to the position that the archive reports as written."""
        from mainstem.recording import open_recordings

        # Check what was acknowledged first, because the recordings continue to grow.
        self.logs.check()
        acknowledged = [(each.nonce, each.count) for each in self.logs.followers]
        with open_recordings(self.recordings) as recordings:
            for reader in recordings:
                recording_id = reader.descriptor.recording_id
                if recording_id in self._ended:
                    continue
                follower = followed(self.recordings, reader)
                self._recorded[follower.nonce] = follower.count
                if reader.descriptor.stop_position >= 0:
                    self._ended[recording_id] = follower.count
        for nonce, count in acknowledged:
            if self._recorded.get(nonce, 0) < count:
                raise Broken(f"{count} messages were acknowledged, and {self._recorded.get(nonce, 0)} are recorded")

    def check_copies(self) -> None:
        """Check each of the replica's copies from its first message on, and to its end if the replica reported it complete."""
        from mainstem.recording import open_recordings

        ends = self.copied / "ends"
        said = [line.split() for line in ends.read_text().splitlines()] if ends.exists() else []
        if not (self.replicas / "archive.catalog").exists():
            return
        with open_recordings(self.replicas) as recordings:
            for reader in recordings:
                recording_id = reader.descriptor.recording_id
                if recording_id not in self._copies:
                    followed(self.replicas, reader)
                    if reader.descriptor.stop_position >= 0:
                        self._copies[recording_id] = reader.descriptor.stop_position
        for recording_id, end in (map(int, each) for each in said if len(each) == 2):
            if self._copies.get(recording_id) != end:
                raise Broken(f"copy {recording_id} ends at {self._copies.get(recording_id)}, not at {end}")
        self.faults["copied"] = len(said)

    def is_replayed(self) -> bool:
        """Return whether the archive has replayed the last recording that ended; False if the archive was down."""
        from mainstem import archive
        from mainstem.errors import MainstemError

        if not self._ended:
            return True
        recording_id = max(self._ended)
        follower = Follower(f"the replay of {recording_id}", from_start=True)
        try:
            with (
                client(self.directory) as aeron,
                archive.connect(self.control, aeron=aeron) as session,
                session.replay(recording_id, "aeron:ipc", STREAM + 1) as replay,
            ):
                for message in replay.messages(timeout=10):
                    follower.take(message)
        except MainstemError:
            return False
        return follower.count == self._ended[recording_id]


def followed(directory: Path, reader: Any) -> Follower:
    """Check a recording up to the position that its archive reports as written, using only the frames in its segments."""
    recording_id = reader.descriptor.recording_id
    segments = sorted(directory.glob(f"{recording_id}-*.rec"), key=lambda path: int(path.stem.partition("-")[2]))
    follower = Follower(f"{directory.name}, recording {recording_id}", from_start=True)
    for message in recorded_messages(segments, reader.end_position()):
        follower.take(message)
    return follower


KINDS: dict[str, type[Trial]] = {
    "udp": Stream,
    "ipc": Ipc,
    "bymux": Mux,
    "jmux": Jmux,
    "aqueduct": Aqueduct,
    "recording": Recording,
    "archive": Archive,
}


def run(kind: str, root: Path, *, rounds: int, seed: int, say: Any = lambda _: None) -> dict[str, Any]:
    """Run the given number of rounds of one kind; return the results. Raises AssertionError."""
    trial = KINDS[kind](root)
    try:
        trial.begin()
        for number in range(rounds):
            begun = time.monotonic()
            try:
                done = trial.round(random.Random(f"{seed} {kind} {number}"))
            except AssertionError as error:
                raise AssertionError(f"{kind}, seed {seed}, round {number}: {error}\n{trial.outputs()}") from error
            say({"kind": kind, "round": number, "faults": done, "seconds": round(time.monotonic() - begun, 1)})
        return {"kind": kind, "rounds": rounds, "messages": trial.arrived(), **trial.faults}
    finally:
        trial.close()
