"""`mainstem aqueduct dump` and `mainstem cert`."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING

import pytest
from tests.support.aqueduct_frames import AckReliable, FinishSender, Message, Version

from mainstem import cli

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FRAMES = Version().encode() + Message(4, 0, (10,), b"tide").encode() + FinishSender(1).encode()


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def call(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as end:
            cli.main(list(arguments))
        said = capsys.readouterr()
        return int(end.value.code or 0), said.out, said.err

    return call


def test_dump_lists_the_frames_of_a_stream_with_their_offsets(run: Callable[..., object], tmp_path: Path) -> None:
    file = tmp_path / "stream"
    file.write_bytes(FRAMES)
    code, out, _ = run("aqueduct", "dump", str(file))
    assert code == 0
    assert [line.split()[:2] for line in out.splitlines()] == [
        ["0", "Version"],
        ["28", "Message"],
        ["38", "FinishSender"],
    ]
    assert "attaching" in out
    assert "4 B b'tide'" in out


def test_dump_accepts_hexadecimal_input(run: Callable[..., object], tmp_path: Path) -> None:
    file = tmp_path / "digits"
    file.write_text(AckReliable((2, 1, 3)).encode().hex(" ") + "\n")
    code, out, _ = run("aqueduct", "dump", "--hex", str(file))
    assert (code, out.split()) == (0, ["0", "AckReliable", "+2", "…1", "+3"])
    file.write_text("tide")
    code, _, err = run("aqueduct", "dump", "--hex", str(file))
    assert code == 1
    assert "no hexadecimal digits" in err


def test_dump_reports_where_frames_become_invalid(run: Callable[..., object], tmp_path: Path) -> None:
    file = tmp_path / "stream"
    file.write_bytes(FinishSender(1).encode() + b"\x63")
    assert "unknown frame type 99 (frame type)" in run("aqueduct", "dump", str(file))[1]
    file.write_bytes(FRAMES[:-4])
    assert "of a frame that is at least" in run("aqueduct", "dump", str(file))[1]


def test_dump_reads_standard_input(run: Callable[..., object], monkeypatch: pytest.MonkeyPatch) -> None:
    class Input:
        buffer = io.BytesIO(FinishSender(7).encode())

    monkeypatch.setattr(sys, "stdin", Input())
    assert run("aqueduct", "dump", "-")[1].split() == ["0", "FinishSender", "7"]


def test_dump_reports_a_missing_file(run: Callable[..., object], tmp_path: Path) -> None:
    code, _, err = run("aqueduct", "dump", str(tmp_path / "nothing"))
    assert code == 1
    assert "No such file" in err


def test_cert_creates_certificates_for_a_server_and_its_clients(run: Callable[..., object], tmp_path: Path) -> None:
    x509 = pytest.importorskip("cryptography.x509")
    directory = tmp_path / "certs"
    code, out, _ = run("cert", str(directory), "--name", "gauge.example", "--name", "127.0.0.1", "--valid-for", "3d")
    assert code == 0
    assert str(directory / "ca.pem") in out
    ca, certificate = (
        x509.load_pem_x509_certificate((directory / name).read_bytes()) for name in ("ca.pem", "cert.pem")
    )
    certificate.verify_directly_issued_by(ca)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["gauge.example"]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
    assert (certificate.not_valid_after_utc - certificate.not_valid_before_utc).days == 3
    assert (directory / "key.pem").stat().st_mode & 0o077 == 0


def test_cert_overwrites_files_only_with_force(run: Callable[..., object], tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    assert run("cert", str(tmp_path))[0] == 0
    before = (tmp_path / "key.pem").read_bytes()
    code, _, err = run("cert", str(tmp_path))
    assert code == 1
    assert "--force" in err
    assert (tmp_path / "key.pem").read_bytes() == before
    assert run("cert", str(tmp_path), "--force")[0] == 0
    assert (tmp_path / "key.pem").read_bytes() != before
