"""Enums that cost no more than other attributes: the protocol reads their members many times a message."""

from __future__ import annotations

from enum import Enum
from typing import TypeVar

E = TypeVar("E", bound=Enum)


def direct(kind: type[E]) -> type[E]:
    """Decorate an Enum: its members become plain attributes of the class, and are hashed by identity.

    Python 3.11 reaches a member through a descriptor that is written in Python, ten times slower than an attribute,
    and every version hashes it by its name. Nothing else changes: each member exists once.
    """
    for name, member in kind.__members__.items():
        type.__setattr__(kind, name, member)
    type.__setattr__(kind, "__hash__", object.__hash__)
    return kind
