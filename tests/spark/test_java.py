from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from mainstem.spark import java as module
from mainstem.spark.session import LOCAL_CHECKPOINTS, settings

pytestmark = pytest.mark.spark


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere:/bin" if not Path("/bin/java").exists() else "/nowhere")
    monkeypatch.setenv("JAVA_HOME", "")


@pytest.mark.usefixtures("no_java")
def test_the_bundled_java_starts_with_the_argument_that_spark_always_passes(tmp_path: Path) -> None:
    home = module.ensure_java(tmp_path / "cache")
    assert os.environ["JAVA_HOME"] == home
    command = [f"{home}/bin/java", "-Xshare:auto", "--add-modules=jdk.incubator.vector", "-Da=b c", "-version"]
    done = subprocess.run(command, capture_output=True, text=True, env={"PATH": "/bin:/usr/bin"}, check=False)
    assert done.returncode == 0, done.stderr
    assert "version" in done.stderr
    # Run once more into the same directory, as another process might.
    os.environ["JAVA_HOME"] = ""
    assert module.ensure_java(tmp_path / "cache") == home


def test_a_working_java_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = tmp_path / "bin" / "java"
    launcher.parent.mkdir()
    launcher.write_text("#!/bin/sh\nexit 0\n")
    launcher.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert module.ensure_java(tmp_path / "cache") == str(tmp_path)
    assert not (tmp_path / "cache").exists()


def test_settings_for_local_paths_are_for_local_masters_only() -> None:
    assert LOCAL_CHECKPOINTS.items() <= settings("local[2]", 2).items()
    assert not LOCAL_CHECKPOINTS.keys() & settings("spark://host:7077", 2).keys()
