"""Every command with a missing, forbidden or full location, or one of the wrong kind: one sentence and exit code 1."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.waiting import STALL_S

from mainstem import cli

MISSING = "/nowhere-at-all/here"
FORBIDDEN = "/proc/nope"  # nobody can create files there, not even root
UNREADABLE = "/proc/self/mem"  # can be opened, but reading fails
OF_ANOTHER = "/proc/1"
FILE, DIRECTORY = "{file}", "{directory}"

DIRECTORIES = [MISSING, FORBIDDEN, OF_ANOTHER, FILE, DIRECTORY]
COMMANDS = {
    "analyze": [["analyze", location, "--out", "{out}"] for location in (MISSING, UNREADABLE, FILE, DIRECTORY)]
    + [["analyze", "{capture}", "--out", location] for location in (FORBIDDEN, FILE)],
    "archive": [["archive", "--archive-dir", "{out}", "--dir", location] for location in DIRECTORIES]
    + [["archive", "--archive-dir", "{out}", "--config", location] for location in (MISSING, UNREADABLE, DIRECTORY)],
    "aqueduct": [["aqueduct", "dump", location] for location in (MISSING, UNREADABLE, DIRECTORY)],
    "backlog": [["backlog", "--dir", location] for location in DIRECTORIES],
    "cert": [["cert", location] for location in (FORBIDDEN, FILE)],
    "completion": [],
    "compact": [["compact", location] for location in (MISSING, FILE, DIRECTORY)],
    "config": [["config", "show", "--config", location] for location in (MISSING, UNREADABLE, DIRECTORY)],
    "demo": [["demo", "--out", location] for location in (FORBIDDEN, FILE)]
    + [["demo", "--out", "{out}", "--data", location] for location in (MISSING, "/nowhere.csv", UNREADABLE, DIRECTORY)],
    "doctor": [],
    "driver": [["driver", "--dir", location] for location in (FORBIDDEN, OF_ANOTHER, FILE)]
    + [["driver", "--config", location] for location in (MISSING, UNREADABLE, DIRECTORY)],
    "echo": [["echo", "key", location] for location in (MISSING, FORBIDDEN, FILE, DIRECTORY)]
    + [["echo", "serve", "127.0.0.1", "--encrypt", location] for location in (MISSING, UNREADABLE, FILE, DIRECTORY)]
    + [["echo", "client", "127.0.0.1", "--dir", location, "--timeout", "0.1"] for location in (MISSING, FILE)],
    "errors": [["errors", "--dir", location] for location in DIRECTORIES]
    + [["errors", "--log-file", location] for location in (MISSING, UNREADABLE, DIRECTORY)],
    "export": [["export", location, "--format", "csv"] for location in (MISSING, OF_ANOTHER, FILE, DIRECTORY)]
    + [["export", "{recordings}", "--format", "csv", "--out", location] for location in (FORBIDDEN, DIRECTORY)],
    "ingest": [["ingest", location, "--out", "{out}"] for location in (MISSING, OF_ANOTHER, FILE, DIRECTORY)]
    + [["ingest", "{recordings}", "--out", location] for location in (FORBIDDEN, FILE)],
    "log": [["log", location] for location in (MISSING, UNREADABLE, FILE, DIRECTORY)]
    + [["log", "7", "--dir", location] for location in DIRECTORIES],
    "loss": [["loss", "--dir", location] for location in DIRECTORIES],
    "metrics": [["metrics", "--dir", location] for location in DIRECTORIES]
    + [["metrics", "--listen", location] for location in ("here", "localhost:99999", "192.0.2.1:9", ":x")],
    "ping": [["ping", "--dir", location] for location in DIRECTORIES],
    "replay": [["replay", location, "aeron:ipc", "-s", "1"] for location in (MISSING, OF_ANOTHER, FILE, DIRECTORY)]
    + [["replay", "{recordings}", "aeron:ipc", "-s", "1", "--dir", MISSING]],
    "pong": [["pong", "--dir", location] for location in DIRECTORIES],
    "pub": [["pub", "aeron:ipc", "1", "--dir", location] for location in DIRECTORIES],
    "record": [["record", "aeron:ipc", "-s", "1", "--out", "{out}", "--dir", location] for location in DIRECTORIES]
    + [["record", "bymux://127.0.0.1:0", "--out", location] for location in (FORBIDDEN, FILE)]
    + [["record", f"bymux://{location}", "--out", "{out}"] for location in ("192.0.2.1:9", "localhost:99999")],
    "recordings": [["recordings", "ls", location] for location in (MISSING, FILE, DIRECTORY, "zip:///nowhere")],
    "serve": [["serve", location, "--listen", "127.0.0.1:0"] for location in (MISSING, FILE)]
    + [["serve", "{recordings}", "--listen", location, "--insecure"] for location in ("192.0.2.1:9", "localhost:99999")],
    # `ship` retries until the store accepts data, so a store that never does is not tested.
    "ship": [["ship", location, "{out}"] for location in (MISSING, FILE)],
    "sim": [],  # reads and writes no file
    "stat": [["stat", "--dir", location] for location in DIRECTORIES],
    "streams": [["streams", "--dir", location] for location in DIRECTORIES],
    "sub": [["sub", "aeron:ipc", "1", "--dir", location] for location in DIRECTORIES],
    "top": [],  # shows that a driver is missing: see tests/system/test_top.py
    "tunnel": [["tunnel", "serve", "--listen", location, "--target", "localhost:1"] for location in ("unix:/proc/x", "192.0.2.1:9")]
    + [["tunnel", "serve", "--listen", ":0", "--target", ":1", "--token-file", location] for location in (MISSING, UNREADABLE)]
    + [["tunnel", "serve", "--listen", ":0", "--target", ":1", "--tls-cert", location] for location in (MISSING, FILE, DIRECTORY)],
    "web": [["web", "--listen", location] for location in ("192.0.2.1:9", "localhost:99999", "0.0.0.0:0", ":x")],
    "why": [["why", "--samples", "1", "--dir", location] for location in DIRECTORIES],
}  # fmt: skip


def test_every_command_is_tried() -> None:
    assert set(COMMANDS) == set(cli.commands())


@pytest.mark.parametrize("arguments", [each for cases in COMMANDS.values() for each in cases], ids=" ".join)
def test_an_unusable_location_is_reported_in_one_line(
    arguments: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AERON_DRIVER_TIMEOUT", "20ms")
    directory = tmp_path / "directory"
    directory.mkdir()
    (tmp_path / "file").write_text("neither one nor the other")
    (tmp_path / "capture.pcap").write_bytes(bytes.fromhex("d4c3b2a1020004000000000000000000ffff000001000000"))
    names = {
        name: str(tmp_path / name) for name in ("file", "directory", "out", "recordings")
    } | {"capture": str(tmp_path / "capture.pcap")}  # fmt: skip
    if "{recordings}" in arguments:
        from mainstem.recording import Recorder

        Recorder(Path(names["recordings"])).close()
    with pytest.raises(SystemExit) as end:
        cli.main([argument.format(**names) for argument in arguments])
    text = capfd.readouterr().err.strip()
    assert end.value.code == cli.EXIT_ERROR, text
    assert "Traceback" not in text
    assert len(text.splitlines()) == 1, text


def python(code: str, *, file_limit: int | None = None, stdout: int = subprocess.PIPE) -> tuple[int | None, str]:
    def limit() -> None:
        if file_limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit, file_limit))

    done = subprocess.run(
        [sys.executable, "-c", code],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=limit,
        timeout=STALL_S,
    )
    return done.returncode, done.stderr.strip()


@pytest.mark.parametrize(
    "arguments",
    [
        ["cert", "{directory}"],
        ["echo", "key", "{directory}/key"],
        ["driver", "--dir", "{directory}/driver"],
        ["record", "bymux://127.0.0.1:0", "--out", "{directory}"],
        ["ingest", "{directory}", "--out", "{directory}/out"],
        ["demo", "--out", "{directory}"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_full_disk_is_reported_in_one_line(arguments: list[str], tmp_path: Path) -> None:
    words = [argument.format(directory=tmp_path) for argument in arguments]
    status, text = python(f"from mainstem import cli; cli.main({words!r})", file_limit=0)
    assert status == cli.EXIT_ERROR, text
    assert "Traceback" not in text
    assert len(text.splitlines()) == 1, text


@pytest.mark.parametrize("arguments", [["config", "show"], ["--help"], ["--version"]], ids=" ".join)
def test_a_full_output_is_reported_in_one_line(arguments: list[str]) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        status, text = python(f"from mainstem import cli; cli.main({arguments!r})", stdout=full)
    finally:
        os.close(full)
    assert (status, text) == (cli.EXIT_ERROR, "mainstem: No space left on device")


@pytest.mark.parametrize(
    ("module", "extra", "code"),
    [
        ("pyspark", "spark", "import mainstem.spark; mainstem.spark.create_session()"),
        ("pyspark", "spark", "import mainstem.spark; mainstem.spark.register(None)"),
        ("pyarrow", "tables", "from mainstem._internal.arrow_batches import record_batch; record_batch({}, 0)"),
        ("opentelemetry", "cli", "from mainstem.metrics.opentelemetry import Collector; Collector(None, None)"),
    ],
)
def test_a_missing_extra_is_named(module: str, extra: str, code: str) -> None:
    status, text = python(f"import sys; sys.modules[{module!r}] = None; {code}")
    assert status == 1
    assert text.splitlines()[-1].endswith(
        f"MissingExtraError: {module} is not installed: pip install 'mainstem[{extra}]'"
    )


@pytest.mark.parametrize(
    ("module", "extra", "arguments"),
    [
        ("pyspark", "spark", ["analyze", "{recordings}", "--out", "{out}"]),
        ("pyarrow", "tables", ["analyze", "{capture}", "--out", "{out}"]),
        ("pyspark", "spark", ["ingest", "{recordings}", "--out", "{out}"]),
        ("pyarrow", "tables", ["demo", "--out", "{out}"]),
        ("cryptography", "encryption", ["cert", "{out}"]),
        ("cryptography", "encryption", ["sim", "--seed", "1"]),
    ],
)
def test_a_command_without_its_extra_names_it(module: str, extra: str, arguments: list[str], tmp_path: Path) -> None:
    (tmp_path / "capture.pcap").write_bytes(bytes.fromhex("d4c3b2a1020004000000000000000000ffff000001000000"))
    names = {"capture": tmp_path / "capture.pcap", "out": tmp_path / "out", "recordings": tmp_path / "recordings"}
    from mainstem.recording import Recorder

    Recorder(tmp_path / "recordings").close()
    words = [argument.format(**names) for argument in arguments]
    status, text = python(f"import sys; sys.modules[{module!r}] = None; from mainstem import cli; cli.main({words!r})")
    assert status == cli.EXIT_ERROR, text
    assert "Traceback" not in text
    assert module in text
    assert f"mainstem[{extra}]" in text
