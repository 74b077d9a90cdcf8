"""Run tests and fuzz targets with a ``_core`` that reports invalid memory accesses and undefined behavior.

``python tools/sanitize.py [address] [thread] [--quick] [--seconds 20]``; ``make sanitize`` runs it.

``address``: compiles ``_core`` with AddressSanitizer and UndefinedBehaviorSanitizer in a copy of the source below
``build/sanitize``, without touching the modules next to the source. Runs the unit tests, the tests with hostile peers, and the
fuzz targets. Python's memory comes from malloc (PYTHONMALLOC), so that each buffer has its red zones, and each file that is
mapped shared lies between two inaccessible pages (tests/sanitizers/guard_pages.c). Leak detection is off, because the interpreter
keeps allocations until it ends; tests in Python check for leaks instead.

``thread``: runs the structures in shared memory with ThreadSanitizer, driven by threads without the interpreter's lock
(tests/sanitizers/race.py).

``--quick`` is the part that ``make check`` has time for: the unit tests of ``_core``, hostile fields, and some seconds for each
target.

Every report fails the run, even if the test passed. Before the tests, planted faults verify that the sanitizers report.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / "build" / "sanitize"
COPIED = (
    "src",
    "tests",
    "docs",
    "tools",
    "fuzz",
    "examples",
    "benchmarks",
    "setup.py",
    "pyproject.toml",
    "README.md",
    "LICENSE",
)
LEFT_OUT = re.compile(r"(^|/)(__pycache__|\.hypothesis|.*\.egg-info)(/|$)|\.(so|pyc)$")
FLAGS = {
    # -fno-wrapv: Python's own flags define integer overflow, but those of other compilers might not.
    "address": "-fsanitize=address,undefined -fno-wrapv -fno-omit-frame-pointer -g1 -O1",
    "thread": "-fsanitize=thread -g1 -O1",
}
RUNTIMES = {"address": ("libasan.so", "libubsan.so"), "thread": ("libtsan.so",)}
PLANTED = ("behind_memory(10)", "behind_mapping(b'{directory}/mapped')", "shifted(-1)", "overflown(5)")
QUICK = ("tests/unit/_core", "tests/unit/aeron/driver/test_hostile_fields.py")
# Measures memory, of which the sanitizer needs more.
MEASURED = ("--deselect", "tests/unit/recording/test_archives.py::test_a_long_segment_takes_little_memory")
# Excludes tests that start a JVM, which handles SIGSEGV itself and runs nothing from `_core`.
FULL = (
    "tests/unit",
    "--ignore=tests/unit/spark",
    "--ignore=tests/unit/cli/test_doctor.py",
    *MEASURED,
    "tests/system/test_hostile_datagrams.py",
    "tests/system/test_duologue_hostile.py",
)


class Failed(Exception):
    """The reason for a failed run."""


def say(text: str) -> None:
    print(f"sanitize: {text}", flush=True)


def copy_source(tree: Path) -> None:
    """Update the copy. Unchanged files keep their timestamps, so that they are not compiled again."""
    wanted: set[Path] = set()
    for name in COPIED:
        source = ROOT / name
        for path in [source] if source.is_file() else source.rglob("*"):
            relative = path.relative_to(ROOT)
            if not path.is_file() or LEFT_OUT.search(str(relative)):
                continue
            wanted.add(relative)
            target = tree / relative
            if not target.exists() or target.read_bytes() != path.read_bytes():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, target)
                os.utime(target)
    for name in COPIED:
        for path in (tree / name).rglob("*") if (tree / name).is_dir() else ():
            relative = path.relative_to(tree)
            if path.is_file() and relative not in wanted and not LEFT_OUT.search(str(relative)):
                path.unlink()


def build(kind: str) -> Path:
    """Compile the copy for one sanitizer, and the preloaded libraries. Return the copy's directory."""
    tree = HOME / kind
    tree.mkdir(parents=True, exist_ok=True)
    copy_source(tree)
    environment = os.environ | {"MAINSTEM_CFLAGS": FLAGS[kind], "PYTHONPATH": str(tree / "src")}
    command = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
    begin = time.monotonic()
    result = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)
    if result.returncode:
        raise Failed(f"the copy does not compile:\n{result.stdout[-3000:]}{result.stderr[-3000:]}")
    say(f"{kind}: compiled in {time.monotonic() - begin:.0f} s")
    if kind == "address":
        compile_shared(tree / "preloaded.so", "guard_pages.c", "undefined_reports.c")
        compile_shared(tree / "planted.so", "planted.c", flags=FLAGS["address"])
    return tree


def compile_shared(target: Path, *sources: str, flags: str = "-O1") -> None:
    paths = [str(ROOT / "tests" / "sanitizers" / name) for name in sources]
    command = [
        "gcc",
        "-Wall",
        "-Wextra",
        "-shared",
        "-fPIC",
        *flags.split(),
        "-o",
        str(target),
        *paths,
        "-ldl",
        "-lpthread",
    ]
    subprocess.run(command, check=True)


def runtime(name: str) -> str:
    """Return the path of a sanitizer's library, according to gcc."""
    path = subprocess.run(
        ["gcc", f"-print-file-name={name}"], check=True, capture_output=True, text=True
    ).stdout.strip()
    if not os.path.isabs(path):
        raise Failed(f"gcc has no {name}: install the package of its sanitizers (on Debian: libgcc-12-dev)")
    return path


