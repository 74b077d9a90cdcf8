"""Blocking objects, each a wrapper of an asyncio object whose event loop has a thread (:mod:`mainstem._internal.loop_thread`).

A blocking class names the asyncio methods that it wraps: ``read = waits(aio.Stream.read)``. Parameters and documentation are
written once, in the asyncio method. Any thread may call the methods. Such a class has ``_inner``, the asyncio object, and
``_thread``.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

P = ParamSpec("P")
R = TypeVar("R")


def waits(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]],
    *,
    undo: Callable[[Any, Any], object] | None = None,
) -> Callable[Concatenate[Any, P], R]:
    """Make a blocking method from a coroutine function.

    If an exception interrupts the caller, ``undo`` is called in the loop's thread, with the asyncio object and what the method
    returned or raised.
    """

    @functools.wraps(method)
    def call(self: Any, /, *arguments: P.args, **options: P.kwargs) -> R:
        inner = self._inner
        bound = getattr(inner, method.__name__)
        result: R = self._thread.run(
            lambda: bound(*arguments, **options), undo=None if undo is None else functools.partial(undo, inner)
        )
        return result

    return _documented(call)


def runs(
    method: Callable[Concatenate[Any, P], R], *, undo: Callable[[Any, Any], object] | None = None
) -> Callable[Concatenate[Any, P], R]:
    """Make a blocking method from a plain one, which runs in the loop's thread; ``undo`` is as for `waits`."""

    @functools.wraps(method)
    def call(self: Any, /, *arguments: P.args, **options: P.kwargs) -> R:
        inner = self._inner
        bound = getattr(inner, method.__name__)
        result: R = self._thread.call(
            lambda: bound(*arguments, **options), undo=None if undo is None else functools.partial(undo, inner)
        )
        return result

    return _documented(call)


def asks(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """Make a method from a plain one that any thread may call, such as one that reads numbers."""

    @functools.wraps(method)
    def call(self: Any, /, *arguments: P.args, **options: P.kwargs) -> R:
        result: R = getattr(self._inner, method.__name__)(*arguments, **options)
        return result

    return _documented(call)


def _documented(call: Callable[P, R]) -> Callable[P, R]:
    """Turn the examples of an asyncio method into blocking ones."""
    text = call.__doc__ or ""
    call.__doc__ = re.sub(
        r"^( *(?:>>>|\.\.\.) .*)$", lambda line: re.sub(r"\b(await|async) ", "", line[0]), text, flags=re.MULTILINE
    )
    return call
