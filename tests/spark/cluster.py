"""Run ``mainstem ingest`` with spark-submit on a cluster, kill an executor with its worker midway, and count the rows.

    python -m tests.spark.cluster [--local-cluster] [--size 64m] [--wheel dist/mainstem-*.whl]

The cluster is a standalone one with two workers on this machine, or Spark's ``local-cluster`` with two executors. The workers have
no part of Mainstem except the one archive that comes with the job: the wheel, or an archive with the same contents.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyspark
from tests.support.ports import free_port

from mainstem._internal.units import parse_size

ROOT = Path(__file__).parents[2]
HOME = Path(pyspark.__file__).parent
# Without a commit for this long, the job is considered stalled. A slow machine takes its time, but it makes progress.
STALL_S = 300.0
EXECUTOR = b"CoarseGrainedExecutorBackend"


def archive(path: Path) -> None:
    """Write an archive with the contents of a wheel: the packages, compiled."""
    with zipfile.ZipFile(path, "w") as out:
        for file in [*(ROOT / "src" / "mainstem").rglob("*"), *(ROOT / "src").glob("pyspark_*.py")]:
            if file.suffix in (".py", ".so") and "__pycache__" not in file.parts:
                out.write(file, file.relative_to(ROOT / "src"))


def note_application(spark: Any, log: Path) -> None:
    """Add the id of a session's application to a file, for `remove_work`."""
    with log.open("a") as ids:
        ids.write(f"{spark.sparkContext.applicationId}\n")


def remove_work(log: Path) -> None:
    """Remove the folders of applications of local clusters, whose workers cannot use another place than PySpark's own."""
    for name in log.read_text().split() if log.exists() else ():
        shutil.rmtree(HOME / "work" / name, ignore_errors=True)


class Cluster:
    """A master and two workers, each in its own process group."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.master = f"spark://127.0.0.1:{free_port()}"
        host, port = "127.0.0.1", self.master.rpartition(":")[2]
        flags = ["--host", host, "--webui-port", "0"]
        self.processes = [self._start("master.Master", *flags, "--port", port)]
        for number in (1, 2):
            worker_flags = ["-d", str(directory / f"worker{number}"), "-c", "1", "-m", "1200m"]
            self.processes.append(self._start("worker.Worker", *flags, *worker_flags, self.master))

    def _start(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments]
        # The environment has none of this process's paths, because an executor has only what came with its job.
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {"SPARK_DAEMON_MEMORY": "256m"}
        with (self.directory / "cluster.log").open("ab") as log:
            return subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)

    def close(self) -> None:
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def descendants(pid: int) -> dict[int, bytes]:
    """Return the command lines of a process's descendants, by process id."""
    parents: dict[int, int] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError, IndexError):
            parents[int(name)] = int(Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1])
    found, level = {}, {pid}
    while level:
        level = {child for child, parent in parents.items() if parent in level}
        for child in level:
            with contextlib.suppress(OSError):
                found[child] = Path(f"/proc/{child}/cmdline").read_bytes()
    return found


def kill_one(roots: list[int]) -> int:
    """Kill one executor, and its worker if that is one of ``roots``; return how many executors there were."""
    executors = [pid for root in roots for pid, line in descendants(root).items() if EXECUTOR in line]
    for root in roots[1:]:
        below = [pid for pid, line in descendants(root).items() if EXECUTOR in line]
        if below:
            os.killpg(root, signal.SIGKILL)
            for pid in below:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return len(executors)
    if executors:
        os.kill(executors[0], signal.SIGKILL)
    return len(executors)


def submit(master: str, directory: Path, recordings: Path) -> subprocess.Popen[str]:
    settings = {
        "spark.executorEnv.PYTHONPATH": "wheel",
        "spark.executor.memory": "512m",
        "spark.driver.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.cores.max": "2",
        "spark.executor.cores": "1",
        "spark.sql.shuffle.partitions": "2",
    }
    command = [str(HOME / "bin" / "spark-submit"), "--master", master, "--archives", f"{directory}/mainstem.zip#wheel"]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    command += [
        str(ROOT / "src" / "mainstem" / "__main__.py"),
        "ingest",
        str(recordings),
        "--out",
        f"{directory}/table",
    ]
    command += ["--source-option", "maxBytesPerTrigger=4m", "--source-option", "minPartitions=4", "--json"]
    environment = os.environ | {
        "PYTHONPATH": str(ROOT / "src"),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_WORKER_DIR": str(directory / "work"),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    log = (directory / "submit.log").open("wb")
    with log:
        return subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
        )


