"""A reader polls while the writer, another process, is stopped after every instruction of the compiled code.

The parent traces the child and steps it (ptrace). After each instruction that changed the shared memory, the parent polls with the
compiled reader. It also runs the driver's unblocking on a copy, as if the writer had died there. Nothing is left to chance, even
for orderings that x86 guarantees anyway: every state of memory that the machine code passes through is examined. Copies of the code
with two stores exchanged go through the same test, which must detect the exchange.
"""

from __future__ import annotations

import ast
import ctypes
import mmap
import os
import platform
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.models import modelled
from tests.models.stopped_writer import LONG, MESSAGES

import mainstem
from mainstem._core import layout
from mainstem._core.log.read import ImageReader
from mainstem._core.log.term import unblock
from mainstem._core.memory.broadcast import BroadcastReceiver
from mainstem._core.memory.buffer import AtomicBuffer
from mainstem._core.memory.ring_buffer import ManyToOneRingBuffer
from mainstem.aeron.logbuffer import LogBuffers, LogParameters, LogType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parents[2]
WRITER = Path(__file__).with_name("stopped_writer.py")
SINGLE_STEP, CONTINUE = 9, 7
T, MTU, INITIAL = 65536, 96, 7
SEVERAL_FRAMES = "a message of several frames"
OVER_THE_END = "offers over the end of a term"
# A step takes 40 µs. A write, including the interpreter around it, takes some ten thousand instructions.
MOST_STEPS = 2_000_000

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        platform.machine() not in ("x86_64", "aarch64") or sys.platform != "linux", reason="single steps need ptrace"
    ),
]


class Torn(AssertionError):
    """A reader found something that no writer wrote."""


