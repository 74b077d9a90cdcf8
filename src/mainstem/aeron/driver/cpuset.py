"""The cpuset of the driver's control group, for ``AERON_DRIVER_CPUSET_AFFINITY`` (docs/protocols/aeron.md, 24)."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mainstem.aeron.driver.settings import DriverSettings

logger = logging.getLogger("mainstem.aeron.driver")

CGROUP = "/proc/self/cgroup"
CGROUP_MOUNT = "/sys/fs/cgroup"
PROCESSORS = "/sys/devices/system/cpu"
EFFECTIVE = "cpuset.cpus.effective"


def parse_cpu_list(text: str) -> list[int]:
    """Return the processors in a list such as ``0-3,8``, sorted. Raises ConfigurationError."""
    found: set[int] = set()
    for part in text.strip().split(","):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ConfigurationError(f"{text.strip()!r} is not a list of processors such as 0-3,8")
        found |= set(range(int(first), int(last if dash else first) + 1))
    return sorted(found)


def cpuset(cgroup: str = CGROUP, mount: str = CGROUP_MOUNT) -> list[int]:
    """Return the processors of the nearest control group with a cpuset, starting at this process's. Raises ConfigurationError."""
    try:
        with open(cgroup, encoding="ascii") as file:
            paths = [line.rstrip("\n")[3:] for line in file if line.startswith("0::")]
    except OSError as error:
        raise ConfigurationError(f"AERON_DRIVER_CPUSET_AFFINITY: {error}") from error
    path = paths[0].rstrip("/") if paths else ""
    while True:
        with suppress(OSError), open(f"{mount}{path}/{EFFECTIVE}", encoding="ascii") as file:
            return parse_cpu_list(file.read())
        if not path:
            raise ConfigurationError(
                f"AERON_DRIVER_CPUSET_AFFINITY: no control group of this process has {EFFECTIVE} below {mount};"
                " control groups of version 2 are required"
            )
        path = path.rpartition("/")[0]


def cpuset_warnings(cpus: list[int], root: str = PROCESSORS) -> list[str]:
    """Return a warning for each kind of resource (cores, dies, L3 caches) that a cpuset splits, as far as the system reports it."""
    warnings = []
    missing = {
        sibling
        for cpu in cpus
        for sibling in _list_of(root, cpu, "topology/thread_siblings_list")
        if sibling not in cpus and len(cpus) > 1
    }
    if missing:
        warnings.append(f"the cpuset lacks CPU {_text(missing)} of cores that it has CPUs of")
    dies = {_number_of(root, cpu, "topology/die_id") for cpu in cpus}
    if len(dies) > 1 and None not in dies:
        warnings.append(f"the cpuset spans {len(dies)} dies")
    shared = _list_of(root, cpus[0], "cache/index3/shared_cpu_list")
    if shared and not set(cpus) <= set(shared):
        warnings.append("the cpuset spans several L3 caches")
    return warnings


def processor(settings: DriverSettings, agent: str) -> int:
    """Return the processor of an agent's thread, or -1 for any. Raises ConfigurationError if this process may not use it."""
    name = f"AERON_{agent.upper()}_CPU_AFFINITY"
    cpu: int = getattr(settings, f"{agent}_cpu_affinity")
    if settings.driver_cpuset_affinity and cpu >= 0:
        cpus = cpuset()
        if cpu >= len(cpus):
            raise ConfigurationError(
                f"{name} {cpu} must be below the {len(cpus)} processors of the cpuset {_text(cpus)}"
            )
        cpu = cpus[cpu]
    allowed = os.sched_getaffinity(0)
    if cpu >= 0 and cpu not in allowed:
        raise ConfigurationError(f"{name} {cpu} is not available to this process; choose one of {_text(allowed)}")
    return cpu


def check_cpuset(settings: DriverSettings) -> None:
    """Log warnings about the cpuset, or raise ConfigurationError if the settings treat warnings as errors."""
    if not settings.driver_cpuset_affinity:
        return
    warnings = cpuset_warnings(cpuset())
    if warnings and settings.driver_cpuset_warnings_as_errors:
        raise ConfigurationError(f"AERON_DRIVER_CPUSET_WARNINGS_AS_ERRORS: {'; '.join(warnings)}")
    for warning in warnings:
        logger.warning("%s", warning)


def _text(cpus: Iterable[int]) -> str:
    return ", ".join(str(each) for each in sorted(cpus))


def _list_of(root: str, cpu: int, name: str) -> list[int]:
    with suppress(OSError, ConfigurationError), open(f"{root}/cpu{cpu}/{name}", encoding="ascii") as file:
        return parse_cpu_list(file.read())
    return []


def _number_of(root: str, cpu: int, name: str) -> int | None:
    with suppress(OSError, ValueError), open(f"{root}/cpu{cpu}/{name}", encoding="ascii") as file:
        return int(file.read())
    return None
