"""Closes objects that a program leaves open, while the interpreter is still intact.

A finalizer that runs while the interpreter tears down modules finds half of them gone, and threads stopped with their locks held.
So objects that need threads, files or other modules to close register here. They are finalized before the teardown, the newest
first: clients before their drivers.

A child process created by ``os.fork`` has copies of these objects and maps the same shared memory, but their threads exist only in
the parent. If the child closed them, it would close the parent's objects. So as soon as the child starts, it leaves each
registered object to the parent.
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

INHERITED = "the connection belongs to the parent of this process: connect after the fork"
"""The text of the ClosedError that a connection's calls raise in a forked child."""

_numbers = itertools.count()
_registered: MutableMapping[tuple[int, int], Any] = WeakValueDictionary()
# Objects that matter only to forked children.
_left_at_fork: MutableMapping[tuple[int, int], Any] = WeakValueDictionary()


def close_at_exit(resource: Any) -> None:
    """Run ``resource.__del__`` at the end of this process, unless the object is gone by then.

    In a forked child, ``resource._leave_to_parent()`` runs at once instead, if it has that method.
    """
    _registered[os.getpid(), next(_numbers)] = resource


def leave_at_fork(resource: Any) -> None:
    """Run ``resource._leave_to_parent()`` in every forked child, unless the object is gone by then."""
    _left_at_fork[os.getpid(), next(_numbers)] = resource


@atexit.register
def _close_all() -> None:
    for (pid, _number), resource in sorted(_registered.items(), key=lambda item: item[0], reverse=True):
        if pid == os.getpid():
            try:
                with suppress(MainstemError, OSError):
                    resource.__del__()
            except (
                ResourceWarning
            ) as warning:  # the program turns warnings into errors; the other objects must still be closed
                sys.stderr.write(f"ResourceWarning: {warning}\n")


def _leave_all_to_parent() -> None:
    # Drivers last, as at exit, because a client's memory belongs to a driver.
    everything = [*_registered.items(), *_left_at_fork.items()]
    for _key, resource in sorted(everything, key=lambda item: item[0], reverse=True):
        leave = getattr(resource, "_leave_to_parent", None)
        if leave is not None:
            leave()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_all_to_parent)
