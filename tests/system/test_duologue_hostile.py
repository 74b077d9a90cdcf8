"""Hostile clients: each test states what must hold. Ports, memory, and the latency of honest clients stay bounded.

Each test prints its measurements, which docs/duologue.md quotes. The attackers use raw sockets and spoof addresses
``127.x.y.z``, which look like other hosts to the server.
"""

from __future__ import annotations

import os
import random
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.duologues import echo, in_use
from tests.support.hostile_peer import BEGIN, Hostile, data, setup, status
from tests.support.live_driver import shared_memory, wait_for
from tests.support.ports import free_port
from tests.support.waiting import STALL_S, StallTimeout

from mainstem._core.system_counter import SystemCounter
from mainstem.aeron.client.client import Aeron
from mainstem.aeron.driver.media_driver import MediaDriver
from mainstem.duologue import Client, Server, ServerKey, Settings, connect, serve
from mainstem.duologue.settings import reserved_sessions
from mainstem.errors import ClosedError, ConnectRefused, MainstemError, RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.system, pytest.mark.long]

HERE = "127.0.0.1"
MAX_CLIENTS = 8
# Median round trip of an honest client under attack. Without an attack it is well under a millisecond on an idle machine.
TOLERABLE_S = 0.25
LONGEST_S = 5.0  # the longest such round trip
MEMORY = 192 << 20  # for the driver's directory: its own files plus what an attack may add
RESIDENT = 48 << 20  # what an attack may add to the driver and server processes (the attacker runs in the latter)


def resident(pid: int) -> int:
    """Return a process's private resident memory in bytes, without mapped files."""
    fields = Path(f"/proc/{pid}/status").read_text().split("RssAnon:")
    return int(fields[1].split()[0]) * 1024


