"""Claiming a directory for a new driver, but never that of a live driver (docs/protocols/aeron.md, 1).

The distinct errors of a dead driver are saved in a file next to the directory.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from mainstem.aeron.cnc import CncFile
from mainstem.aeron.directory import IMAGES, PUBLICATIONS, check_deletable
from mainstem.aeron.error_log import read_errors
from mainstem.errors import ActiveDriverError, ConfigurationError

if TYPE_CHECKING:
    from datetime import datetime

    from mainstem.aeron.files import Files

logger = logging.getLogger("mainstem.aeron.driver")


def claim_directory(
    files: Files,
    directory: str,
    *,
    now_ms: int,
    driver_timeout_ms: int,
    delete_on_start: bool,
    warn_if_exists: bool,
    mode: int | None = None,
    group: str = "",
) -> None:
    """Create an empty ``directory`` for a driver, with the given mode and group, in place of an existing one.

    Raises ConfigurationError if the directory isn't a driver's. Raises ActiveDriverError if the heartbeat of its driver is younger
    than ``driver_timeout_ms``, unless ``delete_on_start`` is set.
    """
    check_deletable(files, directory)
    if files.exists(directory):
        if warn_if_exists:
            logger.warning("directory %s already exists", directory)
        if not delete_on_start:
            _refuse_active(files, directory, now_ms=now_ms, timeout_ms=driver_timeout_ms)
            _keep_errors(files, directory, now_ms=now_ms)
        files.delete_directory(directory)
    for path in (directory, f"{directory}/{PUBLICATIONS}", f"{directory}/{IMAGES}"):
        files.make_directory(path, mode=mode, group=group)


def delete_own_directory(files: Files, directory: str) -> None:
    """Delete the directory of a driver that ends. If it is no longer a driver's directory, log a warning and leave it."""
    try:
        check_deletable(files, directory)
    except ConfigurationError as error:
        logger.warning("the driver's directory was not deleted: %s", error)
    else:
        files.delete_directory(directory)


def _map(files: Files, directory: str) -> CncFile | None:
    try:
        return CncFile.map(files, directory)
    except ConfigurationError as error:
        logger.warning("cannot read the CnC file in %s: %s", directory, error)
        return None


def _refuse_active(files: Files, directory: str, *, now_ms: int, timeout_ms: int) -> None:
    cnc = _map(files, directory)
    if cnc is None:
        return
    try:
        if cnc.is_driver_active(now_ms=now_ms, timeout_ms=timeout_ms):
            age = now_ms - cnc.to_driver.consumer_heartbeat_ms
            raise ActiveDriverError(
                f"an active driver (pid {cnc.pid}) uses {directory}: its heartbeat is {age} ms old, the limit {timeout_ms} ms"
            )
    finally:
        cnc.close()


def _keep_errors(files: Files, directory: str, *, now_ms: int) -> None:
    cnc = _map(files, directory)
    if cnc is None:
        return
    try:
        lines = [
            f"{error.observation_count} observations from {_time(error.first_observation_ms)} "
            f"to {_time(error.last_observation_ms)} for:\n{error.text}\n"
            for error in read_errors(cnc.error_log)
        ]
    finally:
        cnc.close()
    if lines:
        stamp = _moment(now_ms).strftime("%Y-%m-%d-%H-%M-%S-%f")[:-3]
        path = f"{directory}-{stamp}-error.log"
        files.write_bytes(path, "\n".join(lines).encode())
        logger.warning("the previous driver's errors were saved in %s", path)


def _time(epoch_ms: int) -> str:
    try:
        return _moment(epoch_ms).isoformat(sep=" ", timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return f"{epoch_ms} ms"  # any process that can write the log may have written it


def _moment(epoch_ms: int) -> datetime:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(epoch_ms / 1000, UTC)
