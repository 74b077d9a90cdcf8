"""Blocking objects, each a wrapper of an asyncio object whose event loop has a thread of its own.

Theory of operation
-------------------
A blocking class is a :class:`Facade` and names the asyncio methods that it wraps: ``read = waits(aio.Stream.read)``. Parameters and
documentation are written once, in the asyncio method. Any thread may call the methods. A call becomes a coroutine in the loop, and
the caller waits for its result; only the loop's thread ever touches protocol state. So several threads may call one object safely,
and their calls are ordered as the loop receives them.

A signal handler may raise in the waiting thread, at any time and any exception: a ``TimeoutError`` from an alarm, a
``KeyboardInterrupt``. The caller then gets no result, even if there is one. So the call is rolled back: its work is cancelled,
and if it already had a result, ``undo`` receives it and restores what would be lost with it, such as bytes that were read or a
stream that was accepted. The interrupted thread does not wait for the rollback. Later calls that may wait do, in the loop's
thread, before their own work: a read that follows an interrupted one finds the stream as it was.

A child created by ``os.fork`` does not have the loop's thread, even if it has started threads of its own. Every call on an
inherited object raises ClosedError there, and calls that only close something (``is_close``) do nothing.

The first step of a call is not rolled back: a plain function, which may return a coroutine for the rest, runs in the loop's
thread, in the order of the calls, whether or not the call is interrupted. A ``write`` queues its bytes there.

No other call may happen between the result of :meth:`LoopThread.run` and the caller's own code, because an exception there would
lose the result. So the coroutine, in the loop's thread, does everything that is derived from a result.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import re
import threading
import warnings
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, cast

from mainstem._internal.exit_cleanup import INHERITED
from mainstem._internal.tasks import HANDLER_TASK, within
from mainstem.errors import ClosedError, Delivery, MainstemError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Self

I = TypeVar("I", bound=Any)  # noqa: E741 - the inner object
P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

# How often a waiting caller checks that the loop's thread is alive.
LIVENESS_S = 1.0
# How long the remaining tasks may take to end when the loop is stopped.
END_TIMEOUT_S = 10.0
# Why a call is not started once the loop is ending.
CLOSED = "the connection is closed"


# -- blocking objects --------------------------------------------------------------------------------------------------


class Facade(Generic[I]):
    """Base class of blocking objects: the asyncio object for which it stands, and the thread of that object's event loop."""

    __slots__ = ("__weakref__", "_inner", "_thread")

    def __init__(self, thread: LoopThread, inner: I) -> None:
        self._thread = thread
        self._inner = inner

    @property
    def closed(self) -> bool:
        """Whether this object has ended and can no longer be used."""
        return self._thread.is_inherited or bool(self._inner.closed)

    @property
    def error(self) -> MainstemError | None:
        """The error that ended this object early.

        ``None`` while it is open, after an orderly end, and after an end on this side that lost nothing.
        """
        error: MainstemError | None = self._inner.error
        return error

    def __repr__(self) -> str:
        return repr(self._inner)

    def __enter__(self) -> Self:
        return self

    def _warn_if_open(self, *, owns_thread: bool) -> None:
        """Abort an object that the application dropped without closing, and stop the thread if it has its own. For ``__del__``."""
        inner = getattr(self, "_inner", None)
        if inner is not None and not self.closed:
            text = f"{inner!r} was dropped without being closed"
            (self._thread.stop_soon if owns_thread else self._thread.call_soon)(inner.abort)
            warnings.warn(text, ResourceWarning, stacklevel=3, source=self)


def abort_outcome(outcome: Facade[Any] | BaseException) -> None:
    """Abort the object that an interrupted call had made."""
    if not isinstance(outcome, BaseException):
        outcome._inner.abort()


# -- methods of blocking classes ---------------------------------------------------------------------------------------


