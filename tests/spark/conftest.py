"""One JVM for all Spark tests: a session on two cores with a heap of 1 GiB."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
# PySpark 4.0 and 4.1 leave the socket through which ``collect`` receives its rows to the garbage collector. Both messages are parts
# of one warning.
UNCLOSED = (
    "ignore:unclosed <socket:ResourceWarning",
    "ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not pyspark.__version__.startswith(("4.0.", "4.1.")):
        return
    for item in items:
        if Path(__file__).parent in item.path.parents:
            for each in UNCLOSED:
                item.add_marker(pytest.mark.filterwarnings(each))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    # The workers are separate processes; this makes them find the package and the test helpers as this process does.
    if "PYTEST_XDIST_WORKER" in os.environ:
        # Fails if another worker of this run has a session; tests/conftest.py prevents that.
        (tmp_path_factory.getbasetemp().parent / "spark-session").touch(exist_ok=False)
    paths = [str(ROOT / "src"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    from mainstem.spark import create_session

    directory = str(tmp_path_factory.mktemp("spark"))
    config = {
        "spark.sql.warehouse.dir": directory,
        "spark.local.dir": directory,
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        "spark.driver.memory": "1g",
        # On a busy machine, a worker may need more than Spark's 15 seconds to start.
        "spark.python.authenticate.socketTimeout": "500s",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dderby.system.home=" + directory,
    }
    made = create_session("tests", master="local[2]", config=config)
    yield made
    made.stop()
