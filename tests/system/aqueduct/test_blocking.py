"""Aqueduct without asyncio: clients and servers with blocking calls, over QUIC on this machine."""

from __future__ import annotations

import gc
import logging
import os
import signal
import threading
import time
import warnings
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.call_waits import replace_waits
from tests.support.waiting import STALL_S

from mainstem import aqueduct
from mainstem.aqueduct import Connection, Message, MsgspecSerializer, Receiver, Sender, channel, oneshot
from mainstem.errors import (
    Aborted,
    BackPressured,
    ClosedError,
    ConfigurationError,
    ConnectionLost,
    Delivery,
    LocalProtocolError,
    NoReceivers,
    Timeout,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstem.aqueduct.certificates import CertificateFiles

pytestmark = pytest.mark.system


@pytest.fixture
def start(certificates: CertificateFiles) -> Callable[..., aqueduct.Server]:
    def serve(handler: Callable[[Connection], object], **options: Any) -> aqueduct.Server:
        return aqueduct.serve(handler, certificate=certificates.certificate, key=certificates.key, **options)

    return serve


@pytest.fixture
def connect(certificates: CertificateFiles) -> Callable[..., Connection]:
    def to(server: aqueduct.Server, **options: Any) -> Connection:
        return aqueduct.connect("localhost", server.port, ca=certificates.ca, **options)

    return to


def wait_until(condition: Callable[[], object]) -> None:
    until = time.monotonic() + STALL_S
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.005)


def drop_all(objects: list[Any]) -> None:
    """Drop the only references to some objects."""
    objects.clear()
    gc.collect()


def respond(connection: Connection) -> None:
    for message in connection.receiver:
        (sender,) = message.attachments
        sender.send(b"echo " + message.payload)


def test_dropping_a_received_sender_ends_its_channel(start: Any, connect: Any) -> None:
    def ignore_everything(connection: Connection) -> None:
        for message in connection.receiver:
            del message

    with start(ignore_everything) as server, connect(server) as connection:
        sender, response = oneshot()
        connection.sender.send(Message(b"tide", [sender]))
        with pytest.raises(Aborted):
            response.receive(timeout=STALL_S)


def test_a_request_carries_the_channel_for_its_response(start: Any, connect: Any) -> None:
    with start(respond) as server, connect(server) as connection:
        for number in range(20):
            sender, response = oneshot()
            connection.sender.send(Message(b"%d" % number, [sender]))
            assert response.receive(timeout=STALL_S) == b"echo %d" % number
            with pytest.raises(LocalProtocolError, match="sent away"):
                sender.send(b"again")
        assert not connection.closed
        assert connection.error is None
        assert connection.stats().streams_opened
        assert dict(connection.headers(timeout=STALL_S)) == {}
        assert connection.peer_address[1] == server.port
        assert repr(connection).startswith("<Connection to ")
        assert repr(server).startswith("<Server on UDP port")
    assert connection.closed
    assert server.closed


def test_handles_can_be_anywhere_in_a_message(start: Any, connect: Any) -> None:
    def handler(connection: Connection) -> None:
        request = connection.receiver.receive()
        assert isinstance(request["numbers"], Receiver)
        updates, updates_there = channel(max_messages=4)
        request["answer"].send({"total": sum(request["numbers"]), "updates": updates_there})
        with updates:
            for number in range(50):
                updates.send(number)

    shared = {"serializers": [MsgspecSerializer()]}
    with start(handler, **shared) as server, connect(server, **shared) as connection:
        numbers, there = channel()
        sender, answer = oneshot()
        numbers.send(1)  # while both halves are local
        connection.sender.send({"numbers": there, "answer": sender})
        for number in (2, 3):
            numbers.send(number)
        numbers.finish()
        response = answer.receive()
        assert response["total"] == 6
        assert list(response["updates"]) == list(range(50))


def test_a_local_channel_is_a_queue_between_threads() -> None:
    sender, receiver = channel(max_messages=2)
    received: list[int] = []
    thread = threading.Thread(target=lambda: received.extend(receiver))
    with pytest.raises(Timeout) as caught:
        receiver.receive(timeout=0.01)
    for number in range(2):
        sender.try_send(number)
    with pytest.raises(BackPressured):
        sender.try_send(2)
    with pytest.raises(Timeout) as caught:
        sender.send(2, timeout=0.01)
    assert caught.value.delivery is Delivery.NONE
    thread.start()
    for number in range(2, 100):
        sender.send(number)
    sender.close()
    thread.join(STALL_S)
    assert received == list(range(100))
    assert receiver.closed
    with pytest.raises(ClosedError):
        sender.send(1)
    sender, receiver = channel()
    del sender
    gc.collect()
    with pytest.raises(Aborted):
        receiver.receive(timeout=STALL_S)
    sender, receiver = channel()
    receiver.close()
    with pytest.raises(NoReceivers):
        sender.send(1)


