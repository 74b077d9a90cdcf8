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


def test_importing_the_package_loads_none_of_its_parts():
    code = "import sys, mainstem; print(sorted(m for m in sys.modules if m.startswith('mainstem.')))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_the_version_is_that_of_the_installed_package():
    assert mainstem.__version__ == importlib.metadata.version("mainstem")
