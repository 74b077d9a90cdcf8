"""Cancel awaitables at a seeded await, list everything awaitable in a package, and check for leftovers.

A coroutine is driven step by step. Each time it waits counts as one await, numbered from 1, no matter how deep in the stack it
waits. At the chosen await, its task is cancelled in one of three ways, each of which is a different race: at once; after some turns
of the event loop; or in the same turn in which the awaited future completes, when the result exists and the task has not run yet.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import inspect
import os
import pkgutil
import random
import re
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tests.support.waiting import STALL_S

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Iterator
    from types import ModuleType

T = TypeVar("T")

# The await at which a call is cancelled, if the call waits that often.
AWAITS = (1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 4, 4, 5, 6, 7, 8, 10, 13, 17)
# The share of calls for which a cancellation is planned. Calls that wait less often than planned are not cancelled.
LIKELIHOOD = 0.8
WAITING_METHODS = ("__await__", "__anext__", "__aiter__", "__aenter__", "__aexit__")


class Watched(Generic[T]):
    """An awaitable that counts its awaits. It calls ``at_await`` with the number of each await and the awaited future."""

    def __init__(self, awaitable: Awaitable[T], at_await: Callable[[int, Any], None]) -> None:
        self._awaitable = awaitable
        self._at_await = at_await

    def __await__(self) -> Generator[Any, Any, T]:
        steps = self._awaitable.__await__()
        count = 0
        error: BaseException | None = None
        try:
            while True:
                waits_for = next(steps) if error is None else steps.throw(error)  # type: ignore[attr-defined]
                count += 1
                self._at_await(count, waits_for)
                try:
                    yield waits_for
                    error = None
                except BaseException as thrown:
                    error = thrown
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        finally:
            del error  # the error's traceback refers to this frame, a cycle that would keep the call's resources alive


def _call_later(turns: int, call: Callable[[], object]) -> None:
    """Call a function after the given number of turns of the event loop."""
    if turns:
        asyncio.get_running_loop().call_soon(_call_later, turns - 1, call)
    else:
        call()


class Canceller:
    """Run calls of an API and cancel most of those that wait. ``cancelled`` counts by name and await, ``calls`` by name."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.calls: Counter[str] = Counter()
        self.waited: Counter[str] = Counter()
        self.cancelled: Counter[tuple[str, int]] = Counter()

    async def once(self, name: str, call: Callable[[], Awaitable[T]], *, always: bool = False) -> tuple[bool, T | None]:
        """Run a call; return whether it completed, and its result. ``always`` cancels a call that would never return."""
        rng = self.rng
        cancel_at = rng.choice(AWAITS) if always or rng.random() < LIKELIHOOD else 0
        way = rng.choice(("at once", "later", "with its result"))
        turns = rng.randrange(1, 6)
        at = 0

        # This closure must not refer to the task, which would keep the call's resources alive until the next garbage collection.
        def at_await(count: int, waits_for: Any) -> None:
            nonlocal at
            at = count
            if count == 1:
                self.waited[name] += 1
            if count != cancel_at and not (always and count == 1 < cancel_at):
                return
            task = asyncio.current_task()
            assert task is not None
            if way == "at once" and not always:
                task.cancel()
            elif way == "with its result" and not always and asyncio.isfuture(waits_for):
                waits_for.add_done_callback(lambda _: task.cancel())
            else:
                _call_later(turns, task.cancel)

        async def run() -> T:
            return await Watched(call(), at_await)

        self.calls[name] += 1
        task = asyncio.ensure_future(run())
        # The task's exception is raised here, unless the caller is cancelled in the same turn.
        task.add_done_callback(lambda task: task.cancelled() or task.exception())
        try:
            await asyncio.wait({task})
            if task.cancelled():
                self.cancelled[name, at] += 1
                return False, None
            return True, task.result()
        finally:  # the caller itself can be cancelled
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def __call__(self, name: str, call: Callable[[], Awaitable[T]]) -> T:
        """Run a call again and again until one attempt completes; return its result."""
        while True:
            done, result = await self.once(name, call)
            if done:
                return result  # type: ignore[return-value]


