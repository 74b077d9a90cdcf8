"""Compiles the compiled part for another system, with the compiler of the ziglang wheel: ``python tools/cross.py [TARGET ...]``.

For macOS each module becomes an object file, from that wheel's header files and Python's own; nothing is linked and nothing is
run, so it shows that the C is C there, and no more. cibuildwheel builds and tests wheels of arm64.
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

ROOT = Path(__file__).resolve().parents[1]
CORE = ROOT / "src" / "mainstem" / "_core"
UNCOMPILED = ("__init__", "layout", "plain")
MACOS = ("aarch64-macos", "x86_64-macos")
# Of this Python's pyconfig.h, what Python's header files ask for and macOS has too.
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
# Where it differs: the key of a thread's variables is a long there.
DIFFERENT = {"SIZEOF_PTHREAD_KEY_T": 8, "SIZEOF_FPOS_T": 8}


def headers(folder: Path, own: Path, pyconfig: str) -> Path:
    """A folder with Python's header files from ``own``, and that ``pyconfig.h``, which they take from beside them."""
    folder.mkdir()
    for file in own.iterdir():
        if file.name != "pyconfig.h":
            (folder / file.name).symlink_to(file)
    (folder / "pyconfig.h").write_text(pyconfig)
    return folder


def pyconfig_of_macos() -> str:
    """A small ``pyconfig.h``, from that of this Python."""
    # What was kept when Python was built: the file itself may only include another one, as Debian's does.
    values = sysconfig.get_config_vars()
    kept = {name: value for name, value in values.items() if value and name.startswith(SAME)} | DIFFERENT
    return "".join(f"#define {name} {value}\n" for name, value in kept.items())


def modules() -> list[Path]:
    """The sources that are compiled."""
    return [path for path in sorted(CORE.rglob("*.py")) if path.stem not in UNCOMPILED]


def compile_module(source: Path, output: Path, target: str, include: Path, *options: str) -> str:
    """Compiles one module to ``output``; what the compiler printed where it refused it, else nothing."""
    sys.path.insert(0, str(ROOT / "tools" / "backend"))
    from translation import translate  # beside the build backend, which is not installed

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
