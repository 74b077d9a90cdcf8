"""The tunnel: TCP connections through one bymux connection."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import random
import resource
import signal
import ssl
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.broken_link import TO_CLIENT, TO_SERVER, WAYS, Break, BrokenLink
from tests.support.case_selection import long_after
from tests.support.waiting import STALL_S, soon, until

from mainstem import bymux, jmux
from mainstem._internal.open_files_limit import raise_open_files_limit
from mainstem.bymux import tunnel
from mainstem.bymux.tunnel import (
    CONTROL_STREAM,
    Address,
    TunnelClient,
    TunnelServer,
    open_connection,
    reset,
)
from mainstem.bymux.tunnel import settings as tunnel_settings
from mainstem.bymux.tunnel_token import NONCE_BYTES, PROOF_BYTES, check_token
from mainstem.errors import ConfigurationError, MainstemError, RemoteProtocolError
from mainstem.mux import aio_stream

from .test_bymux import certificate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

pytestmark = pytest.mark.system

SRC = Path(__file__).resolve().parents[2] / "src"
LOOPBACK = Address("127.0.0.1", 0)
TOKEN = b"0123456789abcdef"


async def serve_target(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Respond with a digest of the input, then the input; ``reset`` disconnects, ``pour`` sends without a request."""
    try:
        first = await reader.readexactly(5)
        if first == b"reset":
            writer.write(b"half of the ans")
            await writer.drain()
            await asyncio.sleep(0.05)
            reset(writer)
            return
        if first == b"pour!":
            while True:
                writer.write(bytes(65536))
                await writer.drain()
        data = first + await reader.read(-1)
        writer.write(hashlib.sha256(data).digest() + data)
        await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


@pytest.fixture
async def target() -> AsyncIterator[Address]:
    async with await asyncio.start_server(serve_target, "127.0.0.1", 0, backlog=2000) as server:
        yield Address("127.0.0.1", server.sockets[0].getsockname()[1])