# Everything awaitable in a package.


def _modules(root: ModuleType) -> Iterator[ModuleType]:
    yield root
    for info in pkgutil.walk_packages(getattr(root, "__path__", ()), f"{root.__name__}."):
        yield importlib.import_module(info.name)


def _is_awaited(function: Any) -> bool:
    opens = str(getattr(function, "__annotations__", {}).get("return", "")).startswith("Opening[")
    iterates = str(getattr(function, "__annotations__", {}).get("return", "")).startswith("AsyncIterator")
    return opens or iterates or inspect.iscoroutinefunction(function)


def awaitables(package: ModuleType, *more: str) -> set[str]:
    """Return the names of everything awaitable in a package's public API; ``more`` names modules that have some of its classes.

    The search covers the names in ``__all__`` and, recursively, every class that a public function, method or property returns.
    """
    homes = (package.__name__, "mainstem.mux", *more)
    roots = (
        [sys.modules[package.__name__.removesuffix(".aio")]]
        if not more
        else [package, *map(importlib.import_module, more)]
    )
    classes = {
        name: value
        for root in roots
        for module in _modules(root)
        for name, value in vars(module).items()
        if inspect.isclass(value) and value.__module__.startswith(homes) and ".blocking" not in value.__module__
    }
    left = [getattr(package, name) for name in package.__all__]
    seen: set[int] = set()
    names: set[str] = set()
    while left:
        item = left.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        functions = [item]
        if inspect.isclass(item):
            functions = []
            for name, member in inspect.getmembers_static(item):
                function = getattr(member, "fget", member)
                if name in WAITING_METHODS and not (name == "__aiter__" and hasattr(item, "__anext__")):
                    names.add(f"{item.__name__}.{name}")
                if not name.startswith("_") and inspect.isfunction(function):
                    functions.append(function)
                    if _is_awaited(function):
                        names.add(f"{item.__name__}.{name}")
        elif _is_awaited(item):
            names.add(item.__name__)
        for function in functions:
            returned = str(getattr(function, "__annotations__", {}).get("return", ""))
            left += [classes[word] for word in re.findall(r"\w+", returned) if word in classes]
    return names


# Leftovers.


def descriptors() -> set[str]:
    """Return this process's open file descriptors with their targets. uvloop keeps a spare descriptor of /dev/null."""
    names = set()
    for number in os.listdir("/proc/self/fd"):
        try:
            names.add(f"{number} {os.readlink(f'/proc/self/fd/{number}')}")
        except FileNotFoundError:  # the descriptor of the listed directory itself
            continue
    return {name for name in names if not name.endswith(" /dev/null")}


class Leftovers:
    """Finds what an event loop and a process have left behind between ``__init__`` and `check`."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._descriptors = descriptors()
        self.errors: list[dict[str, Any]] = []
        self._loop.set_exception_handler(lambda _, context: self.errors.append(context))

    def __str__(self) -> str:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        timers = [timer for timer in self._loop._scheduled if not timer.cancelled()]  # type: ignore[attr-defined]
        sockets = descriptors() - self._descriptors
        return ", ".join(
            f"{kind}: {left}" for kind, left in (("tasks", tasks), ("timers", timers), ("sockets", sockets)) if left
        )

    async def check(self, *, more: Callable[[], str] = lambda: "") -> None:
        """Raise if tasks, timers, descriptors or ``more`` are left, or if asyncio has reported an error."""
        until = self._loop.time() + STALL_S
        gc.collect()
        while (left := str(self) + more()) and self._loop.time() < until:
            await asyncio.sleep(0.001)
            gc.collect()
        assert not left, left
        assert not self.errors, self.errors
