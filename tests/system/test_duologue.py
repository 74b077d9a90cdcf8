"""Duologues through real drivers over loopback: docs/protocols/duologue.md, 4.4, from both sides."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.duologues import HERE, calling, echo, in_use, serving
from tests.support.live_driver import shared_memory, wait_for
from tests.support.ports import free_port
from tests.support.waiting import STALL_S, until

from mainstem.aeron.client.client import Aeron
from mainstem.aeron.driver.media_driver import MediaDriver
from mainstem.duologue import (
    ServerKey,
    aio,
    connect,
    serve,
)
from mainstem.duologue.settings import reserved_sessions
from mainstem.errors import ClosedError, ConnectRefused, ConnectTimeout, Timeout

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstem.duologue import Duologue

pytestmark = pytest.mark.system

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def port() -> int:
    """Return the first of a range of unused ports."""
    return free_port(128)


@pytest.fixture
def driver() -> Iterator[MediaDriver]:
    """Launch one driver process that the server and the clients share."""
    with MediaDriver.launch(**reserved_sessions(), term_buffer_length=1 << 16, image_liveness_timeout_ns="2s") as made:
        yield made
    assert not shared_memory()


@pytest.fixture
def aeron(driver: MediaDriver) -> Iterator[Aeron]:
    with Aeron.connect(driver.directory) as made:
        yield made


@pytest.mark.parametrize("encrypted", [False, True])
def test_each_client_gets_echoes_on_its_own_duologue(aeron: Aeron, port: int, encrypted: bool) -> None:
    key = ServerKey.generate(random.SystemRandom()) if encrypted else None
    server_key = key.public if key else b""
    with serve(echo, **serving(port), aeron=aeron, key=key) as server:
        clients = [connect(**calling(port, server_key=server_key), aeron=aeron) for _ in range(3)]
        assert len({client.session_id for client in clients}) == 3
        assert in_use(server) == (6, 3)
        for number in range(20):
            for index, client in enumerate(clients):
                client.send(f"ECHO {index} {number}")
        for index, client in enumerate(clients):
            answers = [client.receive(timeout=STALL_S) for _ in range(20)]
            assert answers == [f"ECHO {index} {number}".encode() for number in range(20)]
        for client in clients:
            client.close()
        wait_for(lambda: in_use(server) == (0, 0))


def test_a_bad_message_gets_an_error_and_ends_the_duologue(aeron: Aeron, port: int) -> None:
    with (
        serve(echo, **serving(port), aeron=aeron) as server,
        connect(**calling(port), aeron=aeron) as client,
    ):
        client.send("nonsense")
        with pytest.raises(ConnectRefused, match="bad message") as refused:
            client.receive(timeout=STALL_S)
        assert refused.value.reason == "bad message"
        wait_for(lambda: in_use(server) == (0, 0))
        assert server.stats().bad_messages == 1


def test_one_address_gets_no_more_than_its_share(aeron: Aeron, port: int) -> None:
    with serve(echo, **serving(port, max_clients_per_address=2), aeron=aeron) as server:
        clients = [connect(**calling(port), aeron=aeron) for _ in range(2)]
        with pytest.raises(ConnectRefused, match="too many connections for IP address"):
            connect(**calling(port), aeron=aeron)
        clients.pop().close()
        wait_for(lambda: in_use(server) == (2, 1))
        clients.append(connect(**calling(port), aeron=aeron))
        for client in clients:
            client.close()


def test_an_ipv6_64_prefix_counts_as_one_address(aeron: Aeron, port: int) -> None:
    with (
        serve(echo, **serving(port, host="::1", max_clients_per_address=1), aeron=aeron) as server,
        connect(**calling(port, host="::1"), aeron=aeron) as client,
    ):
        client.send("ECHO six")
        assert client.receive(timeout=STALL_S) == b"ECHO six"
        assert server.address == ("::1", port)
        with pytest.raises(ConnectRefused, match="too many connections"):
            connect(**calling(port, host="::1"), aeron=aeron)


def test_a_full_server_rejects_clients_with_a_reason(aeron: Aeron, port: int) -> None:
    with (
        serve(echo, **serving(port, max_clients=1), aeron=aeron),
        connect(**calling(port), aeron=aeron),
        pytest.raises(ConnectRefused, match="server full"),
    ):
        connect(**calling(port), aeron=aeron)


def test_an_error_names_the_step_that_a_missing_server_fails(aeron: Aeron, port: int) -> None:
    begin = time.monotonic()
    with pytest.raises(ConnectTimeout, match="all-clients channel is reached") as failed:
        connect(**calling(port, timeout=0.5), aeron=aeron)
    assert "reached" in failed.value.step
    assert time.monotonic() - begin < 60


def test_a_server_that_closes_is_noticed(driver: MediaDriver, port: int) -> None:
    with Aeron.connect(driver.directory) as mine, Aeron.connect(driver.directory) as theirs:
        server = serve(echo, **serving(port), aeron=theirs)
        with connect(**calling(port), aeron=mine) as client:
            server.close()
            with pytest.raises(ClosedError, match="ended the duologue"):
                client.receive(timeout=STALL_S)


def test_encrypted_and_plain_clients_are_distinguished(aeron: Aeron, port: int) -> None:
    key, other = (ServerKey.generate(random.SystemRandom()) for _ in range(2))
    with serve(echo, **serving(port), aeron=aeron, key=key):
        with pytest.raises(ConnectRefused, match="encryption required"):
            connect(**calling(port), aeron=aeron)
        with pytest.raises(ConnectRefused, match="bad message"):
            connect(**calling(port, server_key=other.public), aeron=aeron)
    with (
        serve(echo, **serving(port + 100), aeron=aeron),
        pytest.raises(ConnectRefused, match="encryption not offered"),
    ):
        connect(**calling(port + 100, server_key=key.public), aeron=aeron)


def test_any_thread_can_use_a_duologue(aeron: Aeron, port: int) -> None:
    held: list[Duologue] = []
    is_over = threading.Event()

    def keep(duologue: Duologue) -> None:
        held.append(duologue)
        is_over.wait(STALL_S)

    with (
        serve(keep, **serving(port), aeron=aeron) as server,
        connect(**calling(port), aeron=aeron) as client,
    ):
        (duologue,) = wait_for(lambda: held)
        duologue.send(b"from another thread")
        server.broadcast("to all")
        assert duologue.try_send("at once")
        expected = [b"from another thread", b"to all", b"at once"]
        assert [client.receive(timeout=STALL_S) for _ in expected] == expected
        assert duologue.poll() is None
        with pytest.raises(Timeout):
            duologue.receive(timeout=0)
        client.send("back")
        wait_for(lambda: duologue.stats().messages_received)
        assert duologue.poll() == b"back"
        assert repr(duologue).startswith(f"<Duologue {client.session_id} with {HERE}:")
        assert duologue.peer_address[0] == HERE
        is_over.set()
        with pytest.raises(ClosedError):
            client.receive(timeout=STALL_S)
        assert duologue.closed
        assert client.closed
        assert client.error is None


def test_two_threads_can_share_a_client(aeron: Aeron, port: int) -> None:
    received: list[bytes] = []
    with (
        serve(echo, **serving(port), aeron=aeron),
        connect(**calling(port), aeron=aeron) as client,
    ):
        reader = threading.Thread(target=lambda: received.extend(client.receive(STALL_S) for _ in range(200)))
        reader.start()
        sent = [b"ECHO %d" % number for number in range(200)]
        for message in sent:
            client.send(message, timeout=STALL_S)
        reader.join(STALL_S)
    assert received == sent


def test_a_failing_handler_ends_only_its_own_duologue(
    aeron: Aeron, port: int, caplog: pytest.LogCaptureFixture
) -> None:
    def handler(duologue: Duologue) -> None:
        for message in duologue:
            if message == b"trip":
                raise ZeroDivisionError
            duologue.send(message)

    with (
        serve(handler, **serving(port), aeron=aeron),
        connect(**calling(port), aeron=aeron) as good,
        connect(**calling(port), aeron=aeron) as bad,
    ):
        bad.send(b"trip")
        with pytest.raises(ConnectRefused, match="internal error"):
            bad.receive(timeout=STALL_S)
        good.send(b"on")
        assert good.receive(timeout=STALL_S) == b"on"
    assert caplog.text.count("Traceback") == 1
    assert "ZeroDivisionError" in caplog.text


async def test_asyncio_client_and_server_exchange_messages(driver: MediaDriver, port: int) -> None:
    async def talk(duologue: aio.Duologue) -> None:
        async for message in duologue:
            await duologue.send(b"heard " + message)
            if message == b"bye":
                return

    with Aeron.connect(driver.directory) as aeron:
        async with (
            aio.serve(talk, **serving(port), aeron=aeron),
            aio.connect(**calling(port), aeron=aeron) as client,
        ):
            await client.send("one")
            assert await client.receive(timeout=STALL_S) == b"heard one"
            assert client.poll() is None
            assert client.try_send("two")
            assert await until(client.poll) == b"heard two"
            await client.send("bye")
            assert [message async for message in client] == [b"heard bye"]


def run_example(name: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(ROOT / "examples" / name), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": str(ROOT / "src"), "PYTHONUNBUFFERED": "1", "PATH": "/usr/bin:/bin"},
    )


def finish(process: subprocess.Popen[str]) -> str:
    process.terminate()
    return process.communicate(timeout=STALL_S)[0]


def echo_command(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", "from mainstem.cli import main; main()", "echo", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )


def said_in_order(text: str, *words: str) -> None:
    at = 0
    for word in words:
        found = text.find(word, at)
        assert found >= 0, f"{word!r} does not follow in:\n{text}"
        at = found + len(word)


@pytest.mark.long
def test_the_echo_commands_log_each_step_and_end_cleanly(port: int) -> None:
    pytest.importorskip("typer")
    where = ("--port", str(port))
    server = echo_command("serve", HERE, *where, "--max-clients", "4", "--max-clients-per-address", "1")
    patient = (*where, "--timeout", "20", "-i", "0.1")
    try:
        assert server.stdout is not None
        assert "serving echoes" in server.stdout.readline()
        first = echo_command("client", HERE, *patient)
        assert first.stdout is not None
        heard = [first.stdout.readline()]
        while "response: ECHO" not in heard[-1]:
            assert heard[-1], "".join(heard)
            heard.append(first.stdout.readline())
        refused = echo_command("client", HERE, *patient, "-n", "1")
        complaint = refused.communicate(timeout=STALL_S)[0]
        assert refused.returncode != 0
        assert "too many connections for IP address" in complaint
        first.terminate()
        rest = first.communicate(timeout=STALL_S)[0]
        assert first.returncode == 0
        assert "messages came back" in rest
    finally:
        log = finish(server)
    assert server.returncode == 0
    said_in_order(
        "".join(heard), "waiting for response", "HELLO", "connect ", "connected", "send: ECHO", "response: ECHO"
    )
    said_in_order(
        log, "HELLO", "creating new duologue", "CONNECT", "joined", "ERROR too many connections", "duologue ended"
    )


def test_the_guides_first_version_echoes_numbers(port: int) -> None:
    server = run_example("echo_take1.py", "server", HERE, str(port))
    try:
        client = run_example(
            "echo_take1.py", "client", HERE, str(port + 1), HERE, str(port), "--numbers", "3", "--interval", "0.1"
        )
        said = client.communicate(timeout=STALL_S)[0]
        assert client.returncode == 0, said
        assert "3 of 3 came back" in said
    finally:
        assert "client connected" in finish(server)


@pytest.mark.long
def test_the_chat_room_reaches_everyone(port: int) -> None:
    options = ("--port", str(port), "--timeout", str(STALL_S))
    server = run_example("chat.py", "serve", HERE, *options)
    people: list[subprocess.Popen[str]] = []
    try:
        assert server.stdout is not None
        assert "open" in server.stdout.readline()
        for name in ("Ada", "Grace"):
            person = run_example("chat.py", "join", HERE, name, *options)
            people.append(person)
            assert person.stdout is not None
            assert person.stdout.readline() == f"{name} joined\n"
        ada, grace = people
        assert ada.stdin is not None
        assert ada.stdout is not None
        assert grace.stdout is not None
        ada.stdin.write("hello\n")
        ada.stdin.flush()
        assert grace.stdout.readline() == "Ada: hello\n"
        assert [ada.stdout.readline() for _ in range(2)] == ["Grace joined\n", "Ada: hello\n"]
    finally:
        for person in people:
            finish(person)
        finish(server)
