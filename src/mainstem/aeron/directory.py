"""The files of a driver's directory (behaviour, section 1)."""

from __future__ import annotations

import os
import pwd
import tempfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

CNC_FILE = "cnc.dat"
LOSS_REPORT_FILE = "loss-report.dat"
PUBLICATIONS = "publications"
IMAGES = "images"


def default_directory(environ: Mapping[str, str] = os.environ) -> str:
    """Returns the directory of a driver and its clients: ``AERON_DIR``, else ``user_directory``."""
    return environ.get("AERON_DIR") or user_directory(environ)


def user_directory(environ: Mapping[str, str] = os.environ) -> str:
    """Returns the default directory: ``/dev/shm/aeron-USER`` where there is shared memory, else in the temporary directory."""
    user = environ.get("USER") or _user_name()
    shared_memory = "/dev/shm"
    return f"{shared_memory if os.path.isdir(shared_memory) else tempfile.gettempdir()}/aeron-{user}"


def _user_name() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return "default"  # a container may run under a user without an entry


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