class Look:
    """Watches a job's progress."""

    def __init__(self, job: subprocess.Popen[str], directory: Path) -> None:
        self._job, self._directory = job, directory
        self._seen, self._since = 0, time.monotonic()

    def commits(self) -> int:
        """Return how many micro-batches have been committed."""
        return sum(1 for _ in (self._directory / "table" / "_checkpoint" / "commits").glob("[0-9]*"))

    def on(self, *, may_end: bool = False) -> None:
        """Wait a moment. Fail if nothing was committed for too long, or if the job ended although ``may_end`` is false."""
        log = (self._directory / "submit.log").read_text(errors="replace")[-3000:]
        assert may_end or self._job.poll() is None, "the job ended: " + log
        if (seen := self.commits()) > self._seen:
            self._seen, self._since = seen, time.monotonic()
        assert time.monotonic() - self._since < STALL_S, "the job stands still: " + log
        time.sleep(0.05)


def run(size: int, *, local_cluster: bool, wheel: Path | None) -> dict[str, Any]:
    """Run the job once; return the results."""
    import pyarrow.parquet as pq

    sys.path.insert(0, str(ROOT / "benchmarks"))
    from harness.recordings import make

    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mainstem-cluster-")))
        messages = make(directory / "recordings", size)
        if wheel is None:
            archive(directory / "mainstem.zip")
        else:
            shutil.copyfile(wheel, directory / "mainstem.zip")
        if local_cluster:
            master, roots = "local-cluster[2,1,1024]", []
        else:
            cluster = Cluster(directory)
            stack.callback(cluster.close)
            master, roots = cluster.master, [process.pid for process in cluster.processes]
        started = time.monotonic()
        job = submit(master, directory, directory / "recordings")
        stack.callback(_end, job)
        look = Look(job, directory)
        while look.commits() < 2:
            look.on()
        # While Spark is restarting an executor, there may be none to kill.
        while not (executors := kill_one(roots or [job.pid])):
            look.on()
        while job.poll() is None:
            look.on(may_end=True)
        assert job.stdout is not None
        told = job.stdout.read()
        assert job.returncode == 0, (directory / "submit.log").read_text()[-3000:]
        listed = _listed(directory / "table")
        positions = [p for name in listed for p in pq.ParquetFile(name).read(["position"])["position"].to_pylist()]
        return {
            "master": master.partition(":")[0],
            "messages": messages,
            "rows": len(positions),
            "different": len(set(positions)),
            "executors_before_the_kill": executors,
            "seconds": round(time.monotonic() - started, 1),
            "each_once": len(positions) == len(set(positions)) == messages,
            "told": json.loads(told),
        }


def _listed(table: Path) -> list[str]:
    """Return the files that belong to the table according to Spark's own list; killed tasks leave others behind."""
    files: set[str] = set()
    log = table / "_spark_metadata"
    compacted = sorted(log.glob("*.compact"), key=lambda path: int(path.stem))
    first = int(compacted[-1].stem) if compacted else -1
    for path in [*compacted[-1:], *(p for p in log.glob("[0-9]*") if not p.suffix and int(p.name) > first)]:
        for line in path.read_text().splitlines()[1:]:
            entry = json.loads(line)
            (files.add if entry["action"] == "add" else files.discard)(entry["path"].removeprefix("file://"))
    return sorted(files)


def _end(job: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(job.pid, signal.SIGKILL)
    job.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--local-cluster", action="store_true")
    parser.add_argument("--size", default="64m")
    parser.add_argument("--wheel", type=Path)
    given = parser.parse_args()
    result = run(parse_size(given.size, name="--size"), local_cluster=given.local_cluster, wheel=given.wheel)
    print(json.dumps(result))
    if not result["each_once"]:
        sys.exit(1)


if __name__ == "__main__":
    main()
