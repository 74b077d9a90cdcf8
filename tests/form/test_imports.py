"""Imports point downward, and only the listed files do I/O or use time and randomness."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.form

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "mainstem"

OUTSIDE_WORLD = {
    "asyncio",
    "multiprocessing",
    "random",
    "select",
    "selectors",
    "signal",
    "socket",
    "ssl",
    "subprocess",
    "threading",
    "time",
}

# The files that may do I/O, start threads, read clocks or draw random numbers. All others get these from their callers.
ALLOWED: dict[str, set[str]] = {
    "_core/memory/plain.py": {"time"},
    "aeron/driver/media/interfaces.py": {"socket"},
    "aeron/driver/media/transport.py": {"socket"},
    "aqueduct/blocking.py": {"threading"},
    "aqueduct/channels.py": {"asyncio"},
    "aqueduct/client.py": {"asyncio", "socket"},
    "aqueduct/connection.py": {"asyncio"},
    "aqueduct/pipe.py": {"asyncio"},
    "aqueduct/protocol.py": {"asyncio"},
    "aqueduct/quic/pem_files.py": {"ssl"},  # checks certificate files
    "aqueduct/quic/tickets.py": {"threading"},
    "aqueduct/quic/udp.py": {"socket"},
    "aqueduct/server.py": {"asyncio", "socket"},
    "aqueduct/udp_endpoint.py": {"asyncio"},
    "aeron/client/requests.py": {"threading"},
    "_internal/clock.py": {"time"},
    "duologue/aio.py": {"asyncio"},
    "duologue/client.py": {"threading"},
    "duologue/ends.py": {"random"},
    "duologue/server.py": {"threading"},
    "sim/host.py": {"random"},
    "sim/schedule.py": {"random"},
    "sim/scenarios/duologue.py": {"random"},
    "sim/scenarios/workloads.py": {"random"},
    "sim/world.py": {"random"},
    "aeron/driver/context.py": {"random"},
    "aeron/driver/process.py": {"select", "signal", "subprocess", "threading"},
    "cli/__init__.py": {"select"},
    "cli/doctor.py": {"socket", "subprocess"},
    "cli/_top_app.py": {"asyncio"},
    "cli/driver.py": {"signal", "threading"},
    "cli/": {"signal", "threading", "time"},
    "cli/record.py": {"random", "subprocess", "time"},
    "codecs/schemas.py": {"ssl"},
    "cli/ship.py": {"random"},
    "demo/query.py": {"signal"},
    "demo/run.py": {"time"},
    "demo/sampling.py": {"threading"},
    "demo/traffic.py": {"socket", "threading", "time"},
    "aeron/aio/persistent_subscription.py": {"asyncio"},
    "aeron/client/persistent_subscription.py": {"time"},
    "recording/replayer.py": {"time"},
    "recording/shipping/retrying_store.py": {"threading"},
    "recording/shipping/chunk_reader.py": {"threading"},
    "recording/shipping/status.py": {"threading"},
    "spark/java.py": {"signal", "subprocess", "time"},
    "spark/sources/background_recorder.py": {"threading", "time"},
    "aeron/agent.py": {"threading"},
    "archive/aio.py": {"asyncio"},
    "archive/client.py": {"threading"},
    "archive/remote_archive.py": {"time"},
    "aeron/aio/": {"asyncio"},
    "aeron/client/conductor.py": {"threading"},
    "aeron/idle.py": {"time"},
    "_internal/accept_loop.py": {"asyncio"},
    "_internal/http_listener.py": {"asyncio"},
    "_internal/loop_thread.py": {"asyncio", "threading"},
    "_internal/exposure.py": {"socket"},  # the kind of address to look up
    "_internal/eyeballs.py": {"asyncio", "socket"},
    "_internal/error_texts.py": {"ssl"},
    "_internal/host_names.py": {"socket"},
    "_internal/listening.py": {"socket"},
    "_internal/tasks.py": {"asyncio"},
    "_internal/handler_threads.py": {"asyncio", "threading"},
    "_internal/unix_listening.py": {"socket", "time"},
    "bymux/blocking.py": {"asyncio", "socket"},
    "bymux/pings.py": {"asyncio"},
    "bymux/protocol.py": {"asyncio"},
    "metrics/endpoints.py": {"threading"},
    "metrics/page_server.py": {"asyncio", "socket", "threading"},
    "mux/transports.py": {"asyncio", "socket"},
    "mux/protocol.py": {"asyncio"},
    "mux/aio_stream.py": {"asyncio"},
    "jmux/aio_client.py": {"asyncio", "random"},
    "jmux/aio_pool.py": {"asyncio"},
    "jmux/aio_server.py": {"asyncio"},
    "mux/pending_connections.py": {"asyncio"},
    "mux/listening.py": {"socket"},
    "mux/sockets.py": {"asyncio", "socket", "ssl"},
    "mux/tls.py": {"ssl"},
    "archive/server/host_lookups.py": {"threading"},
    "recording/tiered_archive.py": {"threading"},
    "store/threads.py": {"threading"},
    "store/http.py": {"ssl", "threading"},
    "store/retry.py": {"random", "time"},
    "bymux/tunnel_token.py": {"asyncio"},
    "bymux/tunnel.py": {"asyncio", "random", "socket"},
    "cli/tunnel.py": {"asyncio", "ssl"},
    "cli/_process.py": {"asyncio", "signal"},
    "cli/serve.py": {"asyncio"},
    "cli/web.py": {"asyncio"},
    "serve/app.py": {"asyncio"},
    "serve/http_server.py": {"asyncio", "socket"},
    "serve/live_server.py": {"asyncio"},
    "serve/position_poller.py": {"asyncio"},
    "serve/responses.py": {"asyncio"},
    "serve/recording_server.py": {"ssl"},
}


def imported(path: Path) -> set[str]:
    """Return the top-level standard-library modules that the file imports at run time, without imports for type checkers."""
    names: set[str] = set()
    tree = ast.parse(path.read_text(), str(path))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.split(".")[0])
    return names


def allowed(relative: str) -> set[str]:
    found: set[str] = set()
    for file, names in ALLOWED.items():
        if relative == file or (file.endswith("/") and relative.startswith(file)):
            found |= names
    return found


def test_only_listed_files_do_io() -> None:
    trespasses = []
    for path in sorted(PACKAGE.rglob("*.py")):
        relative = path.relative_to(PACKAGE).as_posix()
        if extra := (imported(path) & OUTSIDE_WORLD) - allowed(relative):
            trespasses.append(f"{relative} imports {', '.join(sorted(extra))}")
    assert trespasses == []


def test_the_list_of_files_that_do_io_has_no_unused_entry() -> None:
    unused = []
    for file, names in ALLOWED.items():
        paths = list((PACKAGE / file).rglob("*.py")) if file.endswith("/") else [PACKAGE / file]
        used: set[str] = set().union(*(imported(path) for path in paths)) if paths else set()
        if rest := names - used:
            unused.append(f"{file}: {', '.join(sorted(rest))}")
    assert unused == []


def test_imports_point_downwards() -> None:
    command = shutil.which("lint-imports", path=str(Path(sys.executable).parent)) or shutil.which("lint-imports")
    assert command, "import-linter is a development dependency"
    result = subprocess.run([command, "--no-cache"], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-1000:]
