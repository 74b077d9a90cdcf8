"""Compile ``_core`` for another system with the compiler of the ziglang wheel: ``python tools/cross.py [TARGET ...]``.

For macOS, each module is compiled to an object file with the header files of that wheel and Python's own. Nothing is linked or
run, so this only shows that the C code compiles there. cibuildwheel builds and tests wheels for arm64.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

from backend.core_stubs import NOT_COMPILED

ROOT = Path(__file__).resolve().parents[1]
CORE = ROOT / "src" / "mainstem" / "_core"
MACOS = ("aarch64-macos", "x86_64-macos")
# The parts of this Python's pyconfig.h that Python's header files use and that also apply to macOS.
SAME = (
    "ALIGNOF_",
    "DOUBLE_IS_",
    "HAVE_BUILTIN_ATOMIC",
    "HAVE_CLOCK_GETTIME",
    "HAVE_FORK",
    "HAVE_GCC_",
    "HAVE_LONG_LONG",
    "HAVE_PTHREAD_H",
    "HAVE_SSIZE_T",
    "HAVE_STD",
    "HAVE_SYS_SELECT_H",
    "HAVE_SYS_STAT_H",
    "HAVE_SYS_TIME_H",
    "HAVE_SYS_TYPES_H",
    "HAVE_UNISTD_H",
    "HAVE_WCHAR_H",
    "Py_GIL_DISABLED",
    "SIZEOF_",
    "STDC_HEADERS",
    "WITH_",
)
# Values that differ on macOS, where pthread_key_t is a long.
DIFFERENT = {"SIZEOF_PTHREAD_KEY_T": 8, "SIZEOF_FPOS_T": 8}


def headers(directory: Path, own: Path, pyconfig: str) -> Path:
    """Create a directory with Python's header files from ``own`` and this ``pyconfig.h``, which the headers include from there."""
    directory.mkdir()
    for file in own.iterdir():
        if file.name != "pyconfig.h":
            (directory / file.name).symlink_to(file)
    (directory / "pyconfig.h").write_text(pyconfig)
    return directory


def pyconfig_of_macos() -> str:
    """Return a small ``pyconfig.h``, derived from this Python's."""
    # Uses the values from Python's build, because the file itself might only include another one, as Debian's does.
    values = sysconfig.get_config_vars()
    kept = {name: value for name, value in values.items() if value and name.startswith(SAME)} | DIFFERENT
    return "".join(f"#define {name} {value}\n" for name, value in kept.items())


def modules() -> list[Path]:
    """Return the sources to compile."""
    return [path for path in sorted(CORE.rglob("*.py")) if path.stem not in NOT_COMPILED]


def compile_module(source: Path, output: Path, target: str, include: Path, *options: str) -> str:
    """Compile one module to ``output``. Return the compiler's output if it failed; otherwise empty."""
    sys.path.insert(0, str(ROOT / "tools" / "backend"))
    from translation import translate  # next to the build backend, which is not installed

    [c_file] = translate(str(source.relative_to(ROOT))) or [""]
    if not c_file:
        return f"Cython refuses {source}"
    command = [sys.executable, "-m", "ziglang", "cc", "-target", target, "-g0", "-w", "-fno-strict-aliasing"]
    command += ["-D_GNU_SOURCE", "-I", str(include), *options, c_file, "-o", str(output)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode == 0 and output.exists():
        return ""
    return done.stderr or f"the compiler ended with {done.returncode}"


def has_zig() -> bool:
    return importlib.util.find_spec("ziglang") is not None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(MACOS)}, or all")
    targets = parser.parse_args().targets or list(MACOS)
    if not has_zig():
        print(
            "cross: there is no ziglang wheel beside this Python (pip install ziglang): nothing is compiled for macOS"
        )
        return 0
    os.chdir(ROOT)
    begin, failed = time.monotonic(), 0
    with tempfile.TemporaryDirectory(prefix="mainstem-cross-") as name:
        include = headers(Path(name, "include"), Path(sysconfig.get_path("include")), pyconfig_of_macos())
        for target in targets:
            for source in modules():
                output = Path(name, f"{source.stem}.o")
                if printed := compile_module(source, output, target, include, "-O0", "-c"):
                    failed += 1
                    print(f"cross: {source.relative_to(ROOT)} for {target}:\n{printed[-3000:]}")
                output.unlink(missing_ok=True)
    seconds = time.monotonic() - begin
    print(f"cross: {len(modules())} modules for {', '.join(targets)} in {seconds:.0f} s, {failed} refused")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
