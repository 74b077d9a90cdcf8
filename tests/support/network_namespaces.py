"""Hosts that share no directory, as network and mount namespaces: one switch, and a room for each host."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import uuid
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

import pytest
from tests.support.waiting import STALL_S

if TYPE_CHECKING:
    from collections.abc import Sequence

NETWORK = "10.98.0"
# Every mount is read-only, except the room's own in-memory directories. The arguments are paths below /tmp and similar directories
# that must remain visible in the room: a checkout and its Python may be there.
FURNISH = r"""
set -e
while read -r _ mount_point kind _; do
    case "$kind" in proc|sysfs|devpts|mqueue|cgroup*) continue;; esac
    mount_point=$(printf '%b' "$mount_point")
    case "$mount_point" in /dev/pts|/proc*|/sys*) continue;; esac
    mount -o remount,bind,ro "$mount_point" 2>/dev/null || mount -t tmpfs -o ro tmpfs "$mount_point" 2>/dev/null || true
done < /proc/mounts
mount -t tmpfs -o mode=1777 tmpfs /run
number=0
for path in "$@"; do
    number=$((number + 1))
    mkdir "/run/$number"
    mount --bind "$path" "/run/$number"
done
for mount_point in /tmp /var/tmp /dev/shm; do mount -t tmpfs -o mode=1777 tmpfs "$mount_point"; done
number=0
for path in "$@"; do
    number=$((number + 1))
    mkdir -p "$path"
    mount --bind "/run/$number" "$path"
    mount -o remount,bind,ro "$path"
    umount "/run/$number"
    rmdir "/run/$number"
done
echo furnished
exec sleep infinity
"""


def visible_paths() -> list[str]:
    """Return the checkout and its Python, if a room's own directories would hide them."""
    needed = sorted({str(Path(__file__).resolve().parents[2]), sys.prefix, sys.base_prefix})
    hidden = [path for path in needed if path.startswith(("/tmp/", "/var/tmp/", "/dev/shm/"))]
    return [path for path in hidden if not any(path.startswith(f"{other}/") for other in hidden)]


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=STALL_S)


class Room:
    """A host: an address on the network, a read-only file system, and its own ``/tmp`` and ``/dev/shm``."""

    def __init__(self, name: str, number: int, holder: subprocess.Popen[str]) -> None:
        self.name, self.address = name, f"{NETWORK}.{number}"
        self._holder = holder
        self.processes: list[subprocess.Popen[str]] = []

    def start(
        self, command: Sequence[str], *, env: dict[str, str] | None = None, log: IO[bytes] | None = None, **pipes: Any
    ) -> subprocess.Popen[str]:
        """Start a program in the room; the returned process id is that of the program itself."""
        inside = ["nsenter", "-t", str(self._holder.pid), "--net", "--mount", "--wd=/tmp", *command]
        pipes = {"stdout": log, "stderr": log} | pipes
        process = subprocess.Popen(inside, env=os.environ | (env or {}), text=True, start_new_session=True, **pipes)
        self.processes.append(process)
        return process

    def shell(self, script: str, *, data: str = "") -> str:
        """Run a shell script and return its output."""
        process = self.start(
            ["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        out, err = process.communicate(data, timeout=STALL_S)
        assert process.returncode == 0, f"{script}: {err}"
        return out

    def close(self) -> None:
        """End the room and every process in it."""
        for process in [*self.processes, self._holder]:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()


class Rooms:
    """Rooms joined by a switch. Skips the test if the system refuses namespaces."""

    def __init__(self, *names: str) -> None:
        self._names, self._tag = names, uuid.uuid4().hex[:6]
        self._namespaces: list[str] = []
        self.rooms: list[Room] = []

    def __enter__(self) -> Self:
        for program in ("ip", "unshare", "nsenter"):
            if shutil.which(program) is None:
                pytest.skip(f"there is no {program} command")
        try:
            self._build()
        except subprocess.CalledProcessError as error:
            self.__exit__()
            pytest.skip(f"namespaces are refused: {error.stderr.decode().strip()}")
        except BaseException:
            self.__exit__()
            raise
        return self

    def _build(self) -> None:
        switch = self._namespace("s")
        _run("ip", "-n", switch, "link", "add", "br0", "type", "bridge")
        _run("ip", "-n", switch, "link", "set", "br0", "up")
        for number, name in enumerate(self._names, start=1):
            namespace, inner, outer = self._namespace(str(number)), "eth0", f"port{number}"
            _run("ip", "-n", switch, "link", "add", outer, "type", "veth", "peer", inner, "netns", namespace)
            _run("ip", "-n", switch, "link", "set", outer, "master", "br0")
            _run("ip", "-n", switch, "link", "set", outer, "up")
            _run("ip", "-n", namespace, "address", "add", f"{NETWORK}.{number}/24", "dev", inner)
            _run("ip", "-n", namespace, "link", "set", inner, "up")
            _run("ip", "-n", namespace, "link", "set", "lo", "up")
            self.rooms.append(self._furnish(name, number, namespace))

    def _namespace(self, end: str) -> str:
        name = f"room{self._tag}{end}"
        _run("ip", "netns", "add", name)
        self._namespaces.append(name)
        return name

    def _furnish(self, name: str, number: int, namespace: str) -> Room:
        command = ["nsenter", f"--net=/run/netns/{namespace}", "unshare", "--mount", "--propagation", "private"]
        holder = subprocess.Popen(
            [*command, "sh", "-c", FURNISH, "sh", *visible_paths()],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        room = Room(name, number, holder)
        assert holder.stdout is not None
        assert holder.stderr is not None
        if holder.stdout.readline() != "furnished\n":
            error = holder.stderr.read()
            room.close()
            raise subprocess.CalledProcessError(1, "unshare", stderr=error.encode())
        return room

    def __exit__(self, *_: object) -> None:
        for room in self.rooms:
            room.close()
        for name in self._namespaces:
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)

    def shared_directories(self) -> set[str]:
        """Return the directories in which a file that one room writes is visible to another room or to this process."""
        mount_points = {"/tmp", "/var/tmp", "/dev/shm", "/run", str(Path.home()), str(Path(__file__).parent), "/"}
        mount_points |= {line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()}
        mount_points = {
            mount_point for mount_point in mount_points if not mount_point.startswith(("/proc", "/sys", "/dev/pts"))
        }
        name = f"mainstem-{self._tag}"
        shared = set()
        for mount_point in sorted(mount_points):
            file = f"{mount_point.rstrip('/')}/{name}"
            for room in self.rooms:
                room.shell(f'touch "{file}-{room.address}" 2>/dev/null || true')
            for room in self.rooms:
                seen = room.shell(f'ls -d "{file}"* 2>/dev/null || true').split()
                if any(not path.endswith(room.address) for path in seen):
                    shared.add(mount_point)
            if here := list(Path(mount_point).glob(f"{name}*")):
                shared.add(mount_point)
                for path in here:
                    path.unlink()
        return shared
