"""Fuzz targets: ``python fuzz/run.py [--seconds 5] [--seed 1] [--plain] [NAME ...]``.

A target is a file ``fuzz_*.py`` in this directory with ``target(data: bytes)``, which must return for any bytes. Its first inputs
are ``SEEDS``, which Mainstem's own code writes, and ``corpus/NAME.txt``, with one input per line in hexadecimal.

If the package atheris is installed, coverage guides the inputs: each target runs in its own process with instrumented Python
code, and inputs that reach something new are kept. ``--keep`` adds the shortest of those to the corpus. ``_core`` is not
instrumented: its decoders are reached through the Python code around them, and their errors show up under the sanitizers
(tools/sanitize.py).

Without atheris, and with ``--plain``, inputs are drawn from the seed: random bytes, and mutations of earlier inputs.

A failure prints the input and the command that replays it (``--input HEX``). A canary target that must fail verifies that
failures are detected. ``--table FILE`` writes the results between two marks of a Markdown file.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import random
import re
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).resolve().parent
MAX_INPUT = 512  # bytes: enough for many frames, small enough to try thousands of inputs per second
MAX_CORPUS = 64  # inputs in a committed corpus: the smallest of those that reach something new
KEPT = 200  # inputs kept for mutation
CANARY = "canary"
TABLE = ("<!-- fuzz: begin -->", "<!-- fuzz: end -->")
EXECUTED = re.compile(r"stat::number_of_executed_units:\s*(\d+)")
REACHED = re.compile(r"cov: (\d+)")


@dataclass(frozen=True)
class Run:
    """The result of one target. ``reached`` is the number of edges of Python code; None without guidance."""

    name: str
    inputs: int
    seconds: float
    reached: int | None = None
    failure: bytes | None = None


def load(name: str) -> tuple[Callable[[bytes], None], list[bytes]]:
    """Return a target and inputs worth mutating."""
    if name == CANARY:
        return canary, []
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    corpus = HERE / "corpus" / f"{name}.txt"
    kept = [bytes.fromhex(line) for line in corpus.read_text().splitlines()] if corpus.exists() else []
    return module.target, [*getattr(module, "SEEDS", ()), *kept]


def mutate(rng: random.Random, corpus: list[bytes]) -> bytes:
    """Return a new input."""
    if not corpus or rng.random() < 0.3:
        return rng.randbytes(rng.randrange(MAX_INPUT))
    data = bytearray(rng.choice(corpus))
    for _ in range(rng.randrange(1, 5)):
        at = rng.randrange(len(data) + 1)
        what = rng.randrange(4)
        if what == 0 and data:
            data[at % len(data)] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        elif what == 1:
            data[at:at] = rng.randbytes(rng.randrange(1, 9))
        elif what == 2:
            del data[at : at + rng.randrange(1, 9)]
        else:
            other = rng.choice(corpus)
            start = rng.randrange(len(other) + 1)
            data[at:at] = other[start : start + 32]
    return bytes(data[: max(MAX_INPUT, *map(len, corpus[:KEPT]))])


def run_plain(name: str, *, seed: int, seconds: float) -> Run:
    """Run a target on unguided inputs. Print any failure."""
    target, seeds = load(name)
    rng = random.Random(f"{seed} {name}")
    corpus: list[bytes] = []
    begin = time.monotonic()
    count = 0
    while time.monotonic() < begin + seconds:
        data = seeds[count] if count < len(seeds) else mutate(rng, seeds if seeds and rng.random() < 0.5 else corpus)
        try:
            target(data)
        except Exception:
            traceback.print_exc()
            return Run(name, count, time.monotonic() - begin, failure=data)
        count += 1
        if len(corpus) < KEPT:
            corpus.append(data)
        else:
            corpus[rng.randrange(KEPT)] = data
    return Run(name, count, time.monotonic() - begin)


def run_guided(name: str, *, seed: int, seconds: float, keep: bool) -> Run:
    """Run a target in its own process, guided by what its inputs reach."""
    with tempfile.TemporaryDirectory(prefix="mainstem-fuzz-") as directory:
        for part in ("seeds", "found", "failures"):
            (Path(directory) / part).mkdir()
        begin = time.monotonic()
        seeds = load(name)[1]
        for number, data in enumerate(seeds):
            (Path(directory) / "seeds" / f"{number:04d}").write_bytes(data)
        options = [
            f"-max_total_time={max(1, round(seconds))}",
            f"-seed={seed}",
            f"{directory}/found",
            f"{directory}/seeds",
        ]
        result = _guided(name, directory, max(map(len, [bytes(MAX_INPUT), *seeds])), options)
        failures = sorted((Path(directory) / "failures").iterdir())
        counted, reached = EXECUTED.search(result.stderr), REACHED.findall(result.stderr)
        failure = failures[0].read_bytes() if failures else None
        if failure is not None or counted is None:
            sys.stderr.write(result.stdout[-4000:] + result.stderr[-6000:])
            failure = failure or b""
        elif keep:
            store(name, [path.read_bytes() for path in (Path(directory) / "found").iterdir()])
        inputs = int(counted[1]) if counted else 0
        return Run(name, inputs, time.monotonic() - begin, int(reached[-1]) if reached else 0, failure)


def _guided(name: str, directory: str, longest: int, options: list[str]) -> subprocess.CompletedProcess[str]:
    flags = [
        f"-max_len={longest}",
        f"-artifact_prefix={directory}/failures/",
        "-print_final_stats=1",
        "-timeout=60",
        "-rss_limit_mb=0",
    ]
    command = [sys.executable, __file__, "--guided", name, *flags, *options]
    return subprocess.run(command, capture_output=True, text=True, errors="replace", cwd=directory)


def store(name: str, inputs: list[bytes]) -> None:
    """Write the corpus of a target, with the shortest inputs first."""
    path = HERE / "corpus" / f"{name}.txt"
    old = [bytes.fromhex(line) for line in path.read_text().splitlines()] if path.exists() else []
    chosen = sorted({*old, *inputs} - {b""}, key=lambda data: (len(data), data))[:MAX_CORPUS]
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{data.hex()}\n" for data in chosen))


def guided(name: str, arguments: list[str]) -> None:
    """Run one target in this process. Its Python code is instrumented as it is imported."""
    import atheris

    with atheris.instrument_imports(include=["mainstem"]):
        target, _ = load(name)
    atheris.Setup([name, *arguments], atheris.instrument_func(target))
    atheris.Fuzz()


def canary(data: bytes) -> None:
    """Fail on purpose: a runner that does not notice this would notice nothing."""
    if len(data) > 3 and data[0] > 0x80:
        raise AssertionError("the canary")


def write_table(path: Path, runs: list[Run]) -> None:
    """Replace the text between the marks."""
    lines = ["| target | seconds | inputs | edges of Python reached |", "| --- | ---: | ---: | ---: |"]
    lines += [f"| `{each.name}` | {each.seconds:.0f} | {each.inputs:,} | {each.reached or '—'} |" for each in runs]
    before, _, rest = path.read_text().partition(TABLE[0])
    after = rest.partition(TABLE[1])[2]
    path.write_text("\n".join([before + TABLE[0], *lines, TABLE[1]]) + after)


def main() -> int:
    parser = argparse.ArgumentParser(description="run the fuzz targets")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--input", help="replay one input, in hexadecimal, on the target that is named")
    parser.add_argument("--plain", action="store_true", help="without guidance, in this process")
    parser.add_argument("--keep", action="store_true", help="add inputs that reach something new to the corpus")
    parser.add_argument("--table", type=Path, help="a Markdown file to write the figures into")
    arguments = parser.parse_args()
    names = arguments.names or sorted(path.stem for path in HERE.glob("fuzz_*.py"))
    if arguments.input is not None:
        load(names[0])[0](bytes.fromhex(arguments.input))
        return 0
    is_guided = not arguments.plain and importlib.util.find_spec("atheris") is not None
    print(f"inputs are {'guided by coverage' if is_guided else 'drawn without guidance'}", flush=True)
    runs = []
    for name in names:
        if is_guided:
            run = run_guided(name, seed=arguments.seed, seconds=arguments.seconds, keep=arguments.keep)
        else:
            run = run_plain(name, seed=arguments.seed, seconds=arguments.seconds)
        runs.append(run)
        if run.failure is None:
            print(f"{name}: {run.inputs} inputs" + (f", {run.reached} edges" if run.reached else ""), flush=True)
        else:
            print(f"{name}: failed; replay: python fuzz/run.py {name} --input {run.failure.hex()}", flush=True)
    seen = sees_canary(is_guided=is_guided, seed=arguments.seed)
    print("canary: seen" if seen else "canary: NOT SEEN")
    if arguments.table is not None:
        write_table(arguments.table, runs)
    return 1 if any(run.failure is not None for run in runs) or not seen else 0


def sees_canary(*, is_guided: bool, seed: int) -> bool:
    """Return whether the runner detects a failing target. Prints nothing."""
    stream, sys.stderr = sys.stderr, open(os.devnull, "w")  # noqa: SIM115
    try:
        if is_guided:
            return run_guided(CANARY, seed=seed, seconds=30, keep=False).failure is not None
        return run_plain(CANARY, seed=seed, seconds=5).failure is not None
    finally:
        sys.stderr.close()
        sys.stderr = stream


if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parent))  # for modules that targets share with tests
    if sys.argv[1:2] == ["--guided"]:
        guided(sys.argv[2], sys.argv[3:])
    else:
        sys.exit(main())
