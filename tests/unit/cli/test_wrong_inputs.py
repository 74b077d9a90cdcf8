"""Wrong words of every kind: a sentence and an exit code, and never a traceback."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import pytest
from tests.unit.aeron.tools.driver_files import DriverFiles

from mainstem import cli

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WRONG = (
    "colour",
    "--colour",
    "stat --interval inf",
    "stat --interval nan",
    "stat --interval x",
    "stat --interval 0",
    "stat --label (",
    "stat --label '*'",
    "stat --session x",
    "stat --stream 1.5",
    "stat --nosuch",
    "stat extra",
    "streams --session abc",
    "streams --stream 99999999999999999999",
    "streams --interval -1 --watch",
    "streams --watch --interval nan",
    "streams --watch --interval inf",
    "streams one",
    "backlog --channel",
    "backlog --json=yes",
    "why --samples 0",
    "why --samples x",
    "why --samples 2 --duration nan",
    "why --samples 2 --duration inf",
    "why --duration -1",
    "why --samples 99999999999999999999 --duration 0",
    "errors --since nan",
    "errors --since inf",
    "errors --since 7",
    "errors --offset -1",
    "errors --log-file /dev/null --offset 99999999999999999999",
    "loss --session 1e3",
    "log ''",
    "log 99999999999999999999",
    "log -1",
    "log /dev/null",
    "log /etc/hostname",
    "log 7 --limit -1",
    "log 7 --payload-bytes -1",
    "config nope",
    "config show nope",
    "config explain",
    "config explain nope",
    "config explain ''",
    "config explain 'ø'",
    "config show --config /etc/hostname",
    "config show --set mtu_length",
    "config show --set nope=5",
    "config show client --set mtu_length=4k",
    "config explain mtu_length --set mtu_length=x",
    "driver --set x",
    "driver --set =5",
    "driver --set mtu_length",
    "driver --set mtu_length=x",
    "driver --set mtu_length=-5",
    "driver --set mtu_length=99999999999999999999999",
    "driver --set nope=5",
    "driver --threading-mode FAST",
    "driver --loss 2",
    "driver --loss nan",
    "driver --loss x",
    "driver --loss -1",
    "driver --loss-seed x --loss 0.5",
    "driver --set threading_mode=",
    "driver --config /dev/null --set x=y",
    "pub",
    "pub aeron:ipc",
    "pub aeron:ipc x",
    "pub aeron:ipc 99999999999",
    "pub aeron:ipc 1 --stream 2",
    "pub aeron:ipc 1 --size x",
    "pub aeron:ipc 1 --size -5",
    "pub aeron:ipc 1 --size 99999999999999g",
    "pub aeron:ipc 1 --rate -1",
    "pub aeron:ipc 1 --rate nan",
    "pub aeron:ipc 1 --rate inf",
    "pub aeron:ipc 1 --count -1",
    "pub aeron:ipc 1 --timeout nan",
    "pub aeron:ipc 1 --timeout x",
    "pub aeron:ipc 1 --file /nowhere",
    "pub aeron:ipc 1 --file {folder}",
    "pub aeron:ipc 1 --input xml",
    "pub aeron:ipc 1 --size 5 --input json",
    "pub '' 1",
    "pub 'aeron:udp?endpoint=' 1",
    "pub 'aeron:udp?endpoint=[::1' 1",
    "pub 'aeron:udp?endpoint=localhost:1|mtu=9' 1",
    "sub",
    "sub aeron:ipc",
    "sub aeron:ipc 1 --template %q",
    "sub aeron:ipc 1 --template %",
    "sub aeron:ipc 1 --output hex --template %m",
    "sub aeron:ipc 1 --count -1",
    "sub aeron:ipc 1 --timeout -1",
    "sub aeron:ipc 1 --timeout nan",
    "sub aeron:ipc 1 --timeout inf",
    "sub 'bymux://localhost:1' 1",
    "ping --size 1g",
    "ping --size x",
    "ping --size -1",
    "ping --count -1",
    "ping --warm-up -1",
    "ping --timeout nan",
    "ping --ping-channel x",
    "ping --ping-stream 99999999999",
    "pong --ping-channel x",
    "pong --pong-stream x",
    "pong --ping-stream x",
    "record",
    "record aeron:ipc",
    "record aeron:ipc --out {out}",
    "record aeron:ipc --out {out} --stream x",
    "record aeron:ipc --out {out} --stream 1 --segment-length x",
    "record aeron:ipc --out {out} --stream 1 --segment-length 5",
    "record aeron:ipc --out {out} --stream 1 --segment-length 99999999999999999999",
    "record bymux://localhost:x --out {out}",
    "record bymux://localhost:99999 --out {out}",
    "record 'bymux://[' --out {out}",
    "record nope://localhost:1 --out {out}",
    "record nope --out {out}",
    "record aqueduct://localhost:0 --out {out}",
    "record aqueduct://localhost:0 --out {out} --tls-cert /nowhere",
    "replay /nowhere aeron:ipc -s 1 --speed x",
    "replay /nowhere aeron:ipc -s 1 --speed -1",
    "replay /nowhere aeron:ipc -s 1 --speed nan",
    "replay /nowhere aeron:ipc -s 1 --since yesterday",
    "replay /nowhere aeron:ipc",
    "replay /nowhere nope -s 1",
    "replay /nowhere aeron:ipc -s 99999999999",
    "replay s3:// aeron:ipc -s 1",
    "export /nowhere --format xml",
    "export /nowhere --format csv --since x",
    "export nope://x --format csv",
    "ingest /nowhere",
    "analyze",
    "serve {folder} --listen x",
    "serve {folder} --listen ':99999'",
    "serve {folder} --listen 0.0.0.0:0",
    "serve {folder} --tls-cert /nowhere --listen 127.0.0.1:0",
    "serve {folder} --tls-cert /etc/hostname --tls-key /etc/hostname --listen 127.0.0.1:0",
    "serve {folder} --max-connections 0",
    "metrics --listen x",
    "metrics --listen ':-1'",
    "metrics --listen '[::1'",
    "ship /nowhere nope://x",
    "recordings nope",
    "recordings ls nope://x",
    "recordings ls ''",
    "recordings show {folder} --recording x",
    "recordings rm {folder}",
    "recordings rm {folder} --older-than yesterday",
    "recordings verify zip:///nowhere",
    "recordings compact /nowhere --grace-period x",
    "echo key",
    "echo serve 127.0.0.1 --port 99999",
    "echo serve 127.0.0.1 --port -1",
    "echo serve 127.0.0.1 --max-clients 0",
    "echo serve 127.0.0.1 --ipv6-prefix 999",
    "echo client 127.0.0.1 --encrypt xyz",
    "echo client 127.0.0.1 --port 0 --timeout 0.1",
    "echo client 127.0.0.1 --interval nan --timeout 0.1",
    "web --listen x",
    "web --interval nan",
    "top --interval nan",
    "top",
    "echo client 127.0.0.1 --timeout -1",
    "tunnel serve --listen x --target y",
    "tunnel serve --listen :0",
    "tunnel connect --listen :0 --server :x",
    "aqueduct nope",
    "demo --out {out} --nope",
    "doctor x",
    "completion csh",
    "completion",
    "echo serve 127.0.0.1 --join-timeout nan",
    "errors --log-file {file} --since 1e300",
    "stat --interval 1e300",
    "streams --watch --interval 1e10",
    "config explain AERON_MTU",
    "backlog --stream ",
    "sim --scenario nope",
    "sim --seed x",
    "sim --drop x",
    "ship {folder} {out} --local-retention soon",
    "ship {folder} {out} --chunk-size 1k",
    "ship {folder} {out} --bandwidth-limit 1",
    "ingest {folder} --out {out} --trigger-interval x",
    "ingest {folder} --out {out} --codec-option x --codec json",
    "cert {out} --valid-for 1s",
)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A directory of a driver that is dead, a file, a folder, and a place where nothing is yet."""
    base: Path = tmp_path_factory.mktemp("wrong")
    for name in ("driver", "folder"):
        (base / name).mkdir()
    (base / "file").write_text("neither one nor the other")
    files = DriverFiles(base / "driver")
    yield {name: str(base / name) for name in ("driver", "folder", "file", "out")}
    files.cnc.close()


def test_there_are_a_hundred_of_them() -> None:
    assert len(set(WRONG)) >= 100


@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_input_is_a_sentence(
    line: str, places: dict[str, str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AERON_DIR", places["driver"])
    monkeypatch.setenv("AERON_DRIVER_TIMEOUT", "20ms")
    with pytest.raises(SystemExit) as end:
        cli.main([word.format(**places) if "{" in word else word for word in shlex.split(line)])
    text = capfd.readouterr().err.strip()
    assert end.value.code in (cli.EXIT_ERROR, cli.EXIT_USAGE), text
    assert text
    assert "Traceback" not in text
    if end.value.code == cli.EXIT_ERROR:
        assert text.startswith("mainstem: ")
        assert len(text.splitlines()) == 1, text
