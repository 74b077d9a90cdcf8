"""Tests with other versions of Python and PySpark: ``nox --list`` shows the sessions.

``nox`` runs ``make test`` with every supported Python of this machine (tools/pythons.py), each in an environment of its own below
``build``. ``nox -s test -- tests/unit/mux`` runs only those tests. Everything else runs with ``make``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import nox

sys.path.insert(0, str(Path(__file__).parent / "tools"))
import pythons

nox.needs_version = ">=2024.10"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.reuse_existing_virtualenvs = True
nox.options.sessions = ["test"]

PYTHONS = pythons.pythons()
EXTRAS = "cli,tables,lakehouse,stores,codecs,quic,encryption,spark"
# The packages of the group `dev` that the tests of Spark import.
TESTING = (
    "confluent-kafka[avro,protobuf,schemaregistry]>=2.6",
    "moto[server]>=5.1",
    "pytest-xdist>=3.6",
    "pyyaml>=6",
)
SPARK_TESTS = (
    "tests/unit/spark",
    "tests/spark/test_capture_source.py",
    "tests/spark/test_channels.py",
    "tests/spark/test_codecs.py",
    "tests/spark/test_connect.py",
    "tests/spark/test_filtered_read.py",
    "tests/spark/test_ingest.py",
    "tests/spark/test_ingest_formats.py",
    "tests/spark/test_nulls.py",
    "tests/spark/test_recording_source.py",
    "tests/spark/test_sql.py",
    "tests/spark/test_table_filters.py",
    "tests/spark/test_tables.py",
)
CONNECT = ("grpcio>=1.76", "grpcio-status>=1.76", "googleapis-common-protos>=1.71", "zstandard>=0.25")


@nox.session(venv_backend="none")
@nox.parametrize("version", list(PYTHONS))
def test(session: nox.Session, version: str) -> None:
    """Run the tests with one version of Python."""
    variables = (f"PYTHON={PYTHONS[version]}", f"VENV=build/python{version}", f"REPORTS=build/tests/{version}")
    if session.posargs:
        session.run("make", "build", *variables, external=True)
        session.run(f"build/python{version}/bin/python", "-m", "pytest", *session.posargs, external=True)
    else:
        session.run("make", "test", *variables, external=True)


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
    project = nox.project.load_toml("pyproject.toml")
    session.install(*project["build-system"]["requires"], "wheel", *nox.project.dependency_groups(project, "test"))
    # Compiled in place, so that versions of PySpark can be tested in turn.
    uncompiled = {"MAINSTEM_COMPILE": "no"}
    extras = ("--no-build-isolation", "--editable", f".[{EXTRAS}]")
    session.install(*extras, *TESTING, *CONNECT, f"pyspark=={pyspark}", env=uncompiled)
    session.run("python", "setup.py", "--quiet", "build_ext", "--inplace")
    session.run("pytest", "-q", *(session.posargs or SPARK_TESTS))