async def ask(port: int, data: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        await writer.drain()
        writer.write_eof()
        return await reader.read(-1)
    finally:
        writer.close()


def right(data: bytes, answer: bytes) -> bool:
    return answer == hashlib.sha256(data).digest() + data


async def test_forwards_connections_and_their_half_closes(target: Address) -> None:
    async with TunnelServer(target, token=TOKEN) as server:
        await server.start(LOOPBACK)
        async with TunnelClient(Address("127.0.0.1", server.port), token=TOKEN) as client:
            await client.start(LOOPBACK)
            datas = [b"hello", random.Random(1).randbytes(2_000_000)]
            for data in datas:
                assert right(data, await ask(client.port, data))


# Each connection takes four descriptors, because both ends, the clients, and the target run in one process. Plus a few others.
DESCRIPTORS_EACH, DESCRIPTORS_ELSE = 4, 500
MANY = 3000


async def pour_into_nobody(port: int) -> asyncio.StreamWriter:
    """Open a connection whose target sends endlessly and whose client stops reading at once."""
    reader, slow = await asyncio.open_connection("127.0.0.1", port)
    slow.write(b"pour!")
    await soon(reader.readexactly(1))  # the target has started sending
    slow.transport.pause_reading()
    return slow


@pytest.mark.long
async def test_thousands_of_connections_at_once_one_of_them_slow(target: Address) -> None:
    count = min(MANY, (raise_open_files_limit() - DESCRIPTORS_ELSE) // DESCRIPTORS_EACH)
    if count < 500:
        pytest.skip(f"{raise_open_files_limit()} open files allow only {count} connections")
    async with TunnelServer(target) as server:
        await server.start(LOOPBACK)
        async with TunnelClient(Address("127.0.0.1", server.port)) as client:
            await client.start(LOOPBACK)
            slow = await pour_into_nobody(client.port)
            connecting = asyncio.Semaphore(200)
            opened = 0
            all_open = asyncio.Event()

            async def one(index: int) -> None:
                nonlocal opened
                data = b"%05d" % index * 2000
                async with connecting:
                    reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
                try:
                    writer.write(data[:5000])
                    opened += 1
                    if opened == count:
                        all_open.set()
                    await all_open.wait()
                    writer.write(data[5000:])
                    writer.write_eof()
                    assert right(data, await reader.read(-1))
                finally:
                    writer.close()

            await asyncio.gather(*(one(index) for index in range(count)))
            slow.transport.abort()
            await asyncio.sleep(0)


@pytest.mark.long
async def test_connections_that_saturate_a_tunnel_share_it(target: Address) -> None:
    async with TunnelServer(target) as server:
        await server.start(LOOPBACK)
        async with TunnelClient(Address("127.0.0.1", server.port)) as client:
            await client.start(LOOPBACK)
            slow = await pour_into_nobody(client.port)
            received = [0] * 40
            ending = False

            async def take(index: int) -> None:
                reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
                writer.write(b"pour!")
                while not ending:
                    received[index] += len(await reader.read(65536))
                writer.transport.abort()

            taking = [asyncio.ensure_future(take(index)) for index in range(len(received))]
            await until(lambda: min(received) >= 1_000_000, progress=lambda: sum(received))
            ending = True
            await asyncio.gather(*taking)
            slow.transport.abort()
            assert max(received) < 10 * min(received)


def test_a_tunnel_raises_its_file_limit_to_the_maximum() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
    try:
        assert raise_open_files_limit() == hard
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_reset_by_the_target_does_not_look_like_an_end(target: Address) -> None:
    async with TunnelServer(target) as server:
        await server.start(LOOPBACK)
        async with TunnelClient(Address("127.0.0.1", server.port)) as client:
            await client.start(LOOPBACK)
            with pytest.raises(ConnectionError):
                await ask(client.port, b"reset")
            assert right(b"again", await ask(client.port, b"again"))


async def send_all(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes) -> None:
    with contextlib.suppress(ConnectionError):
        writer.write(data)
        writer.write_eof()
        await reader.read(-1)
    writer.close()


async def receive_all(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pause: Callable[[], Awaitable[object]]
) -> bytes | None:
    """Return all bytes up to the end, pausing after the first ones, or ``None`` for a reset."""
    try:
        data = await reader.read(100)
        writer.transport.pause_reading()
        await pause()
        writer.transport.resume_reading()
        return data + await reader.read(-1)
    except ConnectionError:
        return None
    finally:
        writer.close()


async def transfer(
    tmp_path: Path,
    *,
    upload: bool,
    near_unix: bool,
    far_unix: bool,
    pause: Callable[[], Awaitable[object]],
    data: bytes,
    stall_timeout: float,
) -> bytes | None:
    """Send data through a tunnel to a reader that pauses; return the received bytes, or ``None`` for a reset."""
    received: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()

    async def send(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await send_all(reader, writer, data)

    async def receive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.set_result(await receive_all(reader, writer, pause))

    target_end, client_end = (receive, send) if upload else (send, receive)
    near = Address(None, None, str(tmp_path / "near")) if near_unix else LOOPBACK
    far = Address(None, None, str(tmp_path / "far")) if far_unix else LOOPBACK
    limits: dict[str, Any] = {"window": 32 * 1024, "stall_timeout": stall_timeout}
    if far_unix:
        target_server = await asyncio.start_unix_server(target_end, far.path)
    else:
        target_server = await asyncio.start_server(target_end, "127.0.0.1", 0)
        far = Address("127.0.0.1", target_server.sockets[0].getsockname()[1])
    async with target_server, TunnelServer(far, **limits) as server:
        await server.start(LOOPBACK)
        async with TunnelClient(Address("127.0.0.1", server.port), **limits) as client:
            await client.start(near)
            to = near if near_unix else Address("127.0.0.1", client.port)
            using = asyncio.ensure_future(client_end(*await open_connection(to)))
            result = await soon(received)
            await soon(using)
            return result


# Whether data goes up, and whether each end is a Unix socket. `make test` runs the first ones.
ENDS = sorted(product([False, True], repeat=3), key=lambda each: len(set(each)))


@pytest.mark.parametrize(("upload", "near_unix", "far_unix"), long_after(2, ENDS))
async def test_a_transfer_to_a_slow_reader_is_complete(
    tmp_path: Path, upload: bool, near_unix: bool, far_unix: bool
) -> None:
    for size in (1, 20_000, 120_000, 8_000_000):
        data = random.Random(size).randbytes(size)
        for path in tmp_path.iterdir():
            path.unlink()
        received = await transfer(
            tmp_path,
            upload=upload,
            near_unix=near_unix,
            far_unix=far_unix,
            pause=lambda: asyncio.sleep(0.1),
            data=data,
            stall_timeout=STALL_S,
        )
        assert received is not None
        assert hashlib.sha256(received).digest() == hashlib.sha256(data).digest()


@pytest.mark.parametrize(("upload", "near_unix", "far_unix"), long_after(2, ENDS))
async def test_a_transfer_that_stalls_for_too_long_is_reset(
    tmp_path: Path,
    upload: bool,
    near_unix: bool,
    far_unix: bool,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(aio_stream, "WRITE_LIMIT", 1 << 30)  # the sending end has read everything and waits to close
    data = random.Random(1).randbytes(20_000_000)
    received = await transfer(
        tmp_path,
        upload=upload,
        near_unix=near_unix,
        far_unix=far_unix,
        pause=lambda: until(lambda: "was cut off" in caplog.text),
        data=data,
        stall_timeout=0.2,
    )
    if far_unix if upload else near_unix:
        assert received is not None  # the peer of a Unix socket never sees a reset
        assert len(received) < len(data)
    else:
        assert received is None


def test_a_reader_may_pause_for_minutes_by_default() -> None:
    assert bymux.Settings().stall_timeout >= 600
    assert jmux.Settings().stall_timeout >= 600
    assert tunnel_settings(serving=True).stall_timeout >= 3600


@pytest.mark.parametrize(("token", "has_tls"), [(b"", False), (TOKEN, False), (b"", True)])
async def test_a_tunnel_beyond_loopback_needs_a_token_and_tls(target: Address, token: bytes, has_tls: bool) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if has_tls else None
    async with TunnelServer(target, token=token) as server:
        for listen in (Address(None, 0), Address("0.0.0.0", 0)):
            with pytest.raises(ConfigurationError, match="`insecure`"):
                await server.start(listen, ssl=context)
        await server.start(Address(None, 0), ssl=context, insecure=True)


async def test_an_unreachable_target_resets_the_connection() -> None:
    async with TunnelServer(Address("127.0.0.1", 1)) as server:
        await server.start(LOOPBACK)
        async with TunnelClient(Address("127.0.0.1", server.port)) as client:
            await client.start(LOOPBACK)
            with pytest.raises(ConnectionError):
                await ask(client.port, b"hello")


async def test_a_client_without_the_token_gets_no_stream(target: Address) -> None:
    async with TunnelServer(target, token=TOKEN) as server:
        await server.start(LOOPBACK)
        client = TunnelClient(Address("127.0.0.1", server.port), token=TOKEN[::-1])
        with pytest.raises(MainstemError):
            await client.start(LOOPBACK)
        await client.close()


async def test_refused_tunnels_do_not_fill_the_log(target: Address, caplog: pytest.LogCaptureFixture) -> None:
    async with TunnelServer(target, token=TOKEN) as server:
        await server.start(LOOPBACK)
        for _ in range(5):
            client = TunnelClient(Address("127.0.0.1", server.port), token=TOKEN[::-1])
            with pytest.raises(MainstemError):
                await client.start(LOOPBACK)
            await client.close()
    assert caplog.text.count("a tunnel was refused") == 1


async def test_a_server_without_the_token_is_rejected(target: Address) -> None:
    async with TunnelServer(target, token=b"") as server:
        await server.start(LOOPBACK)
        client = TunnelClient(Address("127.0.0.1", server.port), token=TOKEN)
        with pytest.raises((RemoteProtocolError, MainstemError)):
            await client.start(LOOPBACK)
        await client.close()


async def test_a_client_without_the_token_gets_no_proof_from_the_server(target: Address) -> None:
    """Until the client has sent its proof, a server sends nothing that depends on its token."""
    sent = []
    for token in (TOKEN, TOKEN[::-1]):
        async with TunnelServer(target, token=token, entropy=random.Random(1)) as server:
            await server.start(LOOPBACK)
            stranger = await bymux.aio.connect("127.0.0.1", server.port, settings=tunnel_settings(serving=False))
            control = stranger.stream(CONTROL_STREAM)
            control.write(bytes(NONCE_BYTES + PROOF_BYTES))
            received = b""
            with contextlib.suppress(MainstemError, asyncio.IncompleteReadError):
                while data := await soon(control.read(1024)):
                    received += data
            sent.append(received)
            await stranger.close()
    assert len(sent[0]) <= NONCE_BYTES
    assert sent[0] == sent[1]


async def test_a_proof_cannot_be_reflected(target: Address) -> None:
    """A server that echoes a client's proof has not proved that it has the token."""
    accepted: list[Any] = []

    async def mirror(connection: Any) -> None:
        control = connection.stream(CONTROL_STREAM)
        control.write(await control.readexactly(NONCE_BYTES))
        accepted.append(await control.readexactly(PROOF_BYTES))
        control.write(accepted[0])
        await asyncio.sleep(STALL_S)

    async def handler(_: Any) -> None: ...

    server_settings = tunnel_settings(serving=True)
    async with bymux.aio.serve(handler, "127.0.0.1", 0, settings=server_settings, on_connection=mirror) as listener:
        client = TunnelClient(Address("127.0.0.1", listener.port), token=TOKEN)
        with pytest.raises(RemoteProtocolError, match="token"):
            await soon(client.start(LOOPBACK))
        assert accepted
        await client.close()


@pytest.mark.parametrize("token", [b"short", b"x" * 15, b"x" * 4097])
def test_a_token_of_the_wrong_length_is_rejected(token: bytes) -> None:
    for make in (TunnelServer, TunnelClient):
        with pytest.raises(ConfigurationError, match="16 to 4096 bytes"):
            make(Address("127.0.0.1", 1), token=token)


async def test_a_client_needs_tls_for_a_remote_server() -> None:
    client = TunnelClient(Address("gateway.invalid", 1), token=TOKEN)
    with pytest.raises(ConfigurationError, match="needs TLS"):
        await client.start(LOOPBACK)
    with pytest.raises(MainstemError, match=r"cannot connect to gateway\.invalid:1: "):
        await client.start(LOOPBACK, insecure=True)
    await client.close()


@pytest.mark.parametrize("way", ["file", "no file", "variable"])
def test_an_empty_token_does_not_open_a_protected_tunnel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    (tmp_path / "empty").write_text("\n")
    words = ["tunnel", "serve", "--listen", "127.0.0.1:0", "--target", "127.0.0.1:1"]
    if way == "file":
        words += ["--token-file", str(tmp_path / "empty")]
    elif way == "no file":
        words += ["--token-file", ""]  # what a shell passes for an unset variable
    else:
        monkeypatch.setenv("MAINSTEM_TUNNEL_TOKEN", "")
    command = [sys.executable, "-m", "mainstem", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=STALL_S)
    assert done.returncode != 0
    assert ("token file" if way == "no file" else "16 to 4096 bytes") in done.stderr


def test_a_token_file_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    command = [sys.executable, "-m", "mainstem", "tunnel", "token", str(file)]
    subprocess.run(command, check=True, timeout=STALL_S)
    assert file.stat().st_mode & 0o777 == 0o600
    assert len(check_token(file.read_bytes().strip())) >= 32
    assert subprocess.run(command, capture_output=True, timeout=STALL_S).returncode != 0  # it never overwrites


async def test_a_target_sees_a_reset_if_the_connection_to_it_is_given_up() -> None:
    seen: list[bytes | None] = []
    accepted = 0

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal accepted
        accepted += 1
        try:
            seen.append(await reader.read(-1))
        except ConnectionError:
            seen.append(None)
        finally:
            writer.close()

    async with await asyncio.start_server(take, "127.0.0.1", 0) as server:
        to = Address("127.0.0.1", server.sockets[0].getsockname()[1])
        for turns in range(12):
            connecting = asyncio.ensure_future(open_connection(to))
            for _ in range(turns):
                await asyncio.sleep(0)
            connecting.cancel()
            try:
                _, writer = await connecting
            except asyncio.CancelledError:
                continue
            reset(writer)
        await until(lambda: accepted > 0 and len(seen) == accepted)
    assert set(seen) == {None}


@pytest.mark.parametrize("count", long_after(1, [3, 30]))
async def test_a_tunnel_that_breaks_anywhere_cuts_no_transfer_short(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tunnel, "PING_INTERVAL_S", 0.2)
    monkeypatch.setattr(tunnel, "PING_TIMEOUT_S", 0.2)
    for number in range(count):
        rng = random.Random(f"tunnel {number}")
        after = rng.randrange(rng.choice((40, 3000, 60_000)))
        broken = Break(WAYS[number % len(WAYS)], rng.choice((TO_SERVER, TO_CLIENT)), after)
        request = rng.randbytes(rng.randrange(1, 60_000))
        received, answer = await soon(over_broken_tunnel(broken, request))
        example = f"{broken}, a request of {len(request)} bytes"
        assert set(received) <= {None, request}, example
        assert answer is None or right(request, answer), example


async def over_broken_tunnel(broken: Break, request: bytes) -> tuple[list[bytes | None], bytes | None]:
    """Return what targets received in order, and the response that the client received in order; None is a reset."""
    received: list[bytes | None] = []
    accepted = 0

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal accepted
        accepted += 1
        data: bytes | None = None
        try:
            data = await reader.read(-1)
            writer.write(hashlib.sha256(data).digest() + data)
            await writer.drain()
        except ConnectionError:
            pass
        finally:
            received.append(data)
            writer.close()

    answer: bytes | None = None
    async with await asyncio.start_server(take, "127.0.0.1", 0) as far:
        to = Address("127.0.0.1", far.sockets[0].getsockname()[1])
        async with TunnelServer(to) as server:
            await server.start(LOOPBACK)
            async with BrokenLink(("127.0.0.1", server.port), ("127.0.0.1", 0), broken) as link:
                with contextlib.suppress(ConnectionError, MainstemError):
                    async with TunnelClient(Address("127.0.0.1", link.port)) as client:
                        await client.start(LOOPBACK)
                        answer = await ask(client.port, request)
        await until(lambda: len(received) == accepted)
    return received, answer


async def test_a_broken_tunnel_reconnects(target: Address) -> None:
    async with TunnelServer(target) as server:
        await server.start(LOOPBACK)
        async with TunnelClient(Address("127.0.0.1", server.port)) as client:
            await client.start(LOOPBACK)
            assert right(b"before", await ask(client.port, b"before"))
            reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
            writer.write(b"pour!")
            await soon(reader.readexactly(1))
            assert client._connection is not None
            client._connection.abort()
            with pytest.raises(ConnectionError):
                await soon(reader.read(-1))
            writer.close()
            assert right(b"after", await ask(client.port, b"after"))
            assert client.reconnects == 1


async def test_over_tls_and_unix_sockets(target: Address, tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    ours = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ours.load_cert_chain(cert, key)
    trust = ssl.create_default_context(cafile=str(cert))
    async with TunnelServer(target) as server:
        await server.start(LOOPBACK, ssl=ours)
        to = Address("127.0.0.1", server.port)
        async with TunnelClient(to, ssl=trust, server_hostname="localhost") as client:
            await client.start(LOOPBACK)
            assert right(b"tls" * 1000, await ask(client.port, b"tls" * 1000))
    path = Address(None, None, str(tmp_path / "s"))
    async with TunnelServer(target) as server:
        await server.start(path)
        async with TunnelClient(path) as client:
            await client.start(LOOPBACK)
            assert right(b"unix" * 1000, await ask(client.port, b"unix" * 1000))


def test_addresses_are_parsed() -> None:
    assert Address.parse("localhost:80") == Address("localhost", 80)
    assert Address.parse(":80") == Address(None, 80)
    assert Address.parse("[::1]:80") == Address("::1", 80)
    assert Address.parse("unix:/tmp/x") == Address(None, None, "/tmp/x")
    for wrong in ("", "host", "host:", "host:x", "host:70000"):
        with pytest.raises(ConfigurationError, match="neither"):
            Address.parse(wrong)


async def test_a_signal_stops_the_command_while_it_connects(tmp_path: Path) -> None:
    pytest.importorskip("typer")
    asked = asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await reader.read(-1)
        writer.close()

    async with await asyncio.start_server(say_nothing, "127.0.0.1", 0) as silent:
        to = f"127.0.0.1:{silent.sockets[0].getsockname()[1]}"
        words = ["tunnel", "connect", "--listen", f"unix:{tmp_path / 'front'}", "--server", to]
        command = [sys.executable, "-c", "from mainstem.cli import main; main()", *words]
        with subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(SRC)}) as process:
            await soon(asked.wait())
            process.send_signal(signal.SIGTERM)
            assert await soon(asyncio.to_thread(process.wait, STALL_S)) == -signal.SIGTERM


async def test_the_tunnel_command_forwards_bytes(target: Address, tmp_path: Path) -> None:
    pytest.importorskip("typer")
    (tmp_path / "token").write_bytes(TOKEN + b"\n")
    environment = os.environ | {"PYTHONPATH": str(SRC)}
    command = [sys.executable, "-c", "from mainstem.cli import main; main()", "tunnel"]
    sock = tmp_path / "sock"
    far = [
        *command,
        "serve",
        "--listen",
        f"unix:{sock}",
        "--target",
        str(target),
        "--token-file",
        str(tmp_path / "token"),
    ]
    front = tmp_path / "front"
    near = [
        *command,
        "connect",
        "--listen",
        f"unix:{front}",
        "--server",
        f"unix:{sock}",
        "--token-file",
        str(tmp_path / "token"),
    ]
    processes = []
    try:
        for words in (far, near):
            process = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            processes.append(process)
            assert process.stdout is not None
            assert b"tunnel" in await soon(asyncio.to_thread(process.stdout.readline))
        reader, writer = await asyncio.open_unix_connection(str(front))
        writer.write(b"through two processes")
        writer.write_eof()
        assert right(b"through two processes", await reader.read(-1))
        writer.close()
    finally:
        for process in processes:
            process.send_signal(signal.SIGTERM)
        for process in processes:
            with process:
                assert process.wait(STALL_S) == 0
