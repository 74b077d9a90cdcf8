"""Programs in an interpreter without Linux's features: ``python -m tests.support.without_linux PROGRAM [ARGUMENT ...]``.

``leave_linux`` removes from Python's own modules what macOS does not have, hides the kernel's file systems, and sets another system
in ``sys.platform``. The compiled modules remain those of Linux; tools/macos.py compiles them for macOS.
"""

from __future__ import annotations

import asyncio
import builtins
import fcntl
import importlib
import mmap
import os
import pkgutil
import resource
import select
import selectors
import signal
import socket
import sys
import sysconfig
import time
import urllib.request  # noqa: F401 - as sysconfig below
from typing import Any

KERNEL_FILES = ("/proc", "/sys", "/dev/shm")
# Prefixes of the names that only Linux has; after a minus come the names among them that macOS has too.
ONLY_LINUX = {
    os: "eventfd memfd_ pidfd_ posix_fallocate posix_fadvise fdatasync sched_getaffinity sched_setaffinity sched_setscheduler "
    "sched_getscheduler sched_setparam sched_getparam sched_rr_ sched_param SCHED_BATCH SCHED_IDLE copy_file_range splice "
    "getrandom setns unshare getxattr setxattr listxattr removexattr O_PATH O_DIRECT O_NOATIME pipe2 prlimit getres",
    mmap: "MAP_POPULATE MAP_STACK MAP_DENYWRITE MAP_EXECUTABLE MADV_ -MADV_NORMAL -MADV_RANDOM -MADV_SEQUENTIAL -MADV_WILLNEED "
    "-MADV_DONTNEED -MADV_FREE",
    select: "epoll EPOLL",
    socket: "SOCK_CLOEXEC SOCK_NONBLOCK AF_PACKET AF_NETLINK AF_ALG AF_VSOCK AF_TIPC AF_CAN SO_BINDTODEVICE SO_DOMAIN SO_PROTOCOL "
    "SO_PEERCRED SO_PEERSEC SO_PASS SO_MARK SO_PRIORITY SO_INCOMING_CPU MSG_CMSG_CLOEXEC MSG_CONFIRM MSG_ERRQUEUE MSG_MORE "
    "MSG_FASTOPEN TCP_ -TCP_NODELAY -TCP_MAXSEG -TCP_KEEP -TCP_FASTOPEN -TCP_NOTSENT_LOWAT IP_BIND_ADDRESS_NO_PORT IP_TRANSPARENT",
    signal: "sigtimedwait sigwaitinfo SIGPWR SIGPOLL SIGRT SIGSTKFLT SIGCLD pidfd_",
    resource: "prlimit RLIMIT_MSGQUEUE RLIMIT_NICE RLIMIT_RT RLIMIT_SIGPENDING RUSAGE_THREAD",
    fcntl: "F_ADD_SEALS F_GET_SEALS F_SEAL F_SETPIPE_SZ F_GETPIPE_SZ F_OFD F_SETLEASE F_GETLEASE F_NOTIFY DN_",
    time: "CLOCK_BOOTTIME CLOCK_TAI pthread_getcpuclockid",
}  # fmt: skip


def leave_linux() -> None:
    """Remove what macOS does not have; call this before any import of Mainstem."""
    sysconfig.get_config_vars()  # cached now, because under another system's name it would load another module of CPython's
    selectors.DefaultSelector = selectors.PollSelector
    for module, words in ONLY_LINUX.items():
        there = tuple(word[1:] for word in words.split() if word.startswith("-"))
        only = tuple(word for word in words.split() if not word.startswith("-"))
        for name in [name for name in vars(module) if name.startswith(only) and not (there and name.startswith(there))]:
            delattr(module, name)
    for where, name in ((builtins, "open"), (os, "open"), (os, "stat"), (os, "listdir"), (os, "scandir")):
        setattr(where, name, hidden(getattr(where, name)))
    # Python's own functions return False for a path in a directory that may not be entered; those of Path raise.
    is_directory, exists = os.path.isdir, os.path.exists
    os.path.isdir = lambda path: not is_hidden(path) and is_directory(path)
    os.path.exists = lambda path: not is_hidden(path) and exists(path)
    if hasattr(os, "process_cpu_count"):  # since Python 3.13; defined by what the system has
        os.process_cpu_count = os.cpu_count
    sys.platform = "darwin"


