"""The JVM options of a session, combined with options from other sources."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mainstem.spark.java import COLLECTOR, UNCHECKED_ARROW, java_options

if TYPE_CHECKING:
    from pathlib import Path

BOTH = ("spark.driver.defaultJavaOptions", "spark.executor.defaultJavaOptions")


@pytest.fixture(autouse=True)
def nothing_given(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))


def test_the_driver_and_the_executors_get_the_same() -> None:
    assert java_options({}) == dict.fromkeys(BOTH, f"{COLLECTOR} {UNCHECKED_ARROW}")


@pytest.mark.parametrize("key", [*BOTH, "spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"])
def test_no_second_collector_if_the_session_sets_one(key: str) -> None:
    assert java_options({key: "-Xss4m -XX:+UseG1GC"}) == dict.fromkeys(BOTH, UNCHECKED_ARROW)
    # These options tune or disable a collector, but select none.
    assert java_options({key: "-XX:MaxGCPauseMillis=50 -XX:-UseG1GC"}) == java_options({})


@pytest.mark.parametrize("name", ["JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"])
def test_no_second_collector_if_the_environment_sets_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "-XX:+UseZGC")
    assert java_options({}) == dict.fromkeys(BOTH, UNCHECKED_ARROW)


def test_no_second_collector_if_spark_defaults_set_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "spark-defaults.conf").write_text("spark.driver.extraJavaOptions  -XX:+UseShenandoahGC\n")
    assert java_options({}) == dict.fromkeys(BOTH, UNCHECKED_ARROW)
    monkeypatch.delenv("SPARK_CONF_DIR")
    assert java_options({}) == dict.fromkeys(BOTH, f"{COLLECTOR} {UNCHECKED_ARROW}")
    (tmp_path / "conf").mkdir()
    (tmp_path / "spark-defaults.conf").rename(tmp_path / "conf" / "spark-defaults.conf")
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert java_options({}) == dict.fromkeys(BOTH, UNCHECKED_ARROW)
