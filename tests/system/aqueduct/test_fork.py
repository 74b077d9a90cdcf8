"""A child created by ``os.fork`` neither uses nor disturbs the Aqueduct connections and servers of its parent."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.waiting import STALL_S, until

from mainstem.aqueduct import SessionCache, aio

if TYPE_CHECKING:
    from pathlib import Path

    from mainstem.aqueduct.certificates import CertificateFiles

pytestmark = pytest.mark.system

BEGIN = """
import asyncio, gc, os, sys
from mainstem import aqueduct
from mainstem.aqueduct import aio
from mainstem.errors import ClosedError

served = dict(certificate={certificate!r}, key={key!r}, backend={backend!r})
trusts = dict(ca={ca!r}, backend={backend!r})

def refused(call, *arguments, **options):
    try:
        result = call(*arguments, **options)
    except ClosedError as error:
        assert "parent of this process" in str(error), error
    else:
        raise AssertionError(f"{{call}} returned {{result!r}}")
"""

BLOCKING = """
got = []

def handler(connection):
    for message in connection.receiver:
        got.append(message)

server = aqueduct.serve(handler, **served)
connection = aqueduct.connect("localhost", server.port, **trusts)
connection.sender.send_acknowledged(b"before")
local_sender, local_receiver = aqueduct.channel()

def child():
    global server, connection, local_sender, local_receiver
{child}

pid = os.fork()
if not pid:
    child()
    sys.exit(7)  # an ordinary end, with finalizers
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
connection.sender.send_acknowledged(b"after")
port = server.port
with aqueduct.connect("localhost", port, **trusts) as another:
    another.sender.send_acknowledged(b"another")
connection.close()
server.close()
aqueduct.serve(handler, port=port, **served).close()
print(sorted(got))  # each connection has a handler's thread of its own
"""

CHILDREN = {
    "ends": "    pass",
    "drops": "    server = connection = local_sender = local_receiver = None\n    gc.collect()",
    "closes": """
    with server, connection, local_sender, local_receiver, connection.sender:
        pass
    for each in (local_sender, local_receiver, connection.sender, connection, server):
        each.close()
        each.abort()
        assert each.closed
    server.shutdown()
    """,
    "uses": """
    refused(connection.sender.send, b"child")
    refused(connection.sender.try_send, b"child")
    refused(connection.sender.send_acknowledged, b"child")
    refused(connection.sender.finish)
    refused(connection.headers)
    refused(connection.wait_closed)
    refused(connection.wait_channels_closed)
    refused(local_sender.send, b"child")
    refused(local_receiver.receive)
    refused(local_receiver.try_receive)
    refused(list, local_receiver)
    refused(server.wait)
    assert connection.closed and server.closed and connection.sender.closed
    assert isinstance(connection.error, ClosedError)
    assert connection._inner._protocol._udp.fileno() == -1 and server._inner._udp.fileno() == -1
    connection.stats(), server.stats(), repr(connection), repr(server), server.port
    """,
    "connects": """
    with aqueduct.connect("localhost", server.port, **trusts) as own:
        own.sender.send_acknowledged(b"own")
    """,
}


def run(code: str, certificates: CertificateFiles, backend: str) -> str:
    begin = BEGIN.format(
        certificate=str(certificates.certificate), key=str(certificates.key), ca=str(certificates.ca), backend=backend
    )
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-W", "always::ResourceWarning", "-c", begin + code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=STALL_S)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("backend", ["qh3", "aioquic"])
@pytest.mark.parametrize("name", CHILDREN)
def test_a_forked_child_leaves_connections_to_its_parent(
    name: str, backend: str, certificates: CertificateFiles
) -> None:
    got = sorted([b"before", *([b"own"] if name == "connects" else []), b"after", b"another"])
    assert run(BLOCKING.replace("{child}", CHILDREN[name]), certificates, backend) == f"{got}\n"


HANDLER = """
def handler(connection):
    for message in connection.receiver:
        pid = os.fork()
        if not pid:
            refused(connection.receiver.receive)
            refused(list, connection.receiver)
            refused(message.attachments[0].send, b"from the child")
            connection.close()
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
        message.attachments[0].send(message.payload)