def is_hidden(path: object) -> bool:
    return isinstance(path, (str, os.PathLike)) and os.fspath(path).startswith(KERNEL_FILES)


def hidden(function: Any) -> Any:
    """Wrap a function so that the kernel's file systems do not exist for it."""

    def replacement(path: Any = ".", *arguments: Any, **options: Any) -> Any:
        if is_hidden(path):
            raise FileNotFoundError(2, "No such file or directory", path)
        return function(path, *arguments, **options)

    return replacement


def imports() -> None:
    """Import every module except those that need Spark."""
    import mainstem

    packages, names = [(mainstem.__path__, "mainstem.")], ["mainstem"]
    while packages:
        for each in pkgutil.iter_modules(*packages.pop()):
            if each.name not in ("mainstem.spark", "mainstem.demo") and not each.name.endswith("__main__"):
                module = importlib.import_module(each.name)
                names.append(each.name)
                if each.ispkg:
                    packages.append((module.__path__, f"{each.name}."))
    print(len(names))


def client(directory: str) -> None:
    """Send and receive over IPC, through a driver that is already running."""
    import mainstem

    with mainstem.Aeron.connect(directory) as aeron:
        subscription = aeron.add_subscription("aeron:ipc", stream_id=1001)
        with aeron.add_publication("aeron:ipc", stream_id=1001) as publication:
            for number in range(100):
                publication.send(b"%d" % number, timeout=60.0)
        print([int(message) for message in subscription.messages(timeout=60.0)] == list(range(100)))


def multiplexer() -> None:
    """Echo a bymux stream."""
    from mainstem import bymux

    async def echo(stream: Any) -> None:
        async for data in stream:
            stream.write(data)

    async def main() -> bytes:
        async with (
            bymux.aio.serve(echo, "127.0.0.1", 0) as listener,
            bymux.aio.connect("127.0.0.1", listener.port) as connection,
            await connection.open_stream() as stream,
        ):
            stream.write(b"tide")
            return bytes(await stream.readexactly(4))

    print(asyncio.run(main()))


def aqueduct(directory: str) -> None:
    """Send a message over QUIC, and receive a response."""
    from mainstem import aqueduct

    async def service(connection: Any) -> None:
        async for request in connection.receiver:
            await request["response"].send(len(request["text"]))

    async def main() -> object:
        files = aqueduct.make_certificates(directory)
        serializers = [aqueduct.MsgspecSerializer()]
        server = await aqueduct.aio.serve(
            service, certificate=files.certificate, key=files.key, serializers=serializers
        )
        async with (
            server,
            aqueduct.aio.connect("localhost", server.port, ca=files.ca, serializers=serializers) as connection,
        ):
            respond, response = aqueduct.aio.oneshot()
            await connection.sender.send({"text": "tide", "response": respond})
            return await response

    print(asyncio.run(main()))


def reader(directory: str) -> None:
    """Read local recordings and decode their payloads; fetched files are read like mapped ones."""
    import mainstem

    recordings = mainstem.open_recordings(directory)
    print(recordings.scan(codec="json").to_polars().collect().get_column("height").to_list())


def driver() -> None:
    """Start a driver, which only Linux supports."""
    import mainstem

    try:
        mainstem.MediaDriver.launch()
    except mainstem.ConfigurationError as error:
        print(error)


def command(*arguments: str) -> None:
    """Run the command."""
    from mainstem.cli import main

    sys.argv = ["mainstem", *arguments]
    sys.exit(main())


if __name__ == "__main__":
    leave_linux()
    globals()[sys.argv[1]](*sys.argv[2:])
