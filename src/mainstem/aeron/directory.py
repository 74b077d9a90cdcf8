"""The files of a driver's directory (docs/protocols/aeron.md, 1)."""

from __future__ import annotations

import os
import pwd
import re
from typing import TYPE_CHECKING

from mainstem.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mainstem.aeron.files import Files

CNC_FILE = "cnc.dat"
LOSS_REPORT_FILE = "loss-report.dat"
PUBLICATIONS = "publications"
IMAGES = "images"
_MADE_BY_DRIVERS = rf"{LOSS_REPORT_FILE}|({PUBLICATIONS}|{IMAGES})/\d+\.logbuffer"


def default_directory(environ: Mapping[str, str] = os.environ) -> str:
    """Return ``AERON_DIR`` if it is set, else `user_directory`."""
    return environ.get("AERON_DIR") or user_directory(environ)


def user_directory(environ: Mapping[str, str] = os.environ) -> str:
    """Return ``/dev/shm/aeron-USER`` if there is shared memory, else the same name in the temporary directory."""
    user = environ.get("USER", "")
    if not user or "/" in user:  # a name with a slash would point to a different directory
        user = _user_name()
    shared_memory = "/dev/shm"
    if os.path.isdir(shared_memory):
        return f"{shared_memory}/aeron-{user}"
    import tempfile

    return f"{tempfile.gettempdir()}/aeron-{user}"


def _user_name() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return "default"  # a container may run as a user that has no passwd entry


def check_deletable(files: Files, directory: str) -> None:
    """Raise ConfigurationError unless the directory is missing, or is a driver's directory that this process may delete.

    A driver's directory has a CnC file, or only files that drivers create. It belongs to this user and is not a symbolic link.
    """
    info = files.inspect(directory)
    if info is None:
        return
    reason = ""
    if info.is_link:
        reason = "it is a symbolic link"
    elif not info.is_directory:
        reason = "it is not a directory"
    elif info.owner:
        reason = f"it belongs to user {info.owner}"
    elif CNC_FILE not in info.files:
        others = [name for name in info.files if not re.fullmatch(_MADE_BY_DRIVERS, name)]
        reason = f"it holds {others[0]!r} and no {CNC_FILE}" if others else ""
    if reason:
        raise ConfigurationError(f"{directory} is not a driver's directory, which a driver would delete: {reason}")


def cnc_path(directory: str) -> str:
    return f"{directory}/{CNC_FILE}"


def loss_report_path(directory: str) -> str:
    return f"{directory}/{LOSS_REPORT_FILE}"


def publication_path(directory: str, registration_id: int) -> str:
    """Return the path of a publication's log, which is named after the correlation id of the command that created it."""
    return f"{directory}/{PUBLICATIONS}/{registration_id}.logbuffer"


def image_path(directory: str, registration_id: int) -> str:
    return f"{directory}/{IMAGES}/{registration_id}.logbuffer"