def waits(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]],
    *,
    undo: Callable[[Any, Any], object] | None = None,
    is_close: bool = False,
) -> Callable[Concatenate[Any, P], R]:
    """Make a blocking method from a coroutine function.

    If an exception interrupts the caller, ``undo`` is called in the loop's thread, with the asyncio object and what the method
    returned or raised. If ``is_close``, the method returns None and does nothing in a forked child.
    """
    name = method.__name__

    @functools.wraps(method)
    def call(self: Any, /, *arguments: P.args, **options: P.kwargs) -> R:
        thread, inner = self._thread, self._inner
        if is_close and thread.is_inherited:
            return None  # type: ignore[return-value]
        work = functools.partial(getattr(inner, name), *arguments, **options)
        result: R = thread.run(work, undo=None if undo is None else functools.partial(undo, inner))
        return result

    return _documented(call)


def runs(
    method: Callable[Concatenate[Any, P], R],
    *,
    undo: Callable[[Any, Any], object] | None = None,
    is_close: bool = False,
) -> Callable[Concatenate[Any, P], R]:
    """Make a blocking method from a plain one, which runs in the loop's thread; the rest is as for `waits`."""
    return waits(cast("Any", method), undo=undo, is_close=is_close)


def asks(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """Make a method from a plain one that any thread may call, such as one that reads numbers."""

    @functools.wraps(method)
    def call(self: Any, /, *arguments: P.args, **options: P.kwargs) -> R:
        result: R = getattr(self._inner, method.__name__)(*arguments, **options)
        return result

    return _documented(call)


def waits_for_end(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, None]],
) -> Callable[Concatenate[Any, P], None]:
    """Make the blocking method that waits for the end of an object, whose thread may be stopped meanwhile, from the asyncio one."""
    name = method.__name__

    @functools.wraps(method)
    def call(self: Any, /, *arguments: P.args, **options: P.kwargs) -> None:
        _run_until_closed(self, functools.partial(getattr(self._inner, name), *arguments, **options))

    return _documented(call)


def ends(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, None]], *, may_be_closed: bool = False
) -> Callable[Concatenate[Any, P], None]:
    """Make the blocking method that closes an object from the asyncio one, which runs unless the object is closed.

    In any case, the object's `abort` follows, which ends its thread. If another thread may close the object meanwhile
    (``may_be_closed``), the method returns then.
    """
    name = method.__name__

    @functools.wraps(method)
    def call(self: Any, /, *arguments: P.args, **options: P.kwargs) -> None:
        try:
            if not self.closed:
                work = functools.partial(getattr(self._inner, name), *arguments, **options)
                if may_be_closed:
                    _run_until_closed(self, work)
                else:
                    self._thread.run(work)
        finally:
            self.abort()

    return call


