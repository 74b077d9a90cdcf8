"""The project's own code over modelled memory: the sources of the compiled modules, uncompiled, with other primitives.

``load(mutant)`` imports modules of ``mainstem._core`` again as a separate package, in which this file replaces ``memory.plain`` and
``memory.buffer``: each load, store, fence and read-modify-write goes to the explorer with the ordering that its name states. No
model is written by hand, so none can differ from the code. A mutant is a change to the source's syntax tree: it relaxes one
primitive or exchanges two neighboring statements.
"""

from __future__ import annotations

import ast
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

from tests.models.explorer import Fence, Load, Recorder, Store, Update

import mainstem._core
from mainstem._core.memory import plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PACKAGE = "mainstem_modelled"
DIRECTORY = Path(mainstem._core.__path__[0])
MODULES = (
    "log.batch", "log.append", "log.read", "log.term", "memory.ring_buffer", "memory.broadcast", "memory.counters",
    "memory.bus_guard", "driver.positions", "driver.ipc_path",
)  # fmt: skip

ATOMIC_STORES = {"st32", "st64"}
PLAIN_STORES = {"mark32", "mark64", "put8", "put16", "put32", "put64", "copy_bytes", "zero_out", "zero_past_caches"}
FENCES = {"fence_release", "fence_acquire"}
UPDATES = {"fadd64", "cas32", "cas64"}
# Methods that store: a mutant can exchange a call of one with its neighbor too.
STORING = {"put_bytes", "put_header", "set_label", "commit", "loop"}


# -- memory --------------------------------------------------------------------------------------------------------


class World:
    """The memory of one scenario: buffers whose bytes are divided into locations. ``recorder`` is None during set-up."""

    def __init__(self) -> None:
        self.values: list[int] = []
        self.sizes: list[int] = []
        self.names: list[str] = []
        self.recorder: Recorder | None = None

    def track(self, name: str, size: int) -> int:
        self.values.append(0)
        self.sizes.append(size)
        self.names.append(name)
        return len(self.values) - 1


