"""The processors of a cpuset: reading them, splitting resources among them, and numbering them in settings."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from tests.support.invoked_driver import small_settings

from mainstem.aeron.driver import cpuset as module
from mainstem.aeron.driver.cpuset import check_cpuset, cpuset, cpuset_warnings, parse_cpu_list, processor
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="ascii")


def test_a_list_of_processors() -> None:
    assert parse_cpu_list("8,0-3,2\n") == [0, 1, 2, 3, 8]
    for text in ("", "1,,2", "-1", "0-", "x"):
        with pytest.raises(ConfigurationError, match="is not a list of processors"):
            parse_cpu_list(text)


def test_the_nearest_group_with_a_cpuset_counts(tmp_path: Path) -> None:
    cgroup = tmp_path / "cgroup"
    write(cgroup, "3:cpuset:/other\n0::/system/aeron\n")
    write(tmp_path / "mount/cpuset.cpus.effective", "0-7\n")
    assert cpuset(str(cgroup), str(tmp_path / "mount")) == list(range(8))
    write(tmp_path / "mount/system/cpuset.cpus.effective", "4-5\n")
    assert cpuset(str(cgroup), str(tmp_path / "mount")) == [4, 5]
    with pytest.raises(ConfigurationError, match="control groups of version 2 are required"):
        cpuset(str(cgroup), str(tmp_path / "none"))
    with pytest.raises(ConfigurationError, match="No such file"):
        cpuset(str(tmp_path / "none"), str(tmp_path / "mount"))


def test_resources_split_by_a_cpuset_are_named(tmp_path: Path) -> None:
    for cpu in range(4):
        pair = cpu // 2 * 2
        write(tmp_path / f"cpu{cpu}/topology/thread_siblings_list", f"{pair}-{pair + 1}\n")
        write(tmp_path / f"cpu{cpu}/topology/die_id", f"{cpu // 2}\n")
        write(tmp_path / f"cpu{cpu}/cache/index3/shared_cpu_list", f"{pair}-{pair + 1}\n")
    assert cpuset_warnings([0, 1], str(tmp_path)) == []
    assert cpuset_warnings([0], str(tmp_path)) == []
    assert cpuset_warnings([0, 1, 2], str(tmp_path)) == [
        "the cpuset lacks CPU 3 of cores that it has CPUs of",
        "the cpuset spans 2 dies",
        "the cpuset spans several L3 caches",
    ]
    assert cpuset_warnings([0, 1], str(tmp_path / "none")) == []


def test_settings_number_the_processors_of_the_cpuset(monkeypatch: pytest.MonkeyPatch) -> None:
    last = max(os.sched_getaffinity(0))
    monkeypatch.setattr(module, "cpuset", lambda: [last])
    settings = small_settings(driver_cpuset_affinity=True, sender_cpu_affinity=0, receiver_cpu_affinity=1)
    assert processor(settings, "sender") == last
    assert processor(settings, "conductor") == -1
    with pytest.raises(ConfigurationError, match="AERON_RECEIVER_CPU_AFFINITY 1 must be below the 1 processors"):
        processor(settings, "receiver")


def test_a_split_cpuset_is_a_warning_or_an_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "cpuset", lambda: [0, 1])
    monkeypatch.setattr(module, "cpuset_warnings", lambda _cpus: ["the cpuset spans 2 dies"])
    check_cpuset(small_settings(driver_cpuset_warnings_as_errors=True))
    check_cpuset(small_settings(driver_cpuset_affinity=True))
    assert caplog.messages == ["the cpuset spans 2 dies"]
    with pytest.raises(ConfigurationError, match="WARNINGS_AS_ERRORS: the cpuset spans 2 dies"):
        check_cpuset(small_settings(driver_cpuset_affinity=True, driver_cpuset_warnings_as_errors=True))
