"""A child created by ``os.fork`` does not disturb its parent's clients and drivers, whatever it does with its copies of them."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.support.ports import free_port
from tests.support.waiting import STALL_S

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.system

PARENT = """
import os, sys, time
import mainstem

driver = mainstem.MediaDriver.launch({directory!r}, threads={threads}, dir_delete_on_shutdown=True)
aeron = mainstem.Aeron.connect(driver.directory)
publication = aeron.add_publication("aeron:ipc", 1)
subscription = aeron.add_subscription("aeron:ipc", 1)
pending = aeron.async_add_publication("aeron:ipc", 2)


def child():
{child}


if os.fork() == 0:
    child()
    sys.exit(7)  # an ordinary end, with finalisers
assert os.waitstatus_to_exitcode(os.wait()[1]) == 7
publication.send(b"still here", timeout=240)
print(next(subscription.messages(timeout=240)).decode())
aeron.add_counter(1001, "the driver still knows this client").close()
aeron.close()
driver.close()
"""

CHILDREN = {
    "ends": "    pass",
    "drops": "    global aeron, publication, subscription, driver\n    del aeron, publication, subscription, driver",
    "closes": "    with driver, aeron, publication, subscription:\n        pass",
    "uses": """
    for use in (
        lambda: aeron.add_publication("aeron:ipc", 3),
        lambda: publication.send(b"from the child"),
        lambda: list(subscription.messages()),
        lambda: pending.wait(),
    ):
        try:
            use()
        except mainstem.ClosedError as error:
            assert "after the fork" in str(error), error
        else:
            raise SystemExit(1)
    assert publication.closed and subscription.closed and aeron.closed
    """,
    "connects": """
    with mainstem.Aeron.connect({directory!r}) as own:
        own.add_publication("aeron:ipc", 5).close()
    """,
}


@pytest.mark.parametrize(
    ("threads", "name"), [*((False, name) for name in CHILDREN), (True, "drops"), (True, "closes"), (True, "connects")]
)
def test_a_forked_child_closes_nothing_of_its_parent(threads: bool, name: str, tmp_path: Path) -> None:
    directory = str(tmp_path / "driver")
    child = CHILDREN[name].replace("{directory!r}", repr(directory))
    code = PARENT.replace("{child}", child).format(directory=directory, threads=threads)
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=STALL_S)
    assert (done.returncode, done.stdout, done.stderr) == (0, "still here\n", "")
    assert not os.path.exists(directory)


DUOLOGUE = """
import asyncio, os, sys
import mainstem
from mainstem import duologue
from mainstem.duologue import aio
from mainstem.errors import ClosedError

def refused(call, *arguments):
    try:
        result = call(*arguments)
    except ClosedError as error:
        assert "parent of this process" in str(error), error
    else:
        raise AssertionError(f"{{call}} returned {{result!r}}")

def in_child(use):
    pid = os.fork()
    if not pid:
        code = 1
        try:
            use()
            code = 7
        finally:
            sys.stderr.flush()
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7

def use(end):
    for call in (lambda: end.send("x"), end.receive, lambda: end.try_send("x"), end.poll, lambda: list(end)):
        refused(call)
    assert end.closed
    end.close()
    end.abort()

def handler(end):
    for message in end:
        in_child(lambda: use(end))
        end.send(message)

def use_server():
    refused(server.wait)
    assert server.closed
    server.shutdown()
    server.close()
    server.abort()

def use_aio(end):
    loop = asyncio.new_event_loop()
    async def iterate():
        return [message async for message in end]
    for coroutine_function in (lambda: end.send("x"), end.receive, iterate):
        refused(lambda: loop.run_until_complete(coroutine_function()))
    assert end.closed
    loop.run_until_complete(end.close())
    end.abort()
    loop.close()

async def ask():
    async with aio.connect("127.0.0.1", {port}, directory=driver.directory) as end:
        in_child(lambda: use_aio(end))
        await end.send("asyncio")
        return await end.receive()

