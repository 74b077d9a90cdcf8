"""The extension modules and the description for the package index; everything else is in pyproject.toml.

With MAINSTEM_COMPILE=no there are no extension modules: ``tools/setup.py`` compiles them in place by itself.
"""

import os
import re
import tomllib
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

CORE = Path("src/mainstem/_core")
# plain.py stands in for the C primitives where nothing is compiled; layout.py and capture/layout.py hold only numbers.
UNCOMPILED = {"__init__", "layout", "plain"}
MODULES = sorted(path for path in CORE.rglob("*.py") if path.stem not in UNCOMPILED)
if os.environ.get("MAINSTEM_COMPILE") == "no":
    MODULES = []


def description() -> str:
    """README.md for a package index, where relative links lead nowhere.

    They become absolute under the URL ``Source`` of pyproject.toml, and plain text while there is none.
    """
    source = tomllib.loads(Path("pyproject.toml").read_text())["project"].get("urls", {}).get("Source", "")
    if source:
        return re.sub(r"\]\((?!\w+:|#)", f"]({source}/blob/main/", Path("README.md").read_text())
    without_images = re.sub(r"!\[[^]]*\]\((?!\w+:)[^)]*\)\n*", "", Path("README.md").read_text())
    return re.sub(r"\[([^]]*)\]\((?!\w+:|#)[^)]*\)", r"\1", without_images)


setup(
    long_description=description(),
    long_description_content_type="text/markdown",
    ext_modules=cythonize(
        [
            Extension(
                ".".join(path.relative_to("src").with_suffix("").parts),
                [str(path)],
                extra_compile_args=["-O2", "-g0", "-fno-strict-aliasing", "-Wno-unused-function"],
                define_macros=[("_GNU_SOURCE", None)],
            )
            for path in MODULES
        ],
        nthreads=2,
        build_dir="build/cython",
        include_path=["src"],
        compiler_directives={
            "language_level": 3,
            "boundscheck": False,
            "wraparound": False,
            "cdivision": True,
            "initializedcheck": False,
            "freethreading_compatible": True,
        },
    ),
)