class Stepped:
    """A writer that stops after every instruction."""

    def __init__(self, file: Path, case: str, source: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(source)}
        self.process = subprocess.Popen([sys.executable, WRITER, file, case], env=environment)
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.libc.ptrace.argtypes, self.libc.ptrace.restype = [ctypes.c_long] * 4, ctypes.c_long
        self.steps = 0

    def wait(self) -> int:
        """Return the signal that stopped the writer, or 0 at its end."""
        _, status = os.waitpid(self.process.pid, 0)
        if os.WIFSTOPPED(status):
            return os.WSTOPSIG(status)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        return 0

    def run(self) -> Iterator[None]:
        """Yield after every instruction between the writer's first own stop and its last signal."""
        while (stopped := self.wait()) not in (0, signal.SIGSTOP):
            self.resume(CONTINUE, stopped)
        if not stopped:
            pytest.skip(f"this system refuses to trace a child (exit {self.process.returncode})")
        while self.steps < MOST_STEPS:
            self.resume(SINGLE_STEP, 0)
            stopped = self.wait()
            assert stopped in (signal.SIGTRAP, signal.SIGSTOP, signal.SIGUSR1), f"the writer ended: signal {stopped}"
            if stopped == signal.SIGUSR1:
                return
            self.steps += 1
            yield
        raise AssertionError(f"the writer did not end within {MOST_STEPS} instructions")

    def resume(self, how: int, with_signal: int) -> None:
        if self.libc.ptrace(how, self.process.pid, 0, with_signal) != 0:
            error = ctypes.get_errno()
            pytest.skip(f"this system refuses to step a child: {os.strerror(error)}")

    def end(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
            self.process.wait()


# -- what readers must find ----------------------------------------------------------------------------------------


class LogReader:
    """A subscriber of the log in the file, and the messages that it must read."""

    def __init__(self, path: Path, case: str) -> None:
        parameters = LogParameters(
            correlation_id=9, session_id=-7, stream_id=1001, initial_term_id=INITIAL, term_length=T, mtu=MTU,
            log_type=LogType.CONCURRENT_PUBLICATION,
        )  # fmt: skip
        path.write_bytes(bytes(parameters.log_length))
        with path.open("r+b") as file:
            self.mapped = mmap.mmap(file.fileno(), 0)
        self.memory = AtomicBuffer(self.mapped)
        LogBuffers.create(self.memory, parameters).is_connected = True
        self.start = T - 64 if case == OVER_THE_END else 0
        self.meta = self.memory.capacity - layout.LOG_METADATA_LENGTH
        self.memory.put_i64(self.meta, (INITIAL << 32) + self.start)
        self.watched = [(self.start, self.start + 1024), (self.meta, self.meta + 32)]
        self.expected = self.messages(case)
        self.counters = AtomicBuffer(bytearray(128))
        self.counters.put_i64(0, self.start)
        self.image = ImageReader(self.memory, self.counters, 0)
        self.read: list[tuple[int, int, bytes]] = []

    def messages(self, case: str) -> list[tuple[int, int, bytes]]:
        """Return (position, flags, payload) of each frame."""
        if case == SEVERAL_FRAMES:
            parts = [LONG[i : i + MTU - 32] for i in range(0, len(LONG), MTU - 32)]
        elif case == OVER_THE_END:
            return [(T + 96, layout.FLAG_UNFRAGMENTED, MESSAGES[1])]
        elif case == "claims":
            return [(end, layout.FLAG_UNFRAGMENTED, MESSAGES[1]) for end in (96, 288)]
        else:
            parts = MESSAGES if case == "a batch" else MESSAGES[:3]
        out, position = [], 0
        for i, part in enumerate(parts):
            position += (len(part) + 63) & ~31
            flags = layout.FLAG_UNFRAGMENTED
            if case == SEVERAL_FRAMES:
                flags = layout.FLAG_BEGIN if i == 0 else layout.FLAG_END if i == len(parts) - 1 else 0
            out.append((position, flags, part))
        return out

    def state(self) -> bytes:
        return b"".join(self.mapped[begin:end] for begin, end in self.watched)

    def poll(self, image: ImageReader, read: list[tuple[int, int, bytes]]) -> None:
        def handler(fragment: Any) -> None:
            if (fragment.session_id, fragment.stream_id, fragment.reserved_value) != (-7, 1001, 0):
                raise Torn(f"a header that is not complete: {fragment}")
            read.append((fragment.position, fragment.flags, bytes(fragment)))

        for _ in range(3):
            image.poll(handler, 100)

    def check(self) -> None:
        self.poll(self.image, self.read)
        if self.read != self.expected[: len(self.read)]:
            raise Torn(f"read {self.read[-1]}, not {self.expected[len(self.read) - 1]}")
        self.check_death()

    def check_death(self) -> None:
        """Check a writer that died here: the driver unblocks as far as it can, and everything that can then be read is whole."""
        log = AtomicBuffer(bytearray(self.mapped))
        counters = AtomicBuffer(bytearray(128))
        counters.put_i64(0, self.counters.get_i64(0))
        image = ImageReader(log, counters, 0)
        read = list(self.read)
        for _ in range(20):
            self.poll(image, read)
            if not unblock(log, T, INITIAL, counters.get_i64(0)):
                break
        if [each for each in self.expected if each in read] != read:
            raise Torn(f"after the writer's death {read} was read of {self.expected}")

    def end(self) -> None:
        if self.read != self.expected:
            raise Torn(f"at the end {self.read} had been read, not {self.expected}")


class RingReader:
    """The consumer of a ring whose records wrap around."""

    watched_length = 512

    def __init__(self, path: Path, case: str) -> None:
        path.write_bytes(bytes(512 + layout.RING_TRAILER_LENGTH))
        with path.open("r+b") as file:
            self.mapped = mmap.mmap(file.fileno(), 0)
        self.memory = AtomicBuffer(self.mapped)
        for at in (layout.RING_TAIL_OFFSET, layout.RING_HEAD_CACHE_OFFSET, layout.RING_HEAD_OFFSET):
            self.memory.put_i64(512 + at, 400)  # the third record does not fit before the end
        self.ring = ManyToOneRingBuffer(self.memory)
        self.expected = list(enumerate(MESSAGES, 1))
        self.read: list[tuple[int, bytes]] = []

    def state(self) -> bytes:
        return self.mapped[:]

    def check(self) -> None:
        self.ring.read(lambda kind, payload: self.read.append((kind, payload)))
        if self.read != self.expected[: len(self.read)]:
            raise Torn(f"read {self.read}")
        ring = ManyToOneRingBuffer(AtomicBuffer(bytearray(self.mapped)))
        read = list(self.read)
        for _ in range(5):
            ring.read(lambda kind, payload: read.append((kind, payload)))
            if not ring.unblock():
                break
        if read != self.expected[: len(read)]:
            raise Torn(f"after the writer's death {read} was read")

    def end(self) -> None:
        self.ring.read(lambda kind, payload: self.read.append((kind, payload)))
        if self.read != self.expected:
            raise Torn(f"at the end {self.read} had been read")


class BroadcastReaders:
    """Receivers of a broadcast buffer: one polls after every change, the others are lapped."""

    def __init__(self, path: Path, case: str) -> None:
        path.write_bytes(bytes(512 + layout.BROADCAST_TRAILER_LENGTH))
        with path.open("r+b") as file:
            self.mapped = mmap.mmap(file.fileno(), 0)
        memory = AtomicBuffer(self.mapped)
        for at in (layout.BROADCAST_TAIL_INTENT_OFFSET, layout.BROADCAST_TAIL_OFFSET, layout.BROADCAST_LATEST_OFFSET):
            memory.put_i64(512 + at, 400)
        self.receivers = [BroadcastReceiver(memory) for _ in range(3)]
        self.expected = list(enumerate(MESSAGES, 1))
        self.read: list[list[tuple[int, bytes]]] = [[], [], []]
        self.changes = 0

    def state(self) -> bytes:
        return self.mapped[:]

    def check(self) -> None:
        self.changes += 1
        for which, receiver in enumerate(self.receivers):
            if self.changes % (1, 7, 20)[which] == 0:
                self.poll(which, receiver)

    def poll(self, which: int, receiver: BroadcastReceiver) -> None:
        read = self.read[which]
        receiver.receive(lambda kind, payload: read.append((kind, payload)), 10)
        if read != self.expected[: len(read)]:
            raise Torn(f"received {read}")

    def end(self) -> None:
        for which, receiver in enumerate(self.receivers):
            self.poll(which, receiver)
            if self.read[which] != self.expected:
                raise Torn(f"at the end {self.read[which]} had been received")


def reader_of(case: str) -> Callable[[Path, str], Any]:
    return {"the ring buffer": RingReader, "the broadcast buffer": BroadcastReaders}.get(case, LogReader)


def step_through(case: str, path: Path, source: Path) -> tuple[int, int]:
    """Return the number of instructions and of memory states; raise Torn on a failure."""
    reader = reader_of(case)(path, case)
    writer = Stepped(path, case, source)
    changes = 0
    before = reader.state()
    try:
        for _ in writer.run():
            now = reader.state()
            if now != before:
                changes += 1
                reader.check()
                before = reader.state()
        reader.end()
    finally:
        writer.end()
    return writer.steps, changes


CASES = [
    "offers", "offers of an exclusive publication", SEVERAL_FRAMES, OVER_THE_END, "claims", "a batch", "the ring buffer",
    "the broadcast buffer",
]  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_readers_never_see_incomplete_data(case: str, tmp_path: Path) -> None:
    steps, changes = step_through(case, tmp_path / "memory", Path(mainstem.__path__[0]).parent)
    print(f"{case}: {steps} instructions, {changes} states of memory")
    assert changes > 10


# -- the same test over copies of the code in which stores are exchanged -------------------------------------------------

# Module, function, the exchange under its name in tests/models/modelled.py, and the case that must find it.
EXCHANGES = [
    ("log.append", "Appender.put_message", "source, 0, length)", "offers"),
    ("log.append", "Appender.put_message", "source, done, part)", SEVERAL_FRAMES),
    ("log.append", "Appender.put_run", "st32(base, first, (first_length)) before the loop", "a batch"),
    ("memory.ring_buffer", "ManyToOneRingBuffer.write", "commit(offset) before", "the ring buffer"),
]
# Changes other than exchanges of neighbors, as the text to replace. The first restores a fixed bug: if the writer died in the
# second frame of a run, unblocking took payload for the next frame's length.
NEGATIVE_LENGTH = "mark64(base, p, kind | -(length + DATA_HEADER_LENGTH) & LOW_32_BITS)"
PAYLOAD = "self.buffer.put_bytes(index + RECORD_HEADER_LENGTH, payload)"
TAIL = "st64(base, capacity + BROADCAST_TAIL_OFFSET, position + required)"
REPLACEMENTS = [
    ("log.append", NEGATIVE_LENGTH, f"if p == first: {NEGATIVE_LENGTH}", "a batch"),
    ("memory.broadcast", PAYLOAD, f"{TAIL}; {PAYLOAD}", "the broadcast buffer"),
]


def copy_of_the_code(directory: Path, module: str, text: str) -> Path:
    """Build a tree of links to this one with a different source for one module, and compile that module."""
    source = directory / "src"
    shutil.copytree(ROOT / "src" / "mainstem", source / "mainstem", copy_function=os.symlink, symlinks=True)
    module_file = source.joinpath("mainstem", "_core", *module.split(".")).with_suffix(".py")
    for built in module_file.parent.glob(f"{module_file.stem}.*.so"):
        built.unlink()
    module_file.unlink()
    module_file.write_text(text)
    program = (
        "from Cython.Build import cythonize\nfrom setuptools import Extension, setup\n"
        f"e = Extension('mainstem._core.{module}', ['src/mainstem/_core/{module.replace('.', '/')}.py'],"
        "extra_compile_args=['-O2', '-fno-strict-aliasing'], define_macros=[('_GNU_SOURCE', None)])\n"
        "d = dict(language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False)\n"
        "setup(name='mutant', package_dir={'': 'src'}, packages=[], script_args=['-q', 'build_ext', '--inplace'],"
        "ext_modules=cythonize([e], quiet=True, include_path=['src'], compiler_directives=d, build_dir='build'))\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=directory, check=True, timeout=400)
    return source


def text_of(module: str, function: str, what: str) -> str:
    matches = [mutant for mutant in modelled.mutants(module, function) if what in mutant.what]
    assert len(matches) == 1, [str(mutant) for mutant in matches]
    return ast.unparse(modelled.mutate(module, matches[0]))


@pytest.mark.parametrize(("module", "function", "what", "case"), EXCHANGES, ids=[each[3] for each in EXCHANGES])
def test_length_before_payload_is_found(module: str, function: str, what: str, case: str, tmp_path: Path) -> None:
    source = copy_of_the_code(tmp_path, module, text_of(module, function, what))
    with pytest.raises((Torn, ValueError)):
        step_through(case, tmp_path / "memory", source)


@pytest.mark.parametrize(("module", "text", "other", "case"), REPLACEMENTS, ids=[each[3] for each in REPLACEMENTS])
def test_missing_and_early_stores_are_found(module: str, text: str, other: str, case: str, tmp_path: Path) -> None:
    code = ast.unparse(modelled.mutate(module, None))
    assert code.count(text) == 1
    source = copy_of_the_code(tmp_path, module, code.replace(text, other))
    with pytest.raises((Torn, ValueError)):
        step_through(case, tmp_path / "memory", source)