def _run_until_closed(facade: Facade[Any], work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    try:
        facade._thread.run(work)
    except ClosedError:
        if facade._thread.is_inherited or not facade.closed:
            raise


def _documented(call: Callable[P, R]) -> Callable[P, R]:
    """Turn the examples of an asyncio method into blocking ones."""
    text = call.__doc__ or ""
    call.__doc__ = re.sub(
        r"^( *(?:>>>|\.\.\.) .*)$", lambda line: re.sub(r"\b(await|async) ", "", line[0]), text, flags=re.MULTILINE
    )
    return call


# -- the thread --------------------------------------------------------------------------------------------------------


class LoopThread:
    """A thread whose event loop runs coroutines for other threads. A context manager; `stop` may be called twice."""

    def __init__(self, name: str = "mainstem-loop") -> None:
        self._pid = os.getpid()
        self.interrupted: set[asyncio.Task[Any]] = set()  # the tasks of interrupted calls that are still running
        self.is_ending = False
        self._is_ready = threading.Event()
        self._is_given_up = False
        self._failure: OSError | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        try:
            self._thread.start()
            self._is_ready.wait()
        except BaseException as error:
            self._is_given_up = True
            if self._is_ready.is_set() and self._failure is None:
                self._post(lambda: self._end(None))
            if isinstance(error, RuntimeError) and self._thread.ident is None:
                # The process has no thread left, or CPython 3.12 is exiting.
                raise MainstemError(f"cannot start a thread: {error}") from error
            raise
        if self._failure is not None:
            raise MainstemError(f"cannot start an event loop: {self._failure.strerror}") from self._failure

    @property
    def is_inherited(self) -> bool:
        """Whether the thread belongs to the parent of this process, which was forked."""
        return not self._thread.is_alive() and self._pid != os.getpid()

    @classmethod
    def running(
        cls, start: Callable[[LoopThread], Coroutine[Any, Any, T]], undo: Callable[[T | BaseException], object]
    ) -> T:
        """Return the result of the coroutine that ``start`` returns, run in the loop of a new thread."""
        thread = cls()
        try:
            return thread.run(lambda: start(thread), undo=undo)
        except BaseException:
            thread.stop()
            raise

    def _run(self) -> None:
        # Create the loop here, where no signal handler can interrupt it.
        try:
            # A loop needs three file descriptors. If it gets too few, it stays half initialized, and complains when collected.
            with contextlib.ExitStack() as probes:
                for _ in range(3):
                    probes.callback(os.close, os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
            self._loop = asyncio.new_event_loop()
        except OSError as error:
            self._failure = error
            self._is_ready.set()
            return
        asyncio.set_event_loop(self._loop)
        self._is_ready.set()
        if not self._is_given_up:
            self._loop.run_forever()
        self.is_ending = True
        # Cancel twice: a cancelled task may wait for a thread, and gives up waiting when it is cancelled again.
        for _ in range(2):
            tasks = asyncio.all_tasks(self._loop)
            for task in tasks:
                task.cancel()
            if tasks:
                self._loop.run_until_complete(asyncio.wait(tasks, timeout=END_TIMEOUT_S))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    def run(
        self,
        work: Coroutine[Any, Any, T] | Callable[[], Coroutine[Any, Any, T]],
        timeout: float | None = None,
        *,
        undo: Callable[[T | BaseException], object] | None = None,
    ) -> T:
        """Return the result of ``work``: a coroutine, or a function that returns one.

        If nothing is left to wait for, the function may return the result itself. It runs between the loop's tasks, even if an
        exception interrupts the call. Raises Timeout or ClosedError.
        """
        call = Call(self, work, timeout, undo)
        try:
            try:
                is_started = self._thread.is_alive()
                if is_started:
                    self._loop.call_soon_threadsafe(call.start)
            except RuntimeError:
                if not self._loop.is_closed():
                    raise
                is_started = False
            if not is_started:
                raise _not_started(INHERITED if self.is_inherited else CLOSED)
            while not call.ended.acquire(timeout=LIVENESS_S):
                if not self._thread.is_alive() and not call.ended.acquire(blocking=False):
                    raise ClosedError("the connection was closed")
        except BaseException:
            if not self._insist(call.interrupt) and isinstance(work, CoroutineType):
                work.close()
            raise
        # Nothing is called from here on, so no signal handler can run, and the result reaches the caller.
        if call.error is None:
            return call.value
        try:
            raise call.error
        finally:
            del call

    def call(
        self, function: Callable[..., T], *arguments: Any, undo: Callable[[T | BaseException], object] | None = None
    ) -> T:
        """Return the result of a plain ``function``, run like the one of `run`. Raises ClosedError."""
        result: T = self.run(cast("Any", functools.partial(function, *arguments)), undo=undo)
        return result

    def call_soon(self, function: Callable[[], object]) -> None:
        """Run ``function`` in the loop's thread without waiting, unless the loop has ended. For finalizers."""
        if not self.is_inherited:
            self._post(function)

    def _post(self, function: Callable[[], object]) -> bool:
        """Run a function in the loop's thread, without waiting; return False if the loop is closed."""
        try:
            self._loop.call_soon_threadsafe(function)
        except RuntimeError:
            if not self._loop.is_closed():
                raise
            return False
        return True

    def _insist(self, function: Callable[[], object]) -> bool:
        """Do the same as `_post`, even if signal handlers raise meanwhile; raise their exception afterward."""
        if self.is_inherited:
            # A forked child's copy of the loop would wake the parent's.
            return False
        interruption: BaseException | None = None
        pending = [function]

        def run_once() -> None:
            if pending:
                pending.pop()()

        while True:
            try:
                is_posted = self._post(run_once)
                break
            except BaseException as error:
                interruption = error
        if interruption is not None:
            raise interruption
        return is_posted

    def stop(self, last: Callable[[], object] | None = None) -> None:
        """End the loop and its thread. May be called twice. In a handler's thread, return before the loop ends."""
        self._insist(lambda: self._end(last))
        serving = HANDLER_TASK.get()
        if serving is None or serving.get_loop() is not self._loop:
            self._thread.join()

    def stop_soon(self, last: Callable[[], object]) -> None:
        """Do the same as `stop` without waiting, from any thread."""
        self.call_soon(lambda: self._end(last))

    def _end(self, last: Callable[[], object] | None) -> None:
        try:
            if last is not None:
                last()
        finally:
            # Stopped again, the loop would not wait for its last tasks.
            if not self.is_ending:
                self._loop.stop()

    def __enter__(self) -> LoopThread:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()


# -- one call ----------------------------------------------------------------------------------------------------------


class Call(Generic[T]):
    """One call: its work in the loop's thread, and the thread that waits for it.

    ``start`` and ``interrupt`` run in the loop's thread, once each (a second call does nothing). ``value`` and ``error`` are final
    once the caller's thread has acquired ``ended``.
    """

    __slots__ = (
        "_interrupted",
        "_is_over",
        "_started",
        "_task",
        "_thread",
        "_timeout",
        "_undo",
        "_work",
        "ended",
        "error",
        "value",
    )

    value: T

    def __init__(
        self,
        thread: LoopThread,
        work: Coroutine[Any, Any, T] | Callable[[], Coroutine[Any, Any, T]],
        timeout: float | None,
        undo: Callable[[Any], object] | None,
    ) -> None:
        self._thread = thread
        self._work: Any = work
        self._timeout = timeout
        self._undo = undo
        self._task: asyncio.Task[T] | None = None
        self._started = self._interrupted = self._is_over = False
        self.ended = threading.Lock()
        self.ended.acquire()
        self.error: BaseException | None = None

    def start(self) -> None:
        """Start the work, unless the loop is ending: it has cancelled its tasks, and would leave a new one pending."""
        if self._started:
            return
        self._started = True
        work = self._work
        if self._thread.is_ending:
            if isinstance(work, CoroutineType):
                work.close()
            self.error = _not_started(CLOSED)
            self._end()
            return
        if not isinstance(work, CoroutineType):
            try:
                work = self._work = work()
            except Exception as error:
                self.error = error
                self._end()
                return
            if not isinstance(work, CoroutineType):
                self.value = work
                self._end()
                return
        if self._thread.interrupted or self._timeout is not None:
            work = self._limited()
        self._task = asyncio.get_running_loop().create_task(work)
        self._task.add_done_callback(self._end)

    async def _limited(self) -> T:
        """Do the work after the interrupted calls have ended, with a timeout that the loop itself enforces.

        If the caller enforced the timeout, it could lose what the work returned at that moment, such as bytes that were read.
        """

        async def run() -> T:
            while self._thread.interrupted:
                await asyncio.wait(set(self._thread.interrupted))
            result: T = await self._work
            return result

        return await within(self._timeout, run(), "the call")

    def interrupt(self) -> None:
        """Roll the call back."""
        if self._interrupted:
            return
        self._interrupted = True
        if self._is_over:
            self._take_back()
            return
        self.start()
        if self._task is not None:
            self._thread.interrupted.add(self._task)
            self._task.cancel()

    def _end(self, task: asyncio.Task[T] | None = None) -> None:
        """Pass on the outcome, which is the task's if the work became one."""
        if task is not None:
            self._work.close()  # it was never started if the task was cancelled before its first step
            self._thread.interrupted.discard(task)
            if task.cancelled():
                self.error = ClosedError("the connection was closed")
            elif (error := task.exception()) is not None:
                self.error = error
            else:
                self.value = task.result()
        self._is_over = True
        self.ended.release()
        if self._interrupted:
            self._take_back()

    def _take_back(self) -> None:
        if self._undo is not None:
            self._undo(self.value if self.error is None else self.error)


def _not_started(reason: str) -> ClosedError:
    error = ClosedError(reason)
    error.delivery = Delivery.NONE
    return error
