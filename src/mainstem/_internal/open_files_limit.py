"""The number of files that this process may have open."""

from __future__ import annotations

import logging
import resource

logger = logging.getLogger("mainstem")


def raise_open_files_limit() -> int:
    """Raise the limit on open files to its maximum, for programs whose peers use up descriptors. Return the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError) as error:
            logger.warning("at most %d files may be open: %s", soft, error)
            return soft
    return hard
