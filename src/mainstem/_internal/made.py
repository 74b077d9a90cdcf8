"""Classes that are not called: a function such as ``connect`` makes their objects."""

from __future__ import annotations

from abc import ABCMeta
from typing import Any, TypeVar

T = TypeVar("T")


class Made(ABCMeta):
    """The type of such a class. Its keyword ``made_by`` says what to call instead of the class; Mainstem itself calls ``made``."""

    _made_by: str

    def __new__(
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], *, made_by: str = "", **options: Any
    ) -> Made:
        cls = super().__new__(mcs, name, bases, namespace, **options)
        if made_by:
            cls._made_by = made_by
        return cls

    def __call__(cls, *_: object, **__: object) -> Any:
        """Refuse the call. Raises TypeError, which names the function."""
        raise TypeError(f"call {cls._made_by} instead of {cls.__name__}()")

    def made(cls: type[T], *arguments: Any, **options: Any) -> T:
        """Return a new object of the class."""
        instance: T = ABCMeta.__call__(cls, *arguments, **options)
        return instance
