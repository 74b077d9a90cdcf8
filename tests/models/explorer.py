"""An exhaustive explorer of small concurrent programs under release-acquire consistency (RC11 without load buffering).

Theory of operation. Memory is a set of locations. Each location keeps all its messages in modification order; a message is a value
with a view. A view gives, for each location, the oldest message that can still be read. Each thread has three views: ``current``
bounds its loads, ``acquired`` is what an acquire fence would add to it, and ``released`` is what the last release fence published.

- A load reads any message that is not older than the current view. An acquire load joins the message's view into ``current``, any
  other load joins it into ``acquired``.
- A store is inserted after the current view, anywhere in the modification order, but never between a read-modify-write and the
  message it read. The message of a release store carries ``current``, that of any other store carries ``released``.
- A read-modify-write is inserted directly after the message that it read, and its view includes that message's view (a release
  sequence).

The explorer runs all steps of all threads in every order, depth first, and visits each state once. Stores and fences take effect
immediately: an earlier message only adds to what can be read, because the older messages stay readable. So only loads and
read-modify-writes are scheduled.

The model leaves out load buffering: a load that becomes visible after a later store of the same thread, which ARMv8 permits.
Instead, vector clocks track plain loads of ``protected`` locations, as in a race detector: a store that does not happen after them
is a fault. So a release store that gives memory back is still checked.

A thread is a function that is run again from its start with the values that its loads have returned so far, because these determine
what the thread does next. That is why the project's own functions can serve as threads.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

View = tuple[int, ...]
Message = tuple[int, View, bool]  # value, view, whether it is a read-modify-write of the message before
MOST_STATES = 3_000_000


class Fault(Exception):
    """A property does not hold."""


class Pause(BaseException):
    """All known values of loads are used up. Not an Exception, so that the code under test cannot catch it as an error."""


@dataclass(frozen=True)
class Load:
    location: int
    acquire: bool
    plain: bool


@dataclass(frozen=True)
class Store:
    values: tuple[tuple[int, int], ...]  # (location, value)
    release: bool


@dataclass(frozen=True)
class Fence:
    release: bool
    acquire: bool


@dataclass(frozen=True)
class Update:
    """A fetch-and-add of ``value``, or a compare-and-set if ``expected`` is not None."""

    location: int
    expected: int | None
    value: int
    acquire: bool
    release: bool


@dataclass
class Node:
    """A thread after some values: the stores and fences that it makes, then the operation it waits for, or its result."""

    number: int
    before: list[Store | Fence] = field(default_factory=list)
    wait: Load | Update | None = None
    result: Any = None
    fault: str | None = None
    history: tuple[int, ...] = ()
    following: dict[int, Node] = field(default_factory=dict)


class Recorder:
    """Receives the operations of the modelled memory while a thread's function runs."""

    def __init__(self, history: tuple[int, ...]) -> None:
        self.history = history
        self.used = 0
        self.node_ops: list[Store | Fence] = []
        self.wait: Load | Update | None = None

    def read(self, step: Load | Update) -> int:
        if self.wait is not None:
            raise Pause
        if self.used == len(self.history):
            self.wait = step
            raise Pause
        value = self.history[self.used]
        self.used += 1
        self.node_ops = []
        return value

    def do(self, step: Store | Fence) -> None:
        if self.wait is not None:
            raise Pause
        self.node_ops.append(step)


@dataclass(frozen=True)
class Thread:
    node: Node
    current: View
    acquired: View
    released: View

    def key(self) -> tuple[int, View, View, View]:
        return self.node.number, self.current, self.acquired, self.released


Memory = tuple[tuple[Message, ...], ...]
Reads = tuple[tuple[tuple[int, int], ...], ...]  # for each location: (thread, its clock at its last plain load)
State = tuple[tuple[Thread, ...], Memory, Reads]


@dataclass
class Outcome:
    states: int
    ends: int
    fault: str | None


def join(a: View, b: View) -> View:
    return a if a == b else tuple(map(max, a, b))


