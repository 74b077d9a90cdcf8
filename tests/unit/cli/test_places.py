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
FILE, FOLDER = "{file}", "{folder}"

DIRECTORIES = [MISSING, FORBIDDEN, OF_ANOTHER, FILE, FOLDER]
COMMANDS = {
    "analyze": [["analyze", place, "--out", "{out}"] for place in (MISSING, UNREADABLE, FILE, FOLDER)]
    + [["analyze", "{capture}", "--out", place] for place in (FORBIDDEN, FILE)],
    "archive": [["archive", "--dir", "{out}", "--aeron-dir", place] for place in DIRECTORIES]
    + [["archive", "--dir", "{out}", "--config", place] for place in (MISSING, UNREADABLE, FOLDER)],
    "aqueduct": [["aqueduct", "dump", place] for place in (MISSING, UNREADABLE, FOLDER)],
    "backlog": [["backlog", "--dir", place] for place in DIRECTORIES],
    "cert": [["cert", place] for place in (FORBIDDEN, FILE)],
    "completion": [],
    "compact": [["compact", place] for place in (MISSING, FILE, FOLDER)],
    "config": [["config", "show", "--config", place] for place in (MISSING, UNREADABLE, FOLDER)],
    "demo": [["demo", "--out", place] for place in (FORBIDDEN, FILE)]
    + [["demo", "--out", "{out}", "--data", place] for place in (MISSING, "/nowhere.csv", UNREADABLE, FOLDER)],
    "doctor": [],
    "driver": [["driver", "--dir", place] for place in (FORBIDDEN, OF_ANOTHER, FILE)]
    + [["driver", "--config", place] for place in (MISSING, UNREADABLE, FOLDER)],
    "echo": [["echo", "key", place] for place in (MISSING, FORBIDDEN, FILE, FOLDER)]
    + [["echo", "serve", "127.0.0.1", "--encrypt", place] for place in (MISSING, UNREADABLE, FILE, FOLDER)]
    + [["echo", "client", "127.0.0.1", "--dir", place, "--timeout", "0.1"] for place in (MISSING, FILE)],
    "errors": [["errors", "--dir", place] for place in DIRECTORIES]
    + [["errors", "--log-file", place] for place in (MISSING, UNREADABLE, FOLDER)],
    "export": [["export", place, "--format", "csv"] for place in (MISSING, OF_ANOTHER, FILE, FOLDER)]
    + [["export", "{recordings}", "--format", "csv", "--out", place] for place in (FORBIDDEN, FOLDER)],
    "ingest": [["ingest", place, "--out", "{out}"] for place in (MISSING, OF_ANOTHER, FILE, FOLDER)]
    + [["ingest", "{recordings}", "--out", place] for place in (FORBIDDEN, FILE)],
    "log": [["log", place] for place in (MISSING, UNREADABLE, FILE, FOLDER)]
    + [["log", "7", "--dir", place] for place in DIRECTORIES],
    "loss": [["loss", "--dir", place] for place in DIRECTORIES],
    "metrics": [["metrics", "--dir", place] for place in DIRECTORIES]
    + [["metrics", "--listen", place] for place in ("here", "localhost:99999", "192.0.2.1:9", ":x")],
    "ping": [["ping", "--dir", place] for place in DIRECTORIES],
    "replay": [["replay", place, "aeron:ipc", "-s", "1"] for place in (MISSING, OF_ANOTHER, FILE, FOLDER)]
    + [["replay", "{recordings}", "aeron:ipc", "-s", "1", "--dir", MISSING]],
    "pong": [["pong", "--dir", place] for place in DIRECTORIES],
    "pub": [["pub", "aeron:ipc", "1", "--dir", place] for place in DIRECTORIES],
    "record": [["record", "aeron:ipc", "-s", "1", "--out", "{out}", "--dir", place] for place in DIRECTORIES]
    + [["record", "bymux://127.0.0.1:0", "--out", place] for place in (FORBIDDEN, FILE)]
    + [["record", f"bymux://{place}", "--out", "{out}"] for place in ("192.0.2.1:9", "localhost:99999")],
    "recordings": [["recordings", "ls", place] for place in (MISSING, FILE, FOLDER, "zip:///nowhere")],
    "serve": [["serve", place, "--listen", "127.0.0.1:0"] for place in (MISSING, FILE)]
    + [["serve", "{recordings}", "--listen", place, "--insecure"] for place in ("192.0.2.1:9", "localhost:99999")],
    # `ship` retries until the store accepts data, so a store that never does is not tested.
    "ship": [["ship", place, "{out}"] for place in (MISSING, FILE)],
    "sim": [],  # reads and writes no file
    "stat": [["stat", "--dir", place] for place in DIRECTORIES],
    "streams": [["streams", "--dir", place] for place in DIRECTORIES],
    "sub": [["sub", "aeron:ipc", "1", "--dir", place] for place in DIRECTORIES],
    "top": [],  # shows that a driver is missing: see tests/system/test_top.py
    "tunnel": [["tunnel", "serve", "--listen", place, "--target", "localhost:1"] for place in ("unix:/proc/x", "192.0.2.1:9")]
    + [["tunnel", "serve", "--listen", ":0", "--target", ":1", "--token-file", place] for place in (MISSING, UNREADABLE)]
    + [["tunnel", "serve", "--listen", ":0", "--target", ":1", "--tls-cert", place] for place in (MISSING, FILE, FOLDER)],
    "web": [["web", "--listen", place] for place in ("192.0.2.1:9", "localhost:99999", "0.0.0.0:0", ":x")],
    "why": [["why", "--samples", "1", "--dir", place] for place in DIRECTORIES],
}  # fmt: skip


def test_every_command_is_tried() -> None:
    assert set(COMMANDS) == set(cli.commands())


@pytest.mark.parametrize("arguments", [each for cases in COMMANDS.values() for each in cases], ids=" ".join)
def test_an_unusable_location_is_reported_in_one_line(
    arguments: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AERON_DRIVER_TIMEOUT", "20ms")
    folder = tmp_path / "folder"
    folder.mkdir()
    (tmp_path / "file").write_text("neither one nor the other")
    (tmp_path / "capture.pcap").write_bytes(bytes.fromhex("d4c3b2a1020004000000000000000000ffff000001000000"))
    names = {
        name: str(tmp_path / name) for name in ("file", "folder", "out", "recordings")
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
        ["cert", "{folder}"],
        ["echo", "key", "{folder}/key"],
        ["driver", "--dir", "{folder}/driver"],
        ["record", "bymux://127.0.0.1:0", "--out", "{folder}"],
        ["ingest", "{folder}", "--out", "{folder}/out"],
        ["demo", "--out", "{folder}"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_full_disk_is_reported_in_one_line(arguments: list[str], tmp_path: Path) -> None:
    words = [argument.format(folder=tmp_path) for argument in arguments]
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