class ModelledMemory:
    """A base pointer. Bytes outside every location are constants of the set-up; later stores to them are dropped."""

    def __init__(self, world: World, name: str, length: int, cells: Iterable[tuple[int, int]]) -> None:
        self.world = world
        self.constant = bytearray(length)
        self.cells: dict[int, tuple[int, int]] = {}  # offset -> (location, offset where that location begins)
        for offset, size in cells:
            location = world.track(f"{name}+{offset}", size)
            for i in range(offset, offset + size):
                assert i not in self.cells
                self.cells[i] = (location, offset)

    def pieces(self, offset: int, length: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield (location or -1, where it begins, start, end) for each location that the bytes touch."""
        at = offset
        while at < offset + length:
            location, begin = self.cells.get(at, (-1, at))
            end = min(begin + (self.world.sizes[location] if location >= 0 else 1), offset + length)
            yield location, begin, at, end
            at = end

    def load(self, offset: int, length: int, acquire: bool = False, plain_load: bool = True) -> bytes:
        out = b""
        recorder = self.world.recorder
        for location, begin, at, end in self.pieces(offset, length):
            if location < 0:
                out += self.constant[at:end]
                continue
            value = self.world.values[location]
            if recorder is not None:
                value = recorder.read(Load(location, acquire, plain_load))
            out += value.to_bytes(self.world.sizes[location], "little")[at - begin : end - begin]
        return out

    def store(self, offset: int, data: bytes, release: bool = False) -> None:
        recorder = self.world.recorder
        values = []
        for location, begin, at, end in self.pieces(offset, len(data)):
            part = data[at - offset : end - offset]
            if location < 0:
                if recorder is None:
                    self.constant[at:end] = part
                continue
            size = self.world.sizes[location]
            assert at == begin or recorder is None, "a store of part of a location: divide it"
            if recorder is None:
                old = bytearray(self.world.values[location].to_bytes(size, "little"))
                old[at - begin : end - begin] = part
                self.world.values[location] = int.from_bytes(old, "little")
            else:
                assert end - begin == size, f"a store of part of {self.world.names[location]}: divide it"
                values.append((location, int.from_bytes(part, "little")))
        if recorder is not None and values:
            recorder.do(Store(tuple(values), release))

    def update(self, offset: int, size: int, expected: int | None, value: int, acquire: bool, release: bool) -> int:
        (location, begin) = self.cells[offset]
        assert begin == offset
        mask = (1 << 8 * size) - 1
        recorder = self.world.recorder
        if recorder is not None:
            wanted = None if expected is None else expected & mask
            return recorder.read(Update(location, wanted, value & mask, acquire, release))
        old = self.world.values[location]
        if expected is None:
            self.world.values[location] = (old + value) & mask
        elif old == expected & mask:
            self.world.values[location] = value & mask
        return old


class ModelledView:
    """The result of ``AtomicBuffer.view``: bytes that are read and written in place."""

    def __init__(self, base: ModelledMemory, offset: int, length: int) -> None:
        self.base, self.offset, self.length = base, offset, length

    def __bytes__(self) -> bytes:
        return self.base.load(self.offset, self.length)

    def __setitem__(self, index: slice, data: bytes) -> None:
        assert index == slice(None)
        self.base.store(self.offset, data)

    def __enter__(self) -> ModelledView:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def release(self) -> None:
        return


class ModelledBuffer:
    """Replaces AtomicBuffer."""

    def __init__(self, base: Any, length: int = -1) -> None:
        if isinstance(base, bytearray):
            base, length = plain.Memory(base), len(base)
        self.base = base
        self.capacity = length

    def check(self, offset: int, length: int) -> None:
        assert offset >= 0
        assert offset + length <= self.capacity

    def check_alignment(self) -> None:
        return

    def view(self, offset: int, length: int) -> ModelledView:
        return ModelledView(self.base, offset, length)

    def get_bytes(self, offset: int, length: int) -> bytes:
        return bytes(self.view(offset, length)) if isinstance(self.base, ModelledMemory) else b""

    def put_bytes(self, offset: int, data: bytes) -> None:
        self.base.store(offset, bytes(data))

    def get_i32(self, offset: int) -> int:
        return _get(self.base, offset, 4)

    def get_i64(self, offset: int) -> int:
        return _get(self.base, offset, 8)

    def put_i32(self, offset: int, value: int) -> None:
        _put(self.base, offset, 4, value)

    def put_i64(self, offset: int, value: int) -> None:
        _put(self.base, offset, 8, value)

    get_i32_acquire = get_i32
    get_i64_acquire = get_i64


# -- primitives ----------------------------------------------------------------------------------------------------


def _get(b: Any, o: int, size: int, acquire: bool = False, plain_load: bool = True, signed: bool = True) -> int:
    data = b.load(o, size, acquire, plain_load) if isinstance(b, ModelledMemory) else bytes(b.u8[o : o + size])
    return int.from_bytes(data, "little", signed=signed)


def _put(b: Any, o: int, size: int, value: int, release: bool = False) -> None:
    data = (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")
    if isinstance(b, ModelledMemory):
        b.store(o, data, release)
    else:
        b.u8[o : o + size] = data


def _cas(b: Any, o: int, size: int, e: int, v: int, acquire: bool, release: bool) -> bool:
    return bool(b.update(o, size, e, v, acquire, release) == e & ((1 << 8 * size) - 1))


def _add(b: Any, o: int, v: int, acquire: bool, release: bool) -> int:
    old = b.update(o, 8, None, v, acquire, release)
    return int(old - (1 << 64) if old >> 63 else old)


def _copy(d: Any, o: int, s: Any, so: int, n: int) -> None:
    data = s.load(so, n) if isinstance(s, ModelledMemory) else bytes(s.u8[so : so + n])
    if n:
        d.store(o, data)


def _fence(world: World, *, release: bool = False, acquire: bool = False) -> None:
    if world.recorder is not None:
        world.recorder.do(Fence(release, acquire))


def primitives(holder: SimpleNamespace) -> dict[str, Any]:
    """Return every name of memory/plain.py; a mutant uses the ``weak_`` variant of a primitive in place of the original."""
    return {
        **{name: getattr(plain, name) for name in dir(plain) if not name.startswith("_")},
        "get8": lambda b, o: _get(b, o, 1, signed=False),
        "get16": lambda b, o: _get(b, o, 2, signed=False),
        "get32": lambda b, o: _get(b, o, 4),
        "get64": lambda b, o: _get(b, o, 8),
        "put8": lambda b, o, v: _put(b, o, 1, v),
        "put16": lambda b, o, v: _put(b, o, 2, v),
        "put32": lambda b, o, v: _put(b, o, 4, v),
        "put64": lambda b, o, v: _put(b, o, 8, v),
        "mark32": lambda b, o, v: _put(b, o, 4, v),
        "mark64": lambda b, o, v: _put(b, o, 8, v),
        "ld32": lambda b, o: _get(b, o, 4, True, False),
        "ld64": lambda b, o: _get(b, o, 8, True, False),
        "st32": lambda b, o, v: _put(b, o, 4, v, True),
        "st64": lambda b, o, v: _put(b, o, 8, v, True),
        "weak_ld32": lambda b, o: _get(b, o, 4, False, False),
        "weak_ld64": lambda b, o: _get(b, o, 8, False, False),
        "weak_st32": lambda b, o, v: _put(b, o, 4, v),
        "weak_st64": lambda b, o, v: _put(b, o, 8, v),
        "cas32": lambda b, o, e, v: _cas(b, o, 4, e, v, True, True),
        "cas64": lambda b, o, e, v: _cas(b, o, 8, e, v, True, True),
        "weak_cas32": lambda b, o, e, v: _cas(b, o, 4, e, v, False, False),
        "weak_cas64": lambda b, o, e, v: _cas(b, o, 8, e, v, False, False),
        "fadd64": lambda b, o, v: _add(b, o, v, True, True),
        "weak_fadd64": lambda b, o, v: _add(b, o, v, False, False),
        "fence_release": lambda: _fence(holder.world, release=True),
        "fence_acquire": lambda: _fence(holder.world, acquire=True),
        "weak_fence_release": lambda: None,
        "weak_fence_acquire": lambda: None,
        "copy_bytes": _copy,
        "zero_out": lambda b, o, n: b.store(o, bytes(n)),
        "zero_past_caches": lambda b, o, n: b.store(o, bytes(n)),
        "prefetch": lambda b, o: None,
        "prefetch_write": lambda b, o: None,
        "touch": lambda b, o: None,
    }


# -- mutants -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mutant:
    """One change to one function; ``what`` describes it in words that stay the same when lines move."""

    module: str
    function: str
    what: str
    index: int  # index among the function's possible changes

    def __str__(self) -> str:
        return f"{self.function}: {self.what}"


def _called(statement: ast.AST) -> str:
    """Return the name of the function that a statement consists of calling, "" if none.

    For an ``if`` with a single statement, return that statement's; for a loop that stores, return "loop".
    """
    if isinstance(statement, ast.If) and len(statement.body) == 1 and not statement.orelse:
        return _called(statement.body[0])
    if isinstance(statement, ast.While | ast.For):
        names = {
            part.func.id
            for part in ast.walk(statement)
            if isinstance(part, ast.Call) and isinstance(part.func, ast.Name)
        }
        return "loop" if names & (ATOMIC_STORES | PLAIN_STORES) else ""
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call):
        return ""
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")


def _text(node: ast.AST) -> str:
    return ast.unparse(node).replace("self.", "").replace("cython.cast(cython.int, ", "(")


def _changes(function: ast.AST) -> list[tuple[str, Any]]:
    """Return each possible change to a function: its name and the function that makes it."""
    changes: list[tuple[str, Any]] = []
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            name = node.func.id
            if name in {"ld32", "ld64"} | ATOMIC_STORES | FENCES | UPDATES:
                changes.append((f"relaxed {_text(node)}", _weaken(node.func)))
        for block in (getattr(node, part, None) for part in ("body", "orelse", "finalbody")):
            if not isinstance(block, list):
                continue
            for i in range(len(block) - 1):
                pair = (_called(block[i]), _called(block[i + 1]))
                stores = ATOMIC_STORES | PLAIN_STORES | STORING | FENCES | UPDATES
                ordered = ATOMIC_STORES | FENCES | UPDATES | {"commit"}
                if set(pair) <= stores and set(pair) & ordered:
                    names = [_text(part) if _called(part) != "loop" else "the loop" for part in block[i : i + 2]]
                    changes.append((f"{names[1]} before {names[0]}".replace("\n   ", ""), _exchange(block, i)))
    counts: dict[str, int] = {}
    named = []
    for what, change in changes:
        counts[what] = counts.get(what, 0) + 1
        named.append((what if counts[what] == 1 else f"{what} ({counts[what]})", change))
    return named


def _weaken(name: ast.Name) -> Any:
    def change() -> None:
        name.id = f"weak_{name.id}"

    return change


def _exchange(block: list[ast.stmt], i: int) -> Any:
    def change() -> None:
        block[i], block[i + 1] = block[i + 1], block[i]

    return change


def _functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, node
        if isinstance(node, ast.ClassDef):
            for part in node.body:
                if isinstance(part, ast.FunctionDef):
                    yield f"{node.name}.{part.name}", part


def parse(module: str) -> ast.Module:
    return ast.parse(DIRECTORY.joinpath(*module.split(".")).with_suffix(".py").read_text())


def mutants(module: str, function: str) -> list[Mutant]:
    """Return every mutant of one function, given its qualified name."""
    tree = dict(_functions(parse(module)))[function]
    return [Mutant(module, function, what, i) for i, (what, _) in enumerate(_changes(tree))]


def mutate(module: str, mutant: Mutant | None) -> ast.Module:
    """Return the syntax tree of a module, changed if the mutant belongs to that module."""
    tree = parse(module)
    if mutant is not None and mutant.module == module:
        what, change = _changes(dict(_functions(tree))[mutant.function])[mutant.index]
        assert what == mutant.what
        change()
    return tree


# -- modules -------------------------------------------------------------------------------------------------------


class _Loader(importlib.machinery.SourceFileLoader):
    mutant: Mutant | None = None

    def get_code(self, fullname: str) -> Any:
        if Path(self.path).name == "__init__.py":
            return compile("", self.path, "exec")
        source = ast.unparse(mutate(fullname.removeprefix(f"{PACKAGE}."), self.mutant))
        return compile(source.replace("mainstem._core", PACKAGE), self.path, "exec")


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, mutant: Mutant | None) -> None:
        self.mutant = mutant

    def find_spec(self, fullname: str, path: object, target: object = None) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] != PACKAGE:
            return None
        source = DIRECTORY.joinpath(*fullname.split(".")[1:])
        file = str(source / "__init__.py" if source.is_dir() else source.with_suffix(".py"))
        loader = _Loader(fullname, file)
        loader.mutant = self.mutant
        locations = [str(source)] if source.is_dir() else None
        return importlib.util.spec_from_file_location(
            fullname, file, loader=loader, submodule_search_locations=locations
        )


def load(mutant: Mutant | None = None) -> SimpleNamespace:
    """Return the modules, each under the last part of its name. ``holder.world`` is the memory that fences belong to."""
    core = SimpleNamespace(holder=SimpleNamespace(world=World()))
    finder = _Finder(mutant)
    sys.meta_path.insert(0, finder)
    try:
        primitive = ModuleType(f"{PACKAGE}.memory.plain")
        primitive.__dict__.update(primitives(core.holder))
        buffer = ModuleType(f"{PACKAGE}.memory.buffer")
        buffer.__dict__["AtomicBuffer"] = ModelledBuffer
        importlib.import_module(f"{PACKAGE}.memory")
        sys.modules[primitive.__name__] = primitive
        sys.modules[buffer.__name__] = buffer
        for name in MODULES:
            setattr(core, name.rpartition(".")[2], importlib.import_module(f"{PACKAGE}.{name}"))
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
            del sys.modules[name]
    for part in vars(core).values():
        # A term of a few frames: more cannot be explored.
        if hasattr(part, "TERM_MIN_LENGTH"):
            part.TERM_MIN_LENGTH = 64
    return core