class Explorer:
    """Explores threads over memory that initially holds ``initial``.

    ``run(thread, recorder)`` runs a thread's function and returns its result. ``finish(results, values)`` checks an end state and
    raises Fault. ``protected`` lists the locations whose plain loads must happen before every later store.
    """

    def __init__(
        self,
        initial: list[int],
        threads: int,
        run: Callable[[int, Recorder], Any],
        finish: Callable[[list[Any], list[int]], None],
        protected: frozenset[int] = frozenset(),
    ) -> None:
        self.initial = initial
        self.size = len(initial)
        self.count = threads
        self.run = run
        self.finish = finish
        self.protected = protected
        self.nodes = 0

    # -- what a thread does ----------------------------------------------------------------------------------------

    def node(self, thread: int, history: tuple[int, ...]) -> Node:
        recorder = Recorder(history)
        result, fault = None, None
        try:
            result = self.run(thread, recorder)
        except Pause:
            pass
        except Fault as e:
            fault = str(e)
        except Exception as e:
            if recorder.wait is None:
                fault = f"thread {thread} raised {e!r}"
        self.nodes += 1
        return Node(self.nodes, recorder.node_ops, recorder.wait, result, fault, history)

    def after(self, thread: int, node: Node, value: int) -> Node:
        following = node.following.get(value)
        if following is None:
            following = node.following[value] = self.node(thread, (*node.history, value))
        return following

    # -- steps -----------------------------------------------------------------------------------------------------

    def insert(self, state: State, t: int, location: int, at: int, value: int, view: View, glued: bool) -> State:
        """Insert a message at index ``at`` of a location, and shift every view of a later message by one."""
        threads, memory, reads = state
        messages = memory[location]
        if at < len(messages):

            def moved(v: View) -> View:
                return v if v[location] < at else (*v[:location], v[location] + 1, *v[location + 1 :])

            threads = tuple(Thread(o.node, moved(o.current), moved(o.acquired), moved(o.released)) for o in threads)
            memory = tuple(tuple((m[0], moved(m[1]), m[2]) for m in each) for each in memory)
            messages = memory[location]
        own = threads[t]
        current = (*own.current[:location], at, *own.current[location + 1 :])
        view = (*view[:location], at, *view[location + 1 :])
        threads = (*threads[:t], Thread(own.node, current, own.acquired, own.released), *threads[t + 1 :])
        messages = (*messages[:at], (value, view, glued), *messages[at:])
        return threads, (*memory[:location], messages, *memory[location + 1 :]), reads

    def check_reads(self, state: State, t: int, location: int) -> None:
        if location not in self.protected:
            return
        current = state[0][t].current
        for reader, clock in state[2][location]:
            if reader != t and current[self.size + reader] < clock:
                raise Fault(f"thread {t} overwrites location {location} which thread {reader} may still be reading")

    def store(self, state: State, t: int, step: Store) -> Iterator[State]:
        states = [state]
        for location, value in step.values:
            self.check_reads(state, t, location)
            following = []
            for each in states:
                own = each[0][t]
                messages = each[1][location]
                positions = [
                    at
                    for at in range(own.current[location] + 1, len(messages) + 1)
                    if at == len(messages) or not messages[at][2]
                ]
                following += [self.insert(each, t, location, at, value, own.released, False) for at in positions]
            states = following
        if step.release:
            states = [self.publish(each, t, [location for location, _ in step.values]) for each in states]
        yield from states

    def publish(self, state: State, t: int, locations: list[int]) -> State:
        """Give the messages that this thread has just stored its whole current view."""
        threads, memory, reads = state
        changed = list(memory)
        for location in locations:
            at = threads[t].current[location]
            value, _, glued = changed[location][at]
            changed[location] = (
                *changed[location][:at],
                (value, threads[t].current, glued),
                *changed[location][at + 1 :],
            )
        return threads, tuple(changed), reads

    def settle(self, state: State, t: int) -> Iterator[State]:
        """Make the stores and fences of thread ``t`` up to its next wait."""
        states = [state]
        for step in state[0][t].node.before:
            if isinstance(step, Fence):
                states = [self.fence(each, t, step) for each in states]
            else:
                states = [after for each in states for after in self.store(each, t, step)]
        if state[0][t].node.fault is not None:
            raise Fault(state[0][t].node.fault)
        yield from states

    def fence(self, state: State, t: int, step: Fence) -> State:
        threads, memory, reads = state
        own = threads[t]
        current = join(own.current, own.acquired) if step.acquire else own.current
        own = Thread(own.node, current, own.acquired, current if step.release else own.released)
        return (*threads[:t], own, *threads[t + 1 :]), memory, reads

    def successors(self, state: State, t: int) -> Iterator[State]:
        threads, memory, reads = state
        own = threads[t]
        step = own.node.wait
        if step is None:
            return
        messages = memory[step.location]
        for at in range(own.current[step.location], len(messages)):
            value, view, _ = messages[at]
            is_update = isinstance(step, Update) and step.expected in (None, value)
            if is_update and at + 1 < len(messages) and messages[at + 1][2]:
                continue  # another read-modify-write has read that message
            node = self.after(t, own.node, value)
            current = list(own.current)
            current[step.location] = at
            current[self.size + t] = len(node.history)
            seen = tuple(current)
            if step.acquire:
                seen = join(seen, view)
            moved = Thread(node, seen, join(own.acquired, view), own.released)
            after: State = ((*threads[:t], moved, *threads[t + 1 :]), memory, reads)
            if isinstance(step, Load) and step.plain and step.location in self.protected:
                rows = dict(reads[step.location])
                rows[t] = len(node.history)
                row = tuple(sorted(rows.items()))
                after = (after[0], memory, (*reads[: step.location], row, *reads[step.location + 1 :]))
            elif is_update:
                assert isinstance(step, Update)
                self.check_reads(after, t, step.location)
                new = step.value if step.expected is not None else (value + step.value) & (2**64 - 1)
                carried = join(seen if step.release else own.released, view)
                after = self.insert(after, t, step.location, at + 1, new, carried, True)
                if step.release:
                    # The update's own index in its view: join() left the index of the message that it read.
                    after = self.publish_update(after, t, step.location, view)
            yield from self.settle(after, t)

    def publish_update(self, state: State, t: int, location: int, view: View) -> State:
        threads, memory, reads = state
        at = threads[t].current[location]
        value, carried, glued = memory[location][at]
        messages = (
            *memory[location][:at],
            (value, join(carried, threads[t].current), glued),
            *memory[location][at + 1 :],
        )
        return threads, (*memory[:location], messages, *memory[location + 1 :]), reads

    def trim(self, state: State) -> State:
        """Drop the messages that no thread can read any more, so that states that differ only in them become one."""
        threads, memory, reads = state
        alive = [o for o in threads if o.node.wait is not None] or list(threads)
        oldest = [min(o.current[i] for o in alive) for i in range(self.size)]
        if not any(oldest):
            return state
        oldest += [0] * self.count

        def moved(v: View) -> View:
            return tuple(a - b if a > b else 0 for a, b in zip(v, oldest, strict=True))

        memory = tuple(
            tuple((m[0], moved(m[1]), m[2] and i > 0) for i, m in enumerate(each[k:]))
            for each, k in zip(memory, oldest, strict=False)
        )
        threads = tuple(Thread(o.node, moved(o.current), moved(o.acquired), moved(o.released)) for o in threads)
        return threads, memory, reads

    # -- the search ------------------------------------------------------------------------------------------------

    def explore(self) -> Outcome:
        zero: View = (0,) * (self.size + self.count)
        memory: Memory = tuple(((value, zero, False),) for value in self.initial)
        threads = tuple(Thread(self.node(t, ()), zero, zero, zero) for t in range(self.count))
        first = [(threads, memory, ((),) * self.size)]
        visited: set[Any] = set()
        ends = 0
        try:
            for t in range(self.count):
                first = [after for state in first for after in self.settle(state, t)]
            stack = [self.trim(state) for state in first]
            while stack:
                state = stack.pop()
                key = (tuple(o.key() for o in state[0]), state[1], state[2])
                if key in visited:
                    continue
                visited.add(key)
                if len(visited) > MOST_STATES:
                    raise RuntimeError(f"more than {MOST_STATES} states: the scenario is too large")
                if all(o.node.wait is None for o in state[0]):
                    ends += 1
                    self.finish([o.node.result for o in state[0]], [each[-1][0] for each in state[1]])
                    continue
                for t in range(self.count):
                    stack += [self.trim(after) for after in self.successors(state, t)]
        except Fault as e:
            return Outcome(len(visited), ends, str(e))
        return Outcome(len(visited), ends, None)
