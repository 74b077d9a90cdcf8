"""The checks of `mainstem doctor`, on simulated machines."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from mainstem import cli
from mainstem.cli import doctor
from mainstem.cli.doctor import State

if TYPE_CHECKING:
    from pathlib import Path


def write(root: Path, path: str, text: str) -> Path:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)
    return root


@pytest.mark.parametrize(
    ("limit", "wanted", "state", "remedy"),
    [
        ("212992\n", 4 << 20, State.WARN, "sysctl -w net.core.rmem_max=4194304"),
        ("212992\n", 128 << 10, State.NOTE, "sysctl -w net.core.rmem_max=2097152"),
        ("4194304\n", 128 << 10, State.OK, ""),
        ("212992\n", 0, State.NOTE, "sysctl -w net.core.rmem_max=2097152"),
        ("many\n", 128 << 10, State.NOTE, ""),
    ],
)
def test_a_socket_buffer_is_compared_with_the_setting(
    limit: str, wanted: int, state: State, remedy: str, tmp_path: Path
) -> None:
    check = doctor.socket_buffer("rmem", wanted, write(tmp_path, "proc/sys/net/core/rmem_max", limit))
    assert check.state is state
    assert check.remedy.startswith(remedy)
    assert "SO_RCVBUF" in check.figure


@pytest.mark.parametrize(
    ("available", "quota", "state"),
    [(8, "max 100000", State.OK), (8, "150000 100000", State.NOTE), (2, "max 100000", State.NOTE), (8, "x", State.OK)],
)
def test_a_dedicated_driver_needs_more_processors_than_agents(
    available: int, quota: str, state: State, tmp_path: Path
) -> None:
    check = doctor.processors(write(tmp_path, "sys/fs/cgroup/cpu.max", quota), available)
    assert (check.state, "AERON_THREADING_MODE=SHARED" in check.remedy) == (state, state is State.NOTE)


@pytest.mark.parametrize(("current", "state"), [("tsc", State.OK), ("kvm-clock", State.OK), ("hpet", State.WARN)])
def test_a_slow_clock_is_reported(current: str, state: State, tmp_path: Path) -> None:
    write(tmp_path, f"{doctor.CLOCKS}/current_clocksource", f"{current}\n")
    write(tmp_path, f"{doctor.CLOCKS}/available_clocksource", "hpet kvm-clock acpi_pm\n")
    check = doctor.time_source(tmp_path)
    assert check.state is state
    assert check.remedy.startswith("echo kvm-clock > /sys/") is (state is State.WARN)


def test_unreadable_files_are_notes_and_missing_shared_memory_fails(tmp_path: Path) -> None:
    assert doctor.time_source(tmp_path).state is State.NOTE
    assert doctor.socket_buffer("wmem", 0, tmp_path).state is State.NOTE
    missing = doctor.shared_memory(tmp_path)
    assert (missing.state, missing.remedy.startswith("mount -t tmpfs")) == (State.FAIL, True)


def test_an_old_java_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = write(tmp_path, "bin/java", "#!/bin/sh\necho 'openjdk version \"1.8.0_392\"' >&2\n") / "bin/java"
    os.chmod(launcher, 0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setattr(doctor, "_has", lambda module: False)
    check = doctor.java()
    assert (check.state, "8, " in check.figure) == (State.NOTE, True)
    assert "mainstem[spark]" in check.remedy


def test_a_missing_extra_is_reported_with_its_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_has", lambda module: module != "qh3")
    check = next(check for check in doctor.extras() if check.name == "extra quic")
    assert (check.state, check.figure, check.remedy) == (State.NOTE, "without qh3", "pip install 'mainstem[quic]'")


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any]:
    with pytest.raises(SystemExit) as end:
        cli.main(["doctor", "--json", *arguments])
    return int(str(end.value.code)), json.loads(capsys.readouterr().out)


def test_doctor_lists_every_check_and_exits_with_1_on_failure(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    code, checks = document(capsys, "--dir", str(tmp_path))
    assert code == 0
    names = [check["name"] for check in checks]
    assert names[:5] == ["media driver", "/dev/shm", "net.core.rmem_max", "net.core.wmem_max", "multicast route"]
    assert {"processors", "time source", "Java", "extra cli"} < set(names)
    assert checks[0]["remedy"] == f"mainstem driver --dir {tmp_path}"
    missing = doctor.Check("/dev/shm", State.FAIL, "not there", "mount")
    monkeypatch.setattr(doctor, "shared_memory", lambda: missing)
    code, problems = document(capsys, "--failed-only")
    assert code == cli.EXIT_ERROR
    assert "ok" not in {check["state"] for check in problems}
    assert "fail" in {check["state"] for check in problems}