with aqueduct.serve(handler, **served) as server, aqueduct.connect("localhost", server.port, **trusts) as connection:
    sender, receiver = aqueduct.oneshot()
    connection.sender.send(aqueduct.Message(b"tide", [sender]))
    print(receiver.receive())
"""


def test_a_handler_can_fork(certificates: CertificateFiles) -> None:
    assert run(HANDLER, certificates, "qh3") == "b'tide'\n"


ASYNC = """
async def echo(connection):
    async for message in connection.receiver:
        await message.attachments[0].send(message.payload)

async def ask(connection, question):
    sender, receiver = aio.oneshot()
    await connection.sender.send(aqueduct.Message(question, [sender]))
    return await receiver

def child(server, connection, receiver):
    def runs(coroutine_function, *arguments):
        async def call():
            return await coroutine_function(*arguments)
        return lambda: own.run_until_complete(call())

    own = asyncio.new_event_loop()

    async def iterate():
        return [message async for message in receiver]

    refused(runs(connection.sender.send, b"child"))
    refused(connection.sender.try_send, b"child")
    refused(runs(connection.sender.send_acknowledged, b"child"))
    refused(connection.sender.finish)
    refused(runs(connection.wait_closed))
    refused(receiver.try_receive)
    refused(runs(receiver.receive))
    refused(runs(iterate))
    refused(runs(server.wait))
    assert connection.closed and server.closed and receiver.closed and connection.sender.closed
    for each in (connection.sender, receiver, connection, server):
        runs(each.close)()
        each.abort()
    runs(server.shutdown)()
    own.close()
    assert connection._protocol._udp.fileno() == -1 and server._udp.fileno() == -1

async def main():
    async with aio.serve(echo, **served) as server:
        async with aio.connect("localhost", server.port, **trusts) as connection:
            assert await ask(connection, b"before") == b"before"
            sender, receiver = aio.channel()
            await connection.sender.send(aqueduct.Message(b"never answered", [sender]))
            pid = os.fork()
            if not pid:
                code = 1
                try:
                    child(server, connection, receiver)
                    del receiver
                    gc.collect()
                    code = 7
                finally:
                    sys.stderr.flush()
                    os._exit(code)
            _, status = await asyncio.to_thread(os.waitpid, pid, 0)
            assert os.waitstatus_to_exitcode(status) == 7
            print(await ask(connection, b"after"))

asyncio.run(main())
"""


@pytest.mark.parametrize("backend", ["qh3", "aioquic"])
def test_a_child_of_an_asyncio_program_leaves_connections_to_its_parent(
    backend: str, certificates: CertificateFiles
) -> None:
    assert run(ASYNC, certificates, backend) == "b'after'\n"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("dropped", ["sender", "receiver"])
def test_a_channel_dropped_in_a_child_does_not_wake_the_loop_of_its_parent(dropped: str) -> None:
    async def fork_while_a_task_waits() -> int:
        sender, receiver = aio.channel(max_messages=1)
        halves: dict[str, Any] = {"sender": sender, "receiver": receiver}
        del sender, receiver
        if dropped == "receiver":
            halves["sender"].try_send(b"first")
            waiting = asyncio.create_task(halves["sender"].send(b"second"))
        else:
            waiting = asyncio.create_task(halves["receiver"].receive())
        await until(lambda: halves[dropped]._pipe._waiters)
        loop = asyncio.get_running_loop()
        child = os.fork()
        if child == 0:
            loop.call_soon_threadsafe = lambda *_: os._exit(1)  # type: ignore[method-assign]
            try:
                del halves[dropped]
            finally:
                os._exit(7)
        waiting.cancel()
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    assert asyncio.run(fork_while_a_task_waits()) == 7


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("in_memory", [False, True])
def test_a_forked_child_never_takes_its_parents_tickets(tmp_path: Path, in_memory: bool) -> None:
    cache = SessionCache(None if in_memory else tmp_path / "sessions.db")
    keep = cache.token_keeper("gauges.example:4433")
    keep(b"first")
    keep(b"second")
    # As if another thread of the parent were using the cache.
    with cache._store._lock:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                taken = [cache.take_token("gauges.example:4433") for _ in range(2)]
                code = 0 if taken == ([b"", b""] if in_memory else [b"second", b"first"]) else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert cache.take_token("gauges.example:4433") == (b"second" if in_memory else b"")
