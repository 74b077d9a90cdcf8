"""Invalid arguments of every kind: one sentence and an exit code, never a traceback."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

import pytest
from tests.support.command_tree import COMMANDS
from tests.support.streams import Stream, record
from tests.unit.aeron.tools.driver_files import DriverFiles

from mainstem import cli
from mainstem.cli.echo import _host
from mainstem.recording import Recorder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WRONG = (
    "color",
    "--color",
    "stat --interval nan",
    "stat --interval x",
    "stat --interval 1e300",
    "stat --interval 0",
    "stat --label (",
    "stat --label '*'",
    "stat --nosuch",
    "streams --stream 99999999999999999999",
    "streams --interval -1 --watch",
    "streams one",
    "backlog --channel",
    "backlog --json=yes",
    "why --samples 0",
    "why --duration -1",
    "why --samples 99999999999999999999 --duration 0",
    "errors --since nan",
    "errors --log-file {file} --since 1e300",
    "errors --since 7",
    "errors --offset -1",
    "errors --log-file /dev/null --offset 99999999999999999999",
    "log ''",
    "log 99999999999999999999",
    "log /etc/hostname",
    "log 7 --limit -1",
    "log 7 --payload-bytes -1",
    "config nope",
    "config show nope",
    "config explain",
    "config show --config /etc/hostname",
    "config show client --set mtu_length=4k",
    "config explain mtu_length --set mtu_length=x",
    "driver --set mtu_length",
    "driver --set mtu_length=x",
    "driver --set mtu_length=99999999999999999999999",
    "driver --threading-mode FAST",
    "driver --loss 2",
    "driver --loss-seed x --loss 0.5",
    "driver --set threading_mode=",
    "driver --config /dev/null --set x=y",
    "pub",
    "pub aeron:ipc",
    "pub aeron:ipc 99999999999",
    "pub aeron:ipc 1 --stream 2",
    "pub aeron:ipc 1 --size x",
    "pub aeron:ipc 1 --size 99999999999999g",
    "pub aeron:ipc 1 --rate -1",
    "pub aeron:ipc 1 --count -1",
    "pub aeron:ipc 1 --file /nowhere",
    "pub aeron:ipc 1 --file {directory}",
    "pub aeron:ipc 1 --input xml",
    "pub aeron:ipc 1 --size 5 --input json",
    "pub '' 1",
    "pub 'aeron:udp?endpoint=[::1' 1",
    "pub 'aeron:udp?endpoint=localhost:1|mtu=9' 1",
    "sub",
    "sub aeron:ipc 1 --template %q",
    "sub aeron:ipc 1 --output hex --template %m",
    "sub aeron:ipc 1 --timeout -1",
    "sub 'bymux://localhost:1' 1",
    "ping --size 1g",
    "ping --warm-up -1",
    "ping --ping-stream 99999999999",
    "pong --pong-stream x",
    "record",
    "record aeron:ipc --out {out}",
    "record aeron:ipc --out {out} --stream 1 --segment-length 5",
    "record bymux://localhost:99999 --out {out}",
    "record 'bymux://[' --out {out}",
    "record nope://localhost:1 --out {out}",
    "record aqueduct://localhost:0 --out {out}",
    "record aqueduct://localhost:0 --out {out} --tls-cert /nowhere",
    "replay /nowhere aeron:ipc -s 1 --speed -1",
    "replay /nowhere aeron:ipc -s 1 --since yesterday",
    "replay /nowhere aeron:ipc",
    "replay /nowhere nope -s 1",
    "replay s3:// aeron:ipc -s 1",
    "export /nowhere --format xml",
    "export {recordings}",
    "export {recordings} -o {out}/tides.xls",
    "export nope://x --format csv",
    "ingest /nowhere",
    "analyze",
    "serve {directory} --listen ':99999'",
    "serve {directory} --listen 0.0.0.0:0",
    "serve {directory} --tls-cert /nowhere --listen 127.0.0.1:0",
    "serve {directory} --tls-cert /etc/hostname --tls-key /etc/hostname --listen 127.0.0.1:0",
    "serve {directory} --max-connections 0",
    "metrics --listen '[::1'",
    "ship /nowhere nope://x",
    "recordings nope",
    "recordings ls nope://x",
    "recordings ls ''",
    "recordings rm {directory}",
    "recordings rm {directory} --older-than yesterday",
    "recordings verify zip:///nowhere",
    "recordings compact /nowhere --grace-period x",
    "echo key",
    "echo serve 127.0.0.1 --port 99999",
    "echo serve 127.0.0.1 --max-clients 0",
    "echo serve 127.0.0.1 --ipv6-prefix 999",
    "echo client 127.0.0.1 --encrypt xyz",
    "echo client 127.0.0.1 --interval nan --timeout 0.1",
    "top",
    "echo client 127.0.0.1 --timeout -1",
    "tunnel serve --listen :0",
    "tunnel connect --listen :0 --server :x",
    "aqueduct nope",
    "demo --out {out} --nope",
    "completion csh",
    "completion",
    "echo serve 127.0.0.1 --join-timeout nan",
    "config explain AERON_MTU",
    "backlog --stream ",
    "sim --scenario nope",
    "ship {directory} {out} --local-retention soon",
    "ship {directory} {out} --chunk-size 1k",
    "ship {directory} {out} --bandwidth-limit 1",
    "ingest {directory} --out {out} --trigger-interval x",
    "cert {out} --valid-for 1s",
    "aqueduct dump {directory}",
    "aqueduct dump {jsonl}",
    "aqueduct dump {jsonl} --hex",
    "errors --log-file {file}",
    "log {file}",
    "sub aeron:udp 1",
    "sub aeron:ipc --rate --json",
    "sub 'aeron:udp?endpoint=localhost:70000' 1",
    "record bymux://::1:80 --out {out}",
    "record bymux://a..b:1 --out {out}",
    "analyze {jsonl}",
    "analyze {jsonl} --bymux-ports abc",
    "analyze {jsonl} --out {file}",
    "analyze {jsonl} --out /dev/null",
    "analyze {directory}",
    "analyze /nowhere",
    "analyze s3:///x",
    "demo --data /nowhere.csv",
    "demo --data {jsonl} --out /dev/null",
    "export {directory} --format csv",
    "export {recordings} --format csv --since yesterday",
    "export {recordings} --format csv --columns nope",
    "export {recordings} --format csv --codec nope",
    "export {recordings} --format csv --codec-option x",
    "export {recordings} --format csv --out {out}/none/x.csv",
    "export {recordings} --format csv --out {directory}",
    "export http://localhost:70000 --format csv",
    "recordings ls 'http://a b/'",
    "recordings show {recordings} --recording 9",
    "recordings show {recordings} --archive nope",
    "recordings rm {recordings} --older-than 1d",
    "archive",
    "archive --control localhost:8010",
    "archive serve --archive-dir {directory} --control nowhere",
    "archive serve --archive-dir {directory} --credentials-file {directory}/none",
    "archive --archive-dir {directory} --set nothing=1",
    "archive serve --dir {directory}",
    "archive ls --control nowhere",
    "archive ls --since 7",
    "archive ls --response-channel here",
    "archive ls --credentials-file {directory}/none",
    "archive start aeron:ipc",
    "archive stop",
    "archive stop aeron:ipc 1001 --recording 7",
    "archive replay -1",
    "archive replay 7 --follow --length 64k",
    "archive replay 7 --output csv",
    "archive replicate 7 nowhere",
    "archive truncate 7 x",
    "archive purge 7 --before -1",
    "archive purge 7",
    "recordings capacity {recordings} --grow-to 1",
    "recordings checksum {directory}",
    "recordings checksum {recordings} --algorithm md5",
    "recordings mark-valid {recordings} 9",
    "recordings mark-invalid {recordings} x",
    "recordings dump {recordings} --recording 9",
    "compact",
    "compact --catalog nowhere",
    "compact --table sea.tides",
    "compact {directory} --table sea.tides --catalog-option uri=http://localhost:1",
    "archive ls",
    "archive stop --recording 7",
    "archive replay 7 --with-driver --dir {file}",
    "compact {directory}",
    "replay {directory} aeron:ipc -s 1",
    "ship {directory} http://localhost:1/x",
    "ship {file} {out}",
    "ship {directory} {out} --upload-concurrency 0",
    "ingest {directory} --out {out} --schema 'a int'",
    "ingest {directory} --out {out} --format iceberg",
    "ingest {directory}",
    "ingest {recordings} --out {file}",
    "ingest aeron:ipc --out {out}",
    "serve /nowhere --listen 127.0.0.1:0",
    "serve {directory} --listen 127.0.0.1:0 --token-file /dev/null",
    "tunnel connect --listen 127.0.0.1:0 --server a..b:1",
    "tunnel connect --listen 127.0.0.1:0 --server unix:",
    "tunnel token {file}",
    "echo key {file}",
    "echo serve a..b",
    "driver --config {directory}",
    "sim --seeds 0",
    "cert {file}/certificates",
)


@pytest.fixture(scope="module")
def locations(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The directory of a dead driver, files, directories, a recording, and a path that does not exist yet."""
    base: Path = tmp_path_factory.mktemp("wrong")
    for name in ("driver", "directory"):
        (base / name).mkdir()
    (base / "file").write_text("neither one nor the other")
    (base / "jsonl").write_text('{"id": 1}\n')
    with Recorder(base / "recordings", segment_length=1 << 16) as recorder:
        options = {"stream_id": 1001, "initial_term_id": -5, "term_buffer_length": 1 << 16, "mtu_length": 1408}
        record(recorder.start(session_id=77, join_position=0, **options), Stream(), [b"tide"])
    files = DriverFiles(base / "driver")
    yield {name: str(base / name) for name in ("driver", "directory", "file", "jsonl", "recordings", "out")}
    files.cnc.close()


