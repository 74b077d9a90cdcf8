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
_MADE_BY_DRIVERS = re.compile(rf"{LOSS_REPORT_FILE}|({PUBLICATIONS}|{IMAGES})/\d+\.logbuffer")


def default_directory(environ: Mapping[str, str] = os.environ) -> str:
    """Returns the directory of a driver and its clients: ``AERON_DIR``, else ``user_directory``."""
    return environ.get("AERON_DIR") or user_directory(environ)


def user_directory(environ: Mapping[str, str] = os.environ) -> str:
    """Returns the default directory: ``/dev/shm/aeron-USER`` where there is shared memory, else in the temporary directory."""
    user = environ.get("USER", "")
    if not user or "/" in user:  # what has a slash would name another place
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
        return "default"  # a container may run under a user without an entry


def check_deletable(files: Files, directory: str) -> None:
    """Raises ConfigurationError unless a driver may delete the directory: it is missing, or a driver's own.

    A driver's own directory has a CnC file, or no other files than those that drivers make; it belongs to this user and is no
    symbolic link.
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
        others = [name for name in info.files if not _MADE_BY_DRIVERS.fullmatch(name)]
        reason = f"it holds {others[0]!r} and no {CNC_FILE}" if others else ""
    if reason:
        raise ConfigurationError(f"{directory} is not a driver's directory, which a driver would delete: {reason}")


def cnc_path(directory: str) -> str:
    """The command-and-control file."""
    return f"{directory}/{CNC_FILE}"


def loss_report_path(directory: str) -> str:
    """The loss report."""
    return f"{directory}/{LOSS_REPORT_FILE}"


def publication_path(directory: str, registration_id: int) -> str:
    """The log of a publication, named after the command that created it."""
    return f"{directory}/{PUBLICATIONS}/{registration_id}.logbuffer"


def image_path(directory: str, registration_id: int) -> str:
    """The log of an image."""
    return f"{directory}/{IMAGES}/{registration_id}.logbuffer"
