"""Closes what a program leaves open, while the interpreter is still whole.

A finaliser that runs while modules are being taken down finds half of them gone, and threads stopped with their locks held. So what
needs threads, files or other modules to close registers here, and is finalised before that, the newest first: clients before
their drivers.

A child made by ``os.fork`` has copies of these objects and maps the same shared memory, but their threads stayed behind. What it
closed would be its parent's. So in the child each registered object is left to the parent as soon as the child begins.
"""

from __future__ import annotations

import atexit
import itertools
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from mainstem.errors import MainstemError

if TYPE_CHECKING:
    from collections.abc import MutableMapping

_numbers = itertools.count()
_registered: MutableMapping[tuple[int, int], Any] = WeakValueDictionary()


def close_at_exit(resource: Any) -> None:
    """Run ``resource.__del__`` at the end of this process, unless the object is gone by then.

    In a forked child ``resource._leave_to_parent()`` runs at once instead, where it has that method.
    """
    _registered[os.getpid(), next(_numbers)] = resource


@atexit.register
def _close_all() -> None:
    for (pid, _number), resource in sorted(_registered.items(), key=lambda item: item[0], reverse=True):
        if pid == os.getpid():
            try:
                with suppress(MainstemError, OSError):
                    resource.__del__()
            except (
                ResourceWarning
            ) as warning:  # of a program that makes errors of them: the others are still to be closed
                sys.stderr.write(f"ResourceWarning: {warning}\n")


def _leave_all_to_parent() -> None:
    # Drivers last, as at the end: a client's memory is a driver's.
    for _key, resource in sorted(_registered.items(), key=lambda item: item[0], reverse=True):
        leave = getattr(resource, "_leave_to_parent", None)
        if leave is not None:
            leave()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_all_to_parent)