@pytest.mark.parametrize("line", WRONG)
def test_an_invalid_input_is_reported_in_one_line(
    line: str, locations: dict[str, str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AERON_DIR", locations["driver"])
    monkeypatch.setenv("AERON_DRIVER_TIMEOUT", "20ms")
    with pytest.raises(SystemExit) as end:
        cli.main([word.format(**locations) if "{" in word else word for word in shlex.split(line)])
    text = capfd.readouterr().err.strip()
    assert end.value.code in (cli.EXIT_ERROR, cli.EXIT_USAGE), text
    assert text
    assert "Traceback" not in text
    if end.value.code == cli.EXIT_ERROR:
        assert text.startswith("mainstem: ")
        assert len(text.splitlines()) == 1, text
        assert named_options(text) <= options_of(line), text
        assert not re.search(r"`\w+(=\w+)?`", text), f"a field of the code below is named, not its option: {text}"


def named_options(text: str) -> set[str]:
    """Return the options that an error names, except those of other commands, which are in backticks with the command."""
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", re.sub(r"`mainstem [^`]*`", "", text)))


def options_of(line: str) -> set[str]:
    """Return the options of the command in a line."""
    first, second, *_ = [*line.split(), "", ""]
    words = next(each for each in (f"{first} {second}", first, f"{first} serve") if each in COMMANDS)
    return {name for parameter in COMMANDS[words].params for name in (*parameter.opts, *parameter.secondary_opts)}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("aqueduct dump {jsonl}", "line 1 is not one of a FrameLog: '{{\"id\": 1}}'"),
        ("errors --log-file {jsonl}", "{jsonl} is not an error log: at 0 it begins with 7b226964"),
        ("log 99999", "{driver} has no publication or image 99999; `mainstem streams` lists their registration ids"),
        ("sub aeron:udp 1", "aeron:udp needs parameters, as in aeron:udp?endpoint=localhost:20121"),
        ("sub aeron:ipc --stream 99999999999", "must be at most 2147483647 (got '99999999999')"),
        ("pub aeron:ipc --stream x", "must be an integer (got 'x')"),
        ("analyze {jsonl} --bymux-ports abc", "--bymux-ports: 'abc' is not a port (1 to 65535; separate several with commas)"),
        ("export {recordings} --format csv --since yesterday", "--since: 'yesterday' is neither a time"),
        ("export {recordings} --format csv --out /nowhere/x.csv", "--out: /nowhere/x.csv cannot be written: No such file"),
        ("recordings show {recordings} --recording 9", "{recordings} has no recording 9; `mainstem recordings ls"),
        ("record bymux://::1:80 --out {out}", "an IPv6 address must be in brackets, as in [::1]:4000"),
        ("serve {directory} --listen a..b:1", "'a..b' is not a host name: each part between dots must have 1 to 63 letters"),
        ("ship {directory} http://localhost:1/x", "http(s):// is read-only; ship to a directory or an object store"),
        ("compact", "LOCATION is required: the directory or URL of the table"),
        ("ingest {directory} --out {out} --append", "--append needs --format delta or --format iceberg"),
        ("ingest {directory} --out {out} --schema 'a int'", "--schema lists the columns of --codec, which is missing"),
        ("archive ls --dir {out}", "--dir or AERON_DIR chooses one that runs: /dev/shm/mine"),
        ("archive serve --archive-dir {directory} --dir {file} --with-driver", "{file} is not a driver's directory"),
        ("archive serve --dir {directory}", "Missing option '--archive-dir'"),
        ("streams --dir {out}", "--dir or AERON_DIR chooses one that runs: /dev/shm/mine"),
        ("recordings ls /nowhere", "/nowhere holds no recordings: there is no such directory"),
        ("recordings ls {directory}", "{directory} holds no recordings: there is no archive.catalog in it"),
        ("demo --data {jsonl} --out /dev/null", "--out: /dev/null is not a directory"),
        ("echo serve ::1:80", "::1:80 may be an address, or ::1 and a port: write [::1:80], or [::1] --port 80"),
        ("echo client fe80::1:9000", "write [fe80::1:9000], or [fe80::1] --port 9000"),
        ("echo client 127.0.0.1 --local fe80::1:9", "write [fe80::1:9], or [fe80::1] --port 9"),
        ("ship {recordings} {out} --store-option a=b", "--store-option a is for a URL such as s3://bucket/tides: {out} is"),
        ("export {recordings} --format csv --store-option a=b", "{recordings} is a directory, which has no options"),
        ("recordings ls file://{recordings} --store-option a=b", "file://{recordings} is a directory"),
        ("compact {directory} --store-option a=b", "{directory} is a directory, which has no options"),
        ("record aeron:ipc -s 1 --out {out} --store-option a=b", "--store-option needs --ship-to"),
        ("record aeron:ipc --out {out}", "--stream is required to record from an Aeron channel"),
        ("export {recordings} --format csv --codec-option a=b", "--codec-option needs --codec"),
        ("serve {directory} --listen 0.0.0.0:0", "needs --tls-cert and --tls-key and --token-file or MAINSTEM_SERVE_TOKEN"),
        ("sub aeron:ipc 1 --template %q", "--template: unknown %q"),
    ],
)  # fmt: skip
def test_an_invalid_input_is_named(
    line: str,
    reason: str,
    locations: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("AERON_DIR", locations["driver"])
    monkeypatch.setenv("AERON_DRIVER_TIMEOUT", "20ms")
    monkeypatch.setattr("mainstem.cli._drivers.running_drivers", lambda: ["/dev/shm/mine"])
    with pytest.raises(SystemExit):
        cli.main(shlex.split(line.format(**locations)))
    assert reason.format(**locations) in capfd.readouterr().err


@pytest.mark.parametrize("text", ["::1", "[::1]", "[::1:80]", "2001:db8::5", "127.0.0.1", "localhost"])
def test_an_unambiguous_address_is_accepted(text: str) -> None:
    assert _host(text) == text.strip("[]")
