"""What the planner learns about Spark from the command line of the JVM that started it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mainstem.spark.sources.parallelism import (
    UNKNOWN_PARALLELISM,
    launch_settings,
    launched_parallelism,
    parallelism_from,
)

if TYPE_CHECKING:
    from pathlib import Path

SUBMIT = ["/usr/bin/java", "-Xmx1g", "org.apache.spark.deploy.SparkSubmit"]


@pytest.mark.parametrize(
    ("arguments", "tasks"),
    [
        (["--conf", "spark.master=local[3]", "pyspark-shell"], 3),
        (["--master", "local", "app.py"], 1),
        (["--master", "local[*]", "app.py"], 6),
        (["--master", "local[*,4]", "app.py"], 6),
        (["app.py"], 6),
        (["--conf", "spark.default.parallelism=7", "--master", "local[3]", "app.py"], 7),
        (["--master", "yarn", "--num-executors", "10", "--executor-cores", "4", "app.py"], 40),
        (["-c", "spark.executor.instances=3", "-c", "spark.master=k8s://https://x", "app.py"], 3),
        (["--master", "spark://x:7077", "--total-executor-cores", "24", "app.py"], 24),
        (["-Dspark.master=mesos://x", "-Dspark.cores.max=12"], 12),
        (["--master", "yarn", "app.py"], None),
        (["--master", "yarn", "--num-executors", "many", "app.py"], None),
        (["--master", "yarn", "--conf"], None),
    ],
)
def test_the_settings_of_the_launch_say_how_many_tasks_run_at_once(arguments: list[str], tasks: int | None) -> None:
    assert parallelism_from(launch_settings([*SUBMIT, *arguments], {}), 6) == tasks


def test_the_command_line_overrides_the_defaults_file(tmp_path: Path) -> None:
    text = "# a comment\nspark.master   yarn\nspark.executor.instances=5\nspark.executor.cores: 2\n\nother 1\n"
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text(text)
    home = {"SPARK_HOME": str(tmp_path)}
    assert launch_settings(SUBMIT, home) == {
        "spark.master": "yarn",
        "spark.executor.instances": "5",
        "spark.executor.cores": "2",
    }
    assert parallelism_from(launch_settings([*SUBMIT, "--executor-cores", "8"], home), 6) == 40
    assert parallelism_from(launch_settings([*SUBMIT, "--master", "local[2]"], home), 6) == 2
    other = tmp_path / "other.conf"
    other.write_text("spark.default.parallelism 9\n")
    assert parallelism_from(launch_settings([*SUBMIT, "--properties-file", str(other)], home), 6) == 9
    assert launch_settings([*SUBMIT, "--properties-file", str(tmp_path / "none")], home) == {}


def test_without_a_jvm_the_parallelism_is_sparks_and_not_the_cpu_count() -> None:
    assert launched_parallelism() == UNKNOWN_PARALLELISM