with mainstem.MediaDriver.launch({directory!r}, dir_delete_on_shutdown=True) as driver:
    with duologue.serve(handler, "127.0.0.1", {port}, base_port={port} + 2, directory=driver.directory) as server:
        with duologue.connect("127.0.0.1", {port}, directory=driver.directory) as client:
            in_child(lambda: use(client))
            in_child(use_server)
            client.send("blocking")
            print(client.receive(), asyncio.run(ask()))
"""


def test_a_forked_child_leaves_duologues_to_its_parent(tmp_path: Path) -> None:
    code = DUOLOGUE.format(directory=str(tmp_path / "driver"), port=free_port(20))
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=STALL_S)
    assert (done.returncode, done.stdout, done.stderr) == (0, "b'blocking' b'asyncio'\n", "")


MUX = """
import gc, os, socket, sys
from mainstem import bymux, jmux
from mainstem.errors import ClosedError

def refused(call, *arguments):
    try:
        result = call(*arguments)
    except ClosedError as error:
        assert "parent of this process" in str(error), error
    else:
        raise AssertionError(f"{call} returned {result!r}")

class Wakeup:
    def __init__(self, real):
        self.real = real

    def send(self, data):
        raise AssertionError("the parent's loop was woken")

def in_child(use, *objects):
    pid = os.fork()
    if not pid:
        for each in objects:
            loop = each._thread._loop
            loop._csock = Wakeup(loop._csock)
        use()
        sys.stderr.flush()
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7

def bymux_handler(stream):
    for data in stream:
        in_child(lambda: (refused(stream.read), refused(stream.write, b"child"), stream.close(), stream.abort()), stream)
        stream.write(data)

def jmux_handler(session):
    data = session.read(-1)
    in_child(lambda: (refused(session.read), refused(session.write, b"child"), session.close(), session.abort()), session)
    session.write(data)

if {family!r} == "bymux":
    server = bymux.serve(bymux_handler, "127.0.0.1", 0)
    peer = bymux.connect("127.0.0.1", server.port)
    stream = peer.open_stream()
    calls = [
        peer.ping, peer.open_stream, peer.accept_stream, lambda: list(peer.streams()), peer.wait_closed,
        lambda: peer.allow_streams(1), lambda: peer.stream(stream.id), stream.finish, stream.stop_read, stream.ping,
    ]
else:
    server = jmux.serve(jmux_handler, "127.0.0.1", 0)
    peer = jmux.connect("127.0.0.1", server.port)
    stream = peer.open_session()
    calls = [lambda: peer.request(b"child"), peer.open_session, stream.finish, stream.acknowledge]

def exchange(data):
    if {family!r} == "bymux":
        stream.write(data)
        return stream.readexactly(len(data))
    return peer.request(data)

calls += [
    server.wait, stream.read, lambda: stream.readexactly(1), lambda: stream.write(b"child"), stream.flush, lambda: list(stream),
]

def uses():
    for call in calls:
        refused(call)
    for each in (stream, peer, server):
        assert each.closed
        each.stats(), repr(each), each.error
    stream.id, stream.queued, stream.at_eof(), peer.peer_address, peer.peer_certificate, server.port, server.address

def closes():
    for each in (stream, peer, server):
        with each:
            pass
        each.close()
        each.abort()
    server.shutdown()

def drops():
    global server, peer, stream, calls
    del server, peer, stream, calls
    gc.collect()

def connects():
    {family}.connect("127.0.0.1", server.port).close()

assert exchange(b"before") == b"before"
in_child({name}, server, peer, stream)
pid = os.fork()
if not pid:
    sys.exit(7)  # an ordinary end, with finalizers
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
print(exchange(b"after"))
stream.abort()
peer.close()
server.close()
"""


@pytest.mark.parametrize("family", ["bymux", "jmux"])
@pytest.mark.parametrize("name", ["uses", "closes", "drops", "connects"])
def test_a_forked_child_leaves_multiplexers_to_its_parent(family: str, name: str) -> None:
    code = MUX.replace("{family!r}", repr(family)).replace("{family}", family).replace("{name}", name)
    warnings = ["-W", "ignore::DeprecationWarning", "-W", "always::ResourceWarning"]
    command = [sys.executable, *warnings, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=STALL_S)
    assert (done.returncode, done.stdout, done.stderr) == (0, "b'after'\n", "")