class House:
    """A server with its driver and one honest client on another driver, with measurements of them."""

    def __init__(self, port: int, near: MediaDriver, server: Server, honest: Client) -> None:
        self.port = port
        self.near = near
        self.server = server
        self.honest = honest
        self.initial = (HERE, port)
        self.latencies_s(20)  # warm up, so that everything that is created once exists
        self._resident = self.resident()

    def held(self) -> tuple[int, int]:
        """Return the number of ports and the number of sessions in use."""
        return in_use(self.server)

    def ports_by_session(self) -> dict[int, tuple[int, int]]:
        """Return the ports of every open duologue by session."""
        self.latency_s(1)
        sessions = self.server._agent.core.sessions
        return {each.session_id: (each.response.port, each.response.control_port) for each in sessions}

    def count(self, name: str) -> int:
        return getattr(self.server.stats(), name)

    def latencies_s(self, rounds: int) -> list[float]:
        """Return an honest client's round trips, shortest first."""
        trips = []
        for number in range(rounds):
            began = time.monotonic()
            self.honest.send(f"ECHO {number}")
            assert self.honest.receive(timeout=STALL_S) == f"ECHO {number}".encode()
            trips.append(time.monotonic() - began)
        return sorted(trips)

    def latency_s(self, rounds: int = 50) -> float:
        """Return the median round trip."""
        return self.latencies_s(rounds)[rounds // 2]

    def resident(self) -> int:
        """Return the private memory of the driver and the server."""
        return resident(self.near.pid) + resident(os.getpid())

    def memory(self) -> int:
        """Return the shared memory of the server's driver, counted in blocks because its files are sparse."""
        files = [path.lstat() for path in Path(self.near.directory).rglob("*") if path.is_file()]
        return sum(each.st_blocks * 512 for each in files)

    def settled(self, what: str) -> None:
        """Check that the honest client gets timely service, no port is held needlessly, and memory is bounded."""
        trips, memory, grown = self.latencies_s(50), self.memory(), self.resident() - self._resident
        ports, sessions = self.held()
        latency, longest = trips[len(trips) // 2], trips[-1]
        print(
            f"{what}: round trip median {latency * 1e3:.2f} ms, longest {longest * 1e3:.1f} ms; {memory >> 20} MiB in shared"
            f" memory, {grown / (1 << 20):+.1f} MiB in the processes; {ports} ports and {sessions} sessions held"
        )
        assert latency < TOLERABLE_S
        assert longest < LONGEST_S
        assert memory < MEMORY
        assert grown < RESIDENT
        assert ports == 2 * sessions
        assert sessions <= MAX_CLIENTS


@contextmanager
def house(*, encrypted: bool = False, filtered: bool = True, **more: Any) -> Iterator[House]:
    port = free_port(128)
    key = ServerKey.generate(random.SystemRandom()) if encrypted else None
    settings = Settings(
        base_port=port + 2,
        **{"max_clients": MAX_CLIENTS, "join_timeout": 1.5, "handshake_timeout": 2.0, **more},
    )
    driver = {**settings.server_driver_settings(), "image_liveness_timeout_ns": "2s"}
    if not filtered:
        driver = {**driver, "endpoint_filter_rate": 0}
    with (
        MediaDriver.launch(**driver) as near,
        MediaDriver.launch(**reserved_sessions(), term_buffer_length=1 << 16) as far,
        Aeron.connect(far.directory) as aeron,
        serve(echo, HERE, port, settings=settings, directory=near.directory, key=key) as server,
        connect(HERE, port, timeout=30.0, server_key=key.public if key else b"", aeron=aeron) as honest,
    ):
        yield House(port, near, server, honest)
    assert not shared_memory()


def join(made: House, **more: Any) -> Client:
    """Connect another client, on its own driver."""
    return connect(HERE, made.port, **{"timeout": 30.0, **more})


def filter_refusals(made: House) -> int:
    with Aeron.connect(made.near.directory) as aeron:
        return aeron.counters.value(SystemCounter.ENDPOINT_FILTER_REFUSALS)


def test_an_unparsable_first_message_is_rejected_with_its_stream() -> None:
    with house() as made, Hostile("127.9.0.1") as stranger:
        for session, text in enumerate((b"", b"GET / HTTP/1.1", b"\xff" * 600, b"HELLO " + b"F" * 9, os.urandom(200))):
            stranger.introduce(made.initial, -1000 - session, text)
        wait_for(lambda: made.count("bad_hellos") == 5)
        assert made.count("handshakes_refused") >= 5
        assert made.held() == (2, 1)
        made.settled("unparsable first messages")


def test_a_flood_of_hellos_from_one_address_stays_within_its_share() -> None:
    with house(filtered=False) as made, Hostile("127.9.0.2") as flooder:
        until = time.monotonic() + 5.0
        session, most = -10_000, 0
        while time.monotonic() < until:
            flooder.introduce_many(made.initial, {session - each: b"HELLO %X" % each for each in range(20)})
            session -= 20
            most = max(most, made.held()[1])
            made.latency_s(3)
        assert most <= 1 + 4, "four duologues for one address"
        assert made.count("hellos_ignored") + made.count("refused_address") > 0
        made.settled(f"{-10_000 - session} HELLOs from one address in 5 s")
        wait_for(lambda: made.held() == (2, 1))


def test_the_endpoint_filter_rejects_a_flood_before_it_creates_images() -> None:
    with house(hello_rate=5.0, hello_burst=8) as made, Hostile("127.9.0.3") as flooder:
        for session in range(-2_000, -1_000):
            flooder.send(made.initial, setup(session))
            time.sleep(0.0005)
        refusals = wait_for(lambda: (found := filter_refusals(made)) > 100 and found)
        images = made.count("handshakes")
        print(f"1000 SETUPs of one address: {images - 1} images, {refusals} refused by the filter")
        assert images <= 1 + 16 + 5 * 20, "the burst, and the rate for as long as this may have taken"
        made.settled("1000 SETUPs from one address")


def test_the_server_recovers_after_a_flood_of_spoofed_hellos() -> None:
    with house() as made:
        stop, sent = threading.Event(), [0]

        def flood() -> None:
            with ExitStack() as opened:
                many = [opened.enter_context(Hostile(f"127.10.{each // 250}.{1 + each % 250}")) for each in range(400)]
                first = -50_000
                while not stop.is_set():
                    first -= len(many)
                    for number, each in enumerate(many):
                        each.send(made.initial, setup(first - number))
                        if number % 20 == 19:
                            time.sleep(0.005)
                    for number, each in enumerate(many):
                        each.send(made.initial, data(first - number, b"HELLO 1"))
                        sent[0] += 1

        flooding = threading.Thread(target=flood)
        flooding.start()
        try:
            until, most, latency = time.monotonic() + 4.0, 0, 0.0
            stall = StallTimeout("the flood reaches the server")
            while time.monotonic() < until or made.count("duologues_opened") <= 1:
                stall.check()
                most = max(most, made.held()[1])
                latency = max(latency, made.latency_s(5))
        finally:
            stop.set()
            flooding.join()
        assert most <= MAX_CLIENTS
        assert latency < TOLERABLE_S
        made.settled(f"{sent[0]} HELLOs from 400 addresses in 4 s, {latency * 1e3:.1f} ms meanwhile")
        wait_for(lambda: made.held() == (2, 1))
        with join(made) as late:
            late.send("ECHO after the flood")
            assert late.receive(timeout=STALL_S) == b"ECHO after the flood"


def test_a_guessed_session_reaches_no_client() -> None:
    with house() as made, Hostile("127.9.0.4") as guesser:
        ((session, (port, _)),) = made.ports_by_session().items()
        guesses = {random.Random().randrange(1, 1 << 31): b"ECHO injected" for _ in range(500)}
        guesses.pop(session, None)
        guesser.introduce_many((HERE, port), guesses)
        made.settled("500 guessed sessions at a duologue's port")
        assert made.honest.poll() is None
        assert made.held() == (2, 1)


def test_a_client_does_not_join_the_session_of_a_forged_connect() -> None:
    """An attacker sends CONNECT to the clients' side, but clients listen only to the server's stream, so it is ignored."""
    with house() as made, Hostile("127.9.0.5") as stranger:
        stranger.introduce(made.initial, -77, b"-5 CONNECT 1 2 FF")
        wait_for(lambda: made.count("bad_hellos") == 1)
        assert made.held() == (2, 1)


def test_a_client_that_never_joins_frees_its_slot() -> None:
    with house() as made, Hostile("127.9.0.6") as absent:
        absent.introduce(made.initial, -5, b"HELLO ABCD")
        wait_for(lambda: made.held() == (4, 2))
        began = time.monotonic()
        wait_for(lambda: made.held() == (2, 1))
        print(f"a duologue that nobody joined was free again after {time.monotonic() - began:.2f} s of 1.5 s")
        assert made.count("duologues_joined") == 1


def test_a_client_that_joins_and_stays_silent_is_disconnected() -> None:
    with house(idle_timeout=6.0) as made:
        client = join(made)
        wait_for(lambda: made.latency_s(1) and made.held() == (4, 2))
        wait_for(lambda: made.latency_s(1) and made.held() == (2, 1))
        with pytest.raises(ConnectRefused, match="idle for too long"):
            client.close()
        made.settled("a silent client")


def test_an_oversized_message_ends_its_senders_duologue() -> None:
    with house() as made:
        with Aeron.connect(made.near.directory) as aeron:
            assert aeron.counters is not None
        # A 16 MiB term is the longest that is accepted. Its longest message is 2 MiB, far above a duologue's 8 KiB.
        with join(made, term_length=16 << 20) as large:
            large.send(b"ECHO " + b"x" * ((2 << 20) - 5))
            with pytest.raises((ClosedError, RemoteProtocolError), match=r"bad message|ended the duologue"):
                large.receive(timeout=STALL_S)
        wait_for(lambda: made.held() == (2, 1))
        assert made.count("bad_messages") == 1
        made.settled("a message of 2 MiB")


def test_a_stream_with_too_long_a_term_gets_no_image() -> None:
    with house() as made, Hostile("127.9.0.7") as greedy:
        greedy.introduce(made.initial, -9, b"HELLO 1", term_length=1 << 30)
        wait_for(lambda: filter_refusals(made) > 0)
        assert made.count("handshakes") == 1
        made.settled("a SETUP with a term of 1 GiB")


def test_an_endless_message_is_not_assembled() -> None:
    with house() as made, Hostile("127.9.0.8") as endless:
        endless.send(made.initial, setup(-11))
        wait_for(lambda: made.count("handshakes") == 2)
        for number in range(40):
            endless.send(made.initial, data(-11, b"y" * 992, offset=number * 1024, flags=BEGIN if not number else 0))
        wait_for(lambda: made.count("bad_hellos") >= 1)
        made.settled("a HELLO of 40 fragments")


def test_altered_and_replayed_messages_end_an_encrypted_duologue_unread() -> None:
    """Anyone who knows the session (every frame has it) and the port can inject bytes into the stream, but none are accepted."""
    with house(encrypted=True) as made, Hostile("127.9.0.9") as forger:
        made.latency_s(3)
        ((session, (port, control)),) = made.ports_by_session().items()
        # What a third party can see without help: it asks the duologue's control port for a copy and gets one.
        copies: list[bytes] = []
        for _ in range(20):
            forger.send((HERE, control), status(session))
            made.latency_s(2)
            copies += [each for each in forger.received() if each[6:8] == b"\x01\x00" and len(each) > 40]
        assert all(b"ECHO" not in each for each in copies)
        print(f"a third party copied {len(copies)} frames of an encrypted duologue, and read none")
        before = made.count("duologues_closed")
        frames = copies or [data(session, os.urandom(40))]
        for each in frames[:4]:
            forger.send((HERE, port), each)  # replayed to the other side
            forger.send((HERE, port), each[:50] + bytes([each[50] ^ 1]) + each[51:])
        # The frames fall outside the stream's window or term, or are rejected. The client either gets service or learns of the end.
        with suppress(MainstemError):
            made.latency_s(3)
            before = -1
        assert before == -1 or made.count("duologues_closed") == before + 1
        assert made.count("bad_messages") == 0


def test_an_eavesdropper_cannot_join_with_anothers_connect() -> None:
    """Anyone can read the all-clients channel. Without the pad, CONNECT reveals the ports and nothing else."""
    with house() as made, Hostile("127.9.0.10") as listener:
        listener.send((HERE, made.port + 1), status(0, stream=0))
        with join(made) as client:
            seen: list[bytes] = []

            def heard() -> bool:
                listener.send((HERE, made.port + 1), status(0, stream=0))
                seen.extend(listener.received())
                return True

            heard()
            wait_for(lambda: made.held()[1] == 2)
            heard()
            assert all(client.session_id.to_bytes(4, "big").hex().upper().encode() not in each for each in seen)
            client.send("ECHO mine")
            assert client.receive(timeout=STALL_S) == b"ECHO mine"
        made.settled("a listener on the all-clients channel")