class InterruptedCallError(Exception):
    """The exception that a signal handler raises."""


@pytest.fixture
def interrupting() -> Any:
    def interrupt(*_: object) -> None:
        raise InterruptedCallError

    former = signal.signal(signal.SIGALRM, interrupt)
    yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, former)


def test_a_message_taken_by_an_interrupted_call_is_received_by_the_next(
    start: Any, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def handler(connection: Connection) -> None:
        (updates,) = connection.receiver.receive().attachments
        for number in range(200):
            updates.send(b"%d" % number)
        updates.finish()

    calls = 0

    def wait_and_raise(acquire: Callable[..., bool], **options: Any) -> bool:
        """Act like a signal handler that raises in every other call, just as its result becomes available."""
        nonlocal calls
        is_done = acquire(**options)
        if is_done and threading.current_thread() is threading.main_thread():
            calls += 1
            if calls % 2:
                raise InterruptedCallError
        return is_done

    with start(handler) as server, connect(server) as connection:
        updates, receiver = channel()
        connection.sender.send(Message(b"", [updates]))
        received, interruptions = [], 0
        with monkeypatch.context() as patch:
            replace_waits(patch, wait_and_raise)
            while True:
                try:
                    received.append(receiver.receive())
                except InterruptedCallError:
                    interruptions += 1
                except ClosedError:
                    break
        assert interruptions > 100
        assert received == [b"%d" % number for number in range(200)]


def test_an_interrupted_connect_leaves_no_connection(start: Any, connect: Any, interrupting: Any) -> None:
    with start(respond) as server:
        interruptions = 0
        for turn in range(10):
            connection: Connection | None = None
            try:
                interrupting(0.0005 * (turn + 1))
                connection = connect(server)
                interrupting(0)
            except InterruptedCallError:
                interruptions += 1
            if connection is not None:  # the interruption may come after the call
                connection.close()
        assert interruptions
        wait_until(lambda: not server.connections)


def test_handlers_run_in_a_limited_number_of_threads(start: Any, connect: Any) -> None:
    running: set[int] = set()
    most = 0
    go = threading.Event()

    def handler(connection: Connection) -> None:
        nonlocal most
        running.add(threading.get_ident())
        most = max(most, len(running))
        go.wait(STALL_S)
        for _ in connection.receiver:
            pass
        running.discard(threading.get_ident())

    with start(handler, max_handlers=2) as server:
        connections = [connect(server) for _ in range(4)]
        for connection in connections:
            connection.sender.send(b"tide")
        wait_until(lambda: len(running) == 2)
        time.sleep(0.1)
        assert len(running) == 2
        go.set()
        for connection in connections:
            connection.sender.close(timeout=STALL_S)
            connection.close()
        assert most == 2


@pytest.mark.parametrize("ending", ["close", "abort", "shutdown"])
def test_closing_a_server_wakes_its_waiting_handlers(start: Any, connect: Any, ending: str) -> None:
    ended: list[BaseException] = []
    started = threading.Event()

    def handler(connection: Connection) -> None:
        started.set()
        try:
            connection.receiver.receive()
        except Exception as error:
            ended.append(error)
            raise

    server = start(handler)
    connection = connect(server)
    assert started.wait(STALL_S)
    with pytest.raises(Timeout):
        server.wait(timeout=0.01)
    getattr(server, ending)(*((0.05,) if ending == "shutdown" else ()))
    server.wait(timeout=STALL_S)
    wait_until(lambda: ended)
    assert [type(error) for error in ended] == [ConnectionLost]
    wait_until(lambda: connection.closed)
    with pytest.raises(ConnectionLost):
        connection.sender.send(b"late")
    connection.abort()
    server.close()


def test_a_handler_can_close_its_server(start: Any, connect: Any) -> None:
    closed = threading.Event()

    def handler(connection: Connection) -> None:
        connection.receiver.receive()
        server.close()
        closed.set()

    server = start(handler)
    connection = connect(server)
    connection.sender.send(b"tide")
    assert closed.wait(STALL_S)
    assert server.closed
    connection.abort()


def test_a_failing_handler_is_logged_once_and_ends_only_its_connection(
    start: Any, connect: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def handler(connection: Connection) -> None:
        if connection.receiver.receive() == b"fail":
            raise RuntimeError("no such gauge")
        connection.wait_closed()

    with start(handler) as server:
        good, bad = connect(server), connect(server)
        good.sender.send(b"stay")
        bad.sender.send(b"fail")
        with pytest.raises(ConnectionLost, match="handler failed"):
            bad.wait_closed(timeout=STALL_S)
        assert bad.closed
        assert isinstance(bad.error, ConnectionLost)
        assert not good.closed
        good.close()
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert len(lines) == 1
    assert "no such gauge" in lines[0]


def test_close_delivers_messages_and_raises_if_it_cannot(start: Any, connect: Any) -> None:
    received: list[bytes] = []

    def collect(connection: Connection) -> None:
        received.extend(connection.receiver)

    with start(collect) as server:
        connection = connect(server)
        for number in range(100):
            connection.sender.send(b"%d" % number)
        connection.close()
        connection.close()
        wait_until(lambda: len(received) == 100)

    sent = threading.Event()

    def refuse(connection: Connection) -> None:
        sent.wait(STALL_S)
        connection.receiver.close()
        connection.wait_closed()

    with start(refuse, receive_messages=1) as server:
        connection = connect(server)
        for _ in range(3):
            connection.sender.send(b"tide")
        sent.set()
        with pytest.raises(NoReceivers, match="bytes were not delivered"):
            connection.close()
        assert connection.closed
        connection.close()


def test_invalid_settings_are_rejected(certificates: CertificateFiles) -> None:
    with pytest.raises(ConfigurationError, match="max_handlers=0"):
        aqueduct.serve(respond, max_handlers=0)
    with pytest.raises(ConfigurationError, match="certificate"):
        aqueduct.serve(respond)
    with pytest.raises(ConfigurationError):
        aqueduct.connect("localhost", 0)
    with pytest.raises(ConfigurationError, match="no_such"):
        aqueduct.connect("localhost", 1, no_such=1)
    server = aqueduct.serve(respond, certificate=certificates.certificate, key=certificates.key)
    with pytest.raises(OSError, match="in use"):
        aqueduct.serve(respond, port=server.port, certificate=certificates.certificate, key=certificates.key)
    server.close()


def test_a_dropped_connection_warns_and_is_closed(start: Any, connect: Any) -> None:
    with start(respond) as server:
        connection = connect(server)
        connection.headers()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            del connection
            gc.collect()
        assert [each.category for each in caught] == [ResourceWarning]
        wait_until(lambda: not server.connections)


def test_a_dropped_connection_is_closed_once_it_has_no_channels(start: Any, connect: Any) -> None:
    ended = threading.Event()

    def respond_until_the_end(connection: Connection) -> None:
        respond(connection)
        connection.wait_closed()
        ended.set()

    with start(respond_until_the_end, drain_timeout=STALL_S) as server:
        connections = [connect(server)]
        sender = connections[0].sender
        with pytest.warns(ResourceWarning, match="<Connection to .*, open> was dropped"):
            drop_all(connections)
        there, here = oneshot()
        sender.send(Message(b"tide", [there]))
        assert here.receive(timeout=STALL_S) == b"echo tide"
        del there, here
        sender.finish()
        assert ended.wait(STALL_S)


@pytest.mark.parametrize("backend", ["qh3", "aioquic"])
def test_a_dropped_server_warns_and_stops_serving(backend: str, start: Any, connect: Any) -> None:
    servers = [start(respond, backend=backend)]
    port = servers[0].port
    with connect(servers[0], backend=backend) as connection:
        connection.headers()
        with pytest.warns(ResourceWarning, match=f"<Server on UDP port {port}, 1 connections> was dropped"):
            drop_all(servers)
        connection.wait_closed(timeout=STALL_S)

    def is_free() -> bool:
        try:
            start(respond, port=port).close()
        except OSError:
            return False
        return True

    wait_until(is_free)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_gets_its_own_event_loop() -> None:
    sender, _ = channel()
    sender.send(1)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            there, here = channel()
            there.send(7)
            code = 0 if here.receive(timeout=STALL_S) == 7 else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert isinstance(sender, Sender)
