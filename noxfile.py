"""Tests with other versions of Python and PySpark: ``nox --list`` shows the sessions.

Nox uses the Pythons on PATH; with uv installed, it downloads missing ones. Everything else runs with `make`.
"""

from __future__ import annotations

import nox

nox.needs_version = ">=2024.10"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.reuse_existing_virtualenvs = True
nox.options.sessions = ["unit"]

EXTRAS = "cli,tables,lakehouse,stores,codecs,quic,quic-aioquic,encryption"
# The packages of the group `dev` that tests/unit imports.
TESTING = (
    "confluent-kafka[avro,protobuf,schemaregistry]>=2.6",
    "duckdb>=1.2",
    "moto[server]>=5.1",
    "pandas>=2.2,<3",
    "pytest-xdist>=3.6",
    "pytz",
    "pyyaml>=6",
)
# These need PySpark.
WITHOUT_SPARK = (
    "--ignore=tests/unit/spark",
    "--ignore=tests/unit/demo",
    "--ignore=tests/unit/capture/test_remote_captures.py",
    "--ignore=tests/unit/codecs/test_hostile_messages.py",
    "--ignore=tests/unit/test_benchmark_options.py",
)
SPARK_TESTS = (
    "tests/unit/spark/test_features.py",
    "tests/unit/spark/test_options.py",
    "tests/unit/spark/test_planning.py",
    "tests/unit/spark/test_sql_tables.py",
    "tests/spark/test_sql.py",
    "tests/spark/test_recording_source.py",
    "tests/spark/test_capture_source.py",
    "tests/spark/test_channels.py",
    "tests/spark/test_filtered_read.py",
    "tests/spark/test_connect.py",
)
CONNECT = ("grpcio>=1.76", "grpcio-status>=1.76", "googleapis-common-protos>=1.71", "zstandard>=0.25")


def install(session: nox.Session, extras: str, *packages: str) -> None:
    """Install the working copy, compiled in place, so that versions of Python can be tested in turn."""
    session.install(*nox.project.load_toml("pyproject.toml")["build-system"]["requires"], "wheel")
    session.install(*nox.project.dependency_groups(nox.project.load_toml("pyproject.toml"), "test"), *packages)
    session.install("--no-build-isolation", "--editable", f".[{extras}]", env={"MAINSTEM_COMPILE": "no"})
    session.run("python", "setup.py", "--quiet", "build_ext", "--inplace")


@nox.session(python=["3.11", "3.12", "3.13", "3.14"])
def unit(session: nox.Session) -> None:
    """Run the unit tests."""
    install(session, EXTRAS, *TESTING)
    session.run("pytest", "-q", "-m", "not long", *WITHOUT_SPARK, *(session.posargs or ["tests/unit"]))


@nox.session(python=["3.14t"])
def free_threaded(session: nox.Session) -> None:
    """Run the unit tests that need no other package on a free-threaded Python, with the GIL that Mainstem enables again."""
    session.install("--group", "test", ".")
    session.env["PYTHON_GIL"] = "1"  # as the compiled modules request, but without their warning
    session.run("python", "tools/wheel.py", "--installed")


@nox.session(python=["3.11"])
@nox.parametrize("pyspark", ["4.0.5", "4.1.4", "4.2.1", "4.3.0"])
def spark(session: nox.Session, pyspark: str) -> None:
    """Run the tests of sources and sinks with the newest release of each minor version of PySpark."""
    install(session, f"{EXTRAS},spark,report", *TESTING, *CONNECT, f"pyspark=={pyspark}")
    session.run("pytest", "-q", *(session.posargs or SPARK_TESTS))