def environment(tree: Path, kind: str, reports: Path) -> dict[str, str]:
    """Return the environment of programs in the copy: they report into a directory, and continue after undefined behavior."""
    first, *others = [runtime(name) for name in RUNTIMES[kind]]
    preloaded = [first, *([str(tree / "preloaded.so")] if kind == "address" else []), *others]
    return os.environ | {
        "LD_PRELOAD": " ".join(preloaded),
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": f"{tree / 'src'}{os.pathsep}{tree}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "MAINSTEM_SANITIZER": kind,
        "MAINSTEM_UNDEFINED_REPORTS": str(reports / "undefined"),
        # handle_segv: otherwise, pytest's own handler would run before the report. Tests may request more memory than exists.
        "ASAN_OPTIONS": f"detect_leaks=0:handle_segv=2:allocator_may_return_null=1:log_path={reports / 'address'}",
        "UBSAN_OPTIONS": "print_stacktrace=0",
        "TSAN_OPTIONS": f"log_path={reports / 'thread'}:exitcode=0:report_signal_unsafe=0",
    }


def fresh(directory: Path) -> Path:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    return directory


def plant(tree: Path) -> None:
    """Raise Failed unless each planted fault is reported."""
    for call in PLANTED:
        reports = fresh(HOME / "planted")
        script = f"import ctypes; ctypes.CDLL('{tree / 'planted.so'}').{call.format(directory=reports)}"
        subprocess.run([sys.executable, "-c", script], env=environment(tree, "address", reports), capture_output=True)
        if not any(path.name != "mapped" for path in reports.iterdir()):
            raise Failed(f"a planted fault was not found: {call}")
    say(f"{len(PLANTED)} planted faults: all reported")


def check_address(*, quick: bool, seconds: float, workers: int) -> None:
    tree = build("address")
    plant(tree)
    reports = fresh(HOME / "reports")
    selection = QUICK if quick else FULL
    pytest = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-m",
        "not long and not spark and not interop",
    ]
    spread = ["-n", str(workers), "--dist", "loadscope"] if workers > 1 else []
    fuzz = [sys.executable, "fuzz/run.py", "--seconds", str(seconds), "--plain"]
    failed = []
    for name, command in (("tests", [*pytest, *spread, *selection]), ("fuzz targets", fuzz)):
        begin = time.monotonic()
        result = subprocess.run(command, cwd=tree, env=environment(tree, "address", reports))
        say(f"{name}: exit code {result.returncode} after {time.monotonic() - begin:.0f} s")
        failed += [name] if result.returncode else []
    summary = told(tree, reports)
    if summary:
        print(summary)
    if failed or summary:
        raise Failed(f"failed: {', '.join(failed) or 'nothing'}; reports: {reports if summary else 'none'}")
    say("no report")


def told(tree: Path, reports: Path) -> str:
    """Return the reports without duplicates: invalid accesses with stacks, undefined behavior with the Python line."""
    texts = [path.read_text(errors="replace")[:6000] for path in sorted(reports.glob("address.*"))]
    undefined = reports / "undefined"
    if undefined.exists():
        texts += sorted({origin(tree, line) for line in undefined.read_text(errors="replace").splitlines()})
    return "\n".join(texts)


def origin(tree: Path, report: str) -> str:
    """Prefix a report with the line of the .py file named by Cython's comment above the C line."""
    path, number, _rest = report.split(":", 2)
    source = tree / path
    if source.suffix != ".c" or not source.exists():
        return report
    for line in reversed(source.read_text(errors="replace").splitlines()[: int(number)]):
        if match := re.match(r' */\* "([^"]+)":(\d+)$', line):
            return f"{match[1]}:{match[2]}: {report}"
    return report


def check_thread() -> None:
    tree = build("thread")
    loops = tree / "tests" / "sanitizers" / "race_loops"
    source = f"{loops}.c"
    cython = [
        sys.executable,
        "-m",
        "cython",
        "-3",
        "-I",
        "src",
        "--module-name",
        "race_loops",
        "tests/sanitizers/race.pyx",
    ]
    subprocess.run([*cython, "-o", source], cwd=tree, check=True)
    includes = f"-I{sysconfig.get_path('include')}"
    command = ["gcc", *FLAGS["thread"].split(), "-w", "-shared", "-fPIC", includes, "-o", f"{loops}.so", source]
    subprocess.run(command, check=True)
    code, texts = race(tree, "planted")
    if not texts:
        raise Failed("a planted race was not found")
    say("a planted race: reported")
    code, texts = race(tree)
    if code or texts:
        print("\n".join(text[:8000] for text in texts))
        raise Failed(f"races: exit code {code}, reports in {HOME / 'races'}")
    say("no race")


def race(tree: Path, *arguments: str) -> tuple[int, list[str]]:
    """Run the races. Return the exit code and the reports."""
    command = [sys.executable, str(tree / "tests" / "sanitizers" / "race.py"), *arguments]
    # ThreadSanitizer uses fixed addresses, where a randomized layout may have put something else.
    if shutil.which("setarch"):
        command = ["setarch", "-R", *command]
    reports = fresh(HOME / "races")
    result = subprocess.run(command, cwd=tree, env=environment(tree, "thread", reports))
    return result.returncode, [path.read_text(errors="replace") for path in sorted(reports.glob("thread.*"))]


def main() -> int:
    parser = argparse.ArgumentParser(description="run tests and fuzz targets under the compiler's sanitizers")
    parser.add_argument("kinds", nargs="*", choices=["address", "thread", []], metavar="KIND")
    parser.add_argument("--quick", action="store_true", help="what make check has time for")
    parser.add_argument("--seconds", type=float, default=20.0, help="for each fuzz target")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    kinds = given.kinds or ["address", "thread"]
    if not shutil.which("gcc"):
        say("no gcc here: nothing is checked")
        return 0
    try:
        if "address" in kinds:
            check_address(quick=given.quick, seconds=given.seconds, workers=given.workers)
        if "thread" in kinds:
            check_thread()
    except Failed as error:
        say(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
