"""Every fuzz target for a few seconds: ``python fuzz/run.py [--seconds 5] [--seed 1] [NAME ...]``.

A target is a file ``fuzz_*.py`` beside this one with ``target(data: bytes)``: whatever the bytes, it returns. Inputs
are drawn from the seed: random bytes, and mutations of inputs that came before. A failure prints the input and the
command that replays it (``--input HEX``). A canary that must fail shows that failures are seen.
"""

from __future__ import annotations

import argparse
import importlib.util
import random
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).resolve().parent
MAX_INPUT = 512  # bytes: enough for many frames, small enough to try thousands a second
KEPT = 200  # inputs kept for mutation


def load(name: str) -> tuple[Callable[[bytes], None], list[bytes]]:
    """A target and, where its file has ``SEEDS``, inputs worth mutating."""
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.target, list(getattr(module, "SEEDS", ()))


def mutate(rng: random.Random, corpus: list[bytes]) -> bytes:
    """A new input."""
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
    return bytes(data[:MAX_INPUT])


def run(name: str, target: Callable[[bytes], None], seeds: list[bytes], *, seed: int, seconds: float) -> int | None:
    """How many inputs the target took; None where one was too much for it, which is printed."""
    rng = random.Random(f"{seed} {name}")
    corpus: list[bytes] = []
    end = time.monotonic() + seconds
    count = 0
    while time.monotonic() < end:
        data = mutate(rng, seeds if seeds and rng.random() < 0.5 else corpus)
        try:
            target(data)
        except Exception:
            traceback.print_exc()
            print(f"{name}: failed after {count} inputs; replay: python fuzz/run.py {name} --input {data.hex()}")
            return None
        count += 1
        if len(corpus) < KEPT:
            corpus.append(data)
        else:
            corpus[rng.randrange(KEPT)] = data
    return count


def canary(data: bytes) -> None:
    """Fails on its own account: a runner that does not see it sees nothing."""
    if len(data) > 3 and data[0] > 0x80:
        raise AssertionError("the canary")


def main() -> int:
    parser = argparse.ArgumentParser(description="run the fuzz targets")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--input", help="replay one input, in hexadecimal, on the target that is named")
    arguments = parser.parse_args()
    names = arguments.names or sorted(path.stem for path in HERE.glob("fuzz_*.py"))
    if arguments.input is not None:
        load(names[0])[0](bytes.fromhex(arguments.input))
        return 0
    sys.stderr.flush()
    failed = 0
    for name in names:
        count = run(name, *load(name), seed=arguments.seed, seconds=arguments.seconds)
        failed += count is None
        if count is not None:
            print(f"{name}: {count} inputs")
    stream, sys.stderr, out, sys.stdout = sys.stderr, open("/dev/null", "w"), sys.stdout, open("/dev/null", "w")  # noqa: SIM115
    try:
        seen = run("canary", canary, [], seed=arguments.seed, seconds=5.0) is None
    finally:
        sys.stderr.close()
        sys.stdout.close()
        sys.stderr, sys.stdout = stream, out
    print("canary: seen" if seen else "canary: NOT SEEN")
    return 1 if failed or not seen else 0


if __name__ == "__main__":
    sys.exit(main())
