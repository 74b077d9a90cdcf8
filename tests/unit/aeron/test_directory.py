"""A driver deletes a directory only if it is a driver's; otherwise it says which one it keeps, and why."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from tests.unit.aeron.tools.driver_files import DriverFiles

from mainstem import MediaDriver, cli
from mainstem.aeron.directory import check_deletable, user_directory
from mainstem.aeron.files import MappedFiles, MemoryFiles
from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path


def fill(directory: Path, *names: str) -> Path:
    for name in names:
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text("precious")
    return directory


def refusal(directory: Path) -> str:
    with pytest.raises(ConfigurationError) as refused:
        check_deletable(MappedFiles(), str(directory))
    assert str(directory) in str(refused.value)
    return str(refused.value)


def test_missing_empty_and_driver_directories_may_be_deleted(tmp_path: Path) -> None:
    files = MappedFiles()
    check_deletable(files, str(tmp_path / "missing"))
    check_deletable(files, str(tmp_path))
    check_deletable(
        files, str(fill(tmp_path / "a", "publications/7.logbuffer", "images/8.logbuffer", "loss-report.dat"))
    )
    (tmp_path / "b").mkdir()
    driver = DriverFiles(tmp_path / "b")
    driver.cnc.close()
    check_deletable(files, str(fill(tmp_path / "b", "notes.txt")))


@pytest.mark.parametrize(
    "name", ["thesis.tex", "images/holiday.jpg", "publications/7/paper.pdf", "images/deep/9.logbuffer"]
)
def test_a_directory_with_other_files_is_kept(tmp_path: Path, name: str) -> None:
    assert repr(name) in refusal(fill(tmp_path, name, "loss-report.dat"))


def test_a_file_and_a_symbolic_link_are_kept(tmp_path: Path) -> None:
    fill(tmp_path, "file", "directory/thesis.tex")
    assert "not a directory" in refusal(tmp_path / "file")
    for target in ("directory", "nowhere"):
        link = tmp_path / f"link-to-{target}"
        link.symlink_to(tmp_path / target)
        assert "symbolic link" in refusal(link)


def test_a_directory_of_another_user_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = DriverFiles(tmp_path)
    driver.cnc.close()
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert "belongs to user" in refusal(tmp_path)


def test_files_in_memory_are_checked_alike() -> None:
    files = MemoryFiles()
    check_deletable(files, "/aeron")
    files.make_directory("/aeron")
    check_deletable(files, "/aeron")
    files.write_bytes("/aeron/thesis.tex", b"precious")
    with pytest.raises(ConfigurationError, match="thesis"):
        check_deletable(files, "/aeron")


def test_a_user_name_that_is_a_path_does_not_lead_elsewhere() -> None:
    assert user_directory({"USER": "anna"}).endswith("/aeron-anna")
    assert user_directory({"USER": "x/../../home/anna"}) == user_directory({})


@pytest.mark.parametrize("threads", [True, False], ids=["in this process", "in a process of its own"])
def test_a_driver_refuses_a_directory_that_is_not_a_drivers(tmp_path: Path, threads: bool) -> None:
    fill(tmp_path, "thesis.tex")
    with pytest.raises(ConfigurationError, match=r"thesis\.tex"):
        MediaDriver.launch(tmp_path, threads=threads)
    assert (tmp_path / "thesis.tex").read_text() == "precious"


def test_the_command_rejects_it_in_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(tmp_path / "directory", "thesis.tex")
    (tmp_path / "link").symlink_to(tmp_path / "directory")
    for name in ("directory", "link"):
        with pytest.raises(SystemExit) as end:
            cli.main(["driver", "--dir", str(tmp_path / name)])
        assert end.value.code == cli.EXIT_ERROR
        (line,) = capsys.readouterr().err.splitlines()
        assert str(tmp_path / name) in line
    assert (tmp_path / "directory" / "thesis.tex").exists()


def test_a_replaced_directory_is_left_alone(tmp_path: Path) -> None:
    driver = MediaDriver.launch(tmp_path / "aeron", threads=True, dir_delete_on_shutdown=True)
    (tmp_path / "aeron").rename(tmp_path / "moved")
    fill(tmp_path, "aeron/thesis.tex")
    driver.close()
    assert (tmp_path / "aeron" / "thesis.tex").exists()
