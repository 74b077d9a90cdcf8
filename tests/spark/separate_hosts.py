"""Programs of a query whose hosts share no directory: recorder and server, and Spark's driver.

python -m tests.spark.separate_hosts station DIRECTORY ADDRESS
python -m tests.spark.separate_hosts query DIRECTORY MASTER ADDRESS URL
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PORT, STREAM = 8480, 1001
CHANNEL = "aeron:ipc?term-length=1m"
TIMEOUT_S = 600.0
SLOW_START = "Python worker failed to connect back"


def payload(number: int) -> bytes:
    return number.to_bytes(8, "big") * (1 + number % 100)


def station(directory: Path, address: str) -> None:
    """Run a driver, a recorder, a server and a publisher that publishes up to each number that it reads from standard input."""
    from mainstem import Aeron, MediaDriver

    recordings, python = str(directory / "recordings"), [sys.executable, "-m", "mainstem"]
    with MediaDriver.launch() as driver:
        programs = [
            [*python, "record", CHANNEL, "--stream", str(STREAM), "--out", recordings, "--dir", driver.directory],
            [*python, "serve", recordings, "--listen", f"{address}:{PORT}", "--token-file", str(directory / "token")],
        ]
        programs[1] += ["--tls-cert", str(directory / "cert.pem"), "--tls-key", str(directory / "key.pem")]
        (directory / "recordings").mkdir()
        running = [subprocess.Popen(program, stdout=sys.stderr) for program in programs]
        try:
            with Aeron.connect(driver.directory) as aeron, aeron.add_exclusive_publication(CHANNEL, STREAM) as out:
                number = 0
                for line in sys.stdin:
                    while number < int(line):
                        out.send(payload(number), timeout=TIMEOUT_S)
                        number += 1
                    print(number, flush=True)
        finally:
            for process in running:
                process.terminate()
                process.wait(TIMEOUT_S)


def query(directory: Path, master: str, address: str, url: str) -> None:
    """Run the query; this process receives each micro-batch and prints a line for it. Ends when its input ends."""
    from mainstem.spark import create_session

    config = {
        "spark.driver.host": address,
        "spark.driver.bindAddress": address,
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.executor.memory": "512m",
        "spark.local.dir": str(directory / "spark"),
        "spark.sql.shuffle.partitions": "2",
    }
    spark = create_session("machines", master=master, config=config)
    batches: dict[int, list[int]] = {}

    def collect(df: DataFrame, batch_id: int) -> None:
        rows = df.selectExpr("payload", "spark_partition_id() part").collect()
        numbers = [int.from_bytes(bytes(row.payload)[:8], "big") for row in rows]
        assert all(bytes(row.payload) == payload(number) for row, number in zip(rows, numbers, strict=True))
        # A micro-batch that is run again replaces its first run.
        batches[batch_id] = numbers
        say({"batch": batch_id, "rows": len(rows), "rows_in_all": sum(map(len, batches.values()))})

    options = {"token": (directory / "token").read_text(), "ca": str(directory / "ca.pem"), "minPartitions": "4"}
    source = spark.readStream.format("mainstem.recording").options(**options, maxRowsPerTrigger="3000").load(url)
    table = source.writeStream.foreachBatch(collect).option("checkpointLocation", str(directory / "checkpoint"))
    running = table.start()
    for line in sys.stdin:
        deadline = time.monotonic() + TIMEOUT_S
        while sum(map(len, batches.values())) < int(line):
            if not running.isActive:
                # Spark gives a Python process ten seconds to start, which can be too short on a busy machine.
                assert SLOW_START in str(running.exception()), running.exception()
                say({"begun_again": batches and max(batches)})
                running = table.start()
            assert time.monotonic() < deadline
            time.sleep(0.1)
        numbers = sorted(number for rows in batches.values() for number in rows)
        executors = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
        say({"each_once": numbers == list(range(int(line))), "messages": len(numbers), "executors": executors})
    running.stop()
    spark.stop()


def say(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    role, location, *arguments = sys.argv[1:]
    station(Path(location), *arguments) if role == "station" else query(Path(location), *arguments)
