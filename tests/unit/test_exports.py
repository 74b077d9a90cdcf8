from __future__ import annotations

import importlib.metadata
import subprocess
import sys

import pytest

import mainstem


def test_every_public_name_is_there():
    assert set(mainstem.__all__) <= set(dir(mainstem))
    for name in mainstem.__all__:
        if name != "MediaDriver":
            assert getattr(mainstem, name) is not None


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        mainstem.Nothing  # noqa: B018


def loaded_by(code: str, prefix: str) -> list[str]:
    """Return the modules with a prefix that are loaded after some code ran in a new interpreter."""
    report = f"import sys; {code}; print(*sorted(name for name in sys.modules if name.startswith({prefix!r})))"
    return subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, check=True).stdout.split()


def test_importing_the_package_loads_none_of_its_parts():
    assert loaded_by("import mainstem", "mainstem.") == [
        "mainstem._internal",
        "mainstem._internal.lazy",
        "mainstem._shared_names",
    ]


@pytest.mark.parametrize("family", ["aio", "aqueduct", "bymux", "duologue", "jmux"])
def test_every_family_is_an_attribute_of_the_package_and_needs_no_extra(family):
    assert family in dir(mainstem)
    code = f"import mainstem; assert mainstem.{family}.aio if {family!r} != 'aio' else mainstem.aio.Aeron"
    extras = {"aioquic", "cryptography", "msgspec", "cbor2", "obstore", "pyarrow", "qh3", "uvloop"}
    assert not extras & set(loaded_by(code, ""))
    assert f"mainstem.{family}" in loaded_by(code, "mainstem.")


def test_the_version_is_that_of_the_installed_package():
    assert mainstem.__version__ == importlib.metadata.version("mainstem")
