"""What becomes of a backend whose library is missing."""

from __future__ import annotations

import sys

import pytest

from mainstem.aqueduct.quic import load_backend
from mainstem.errors import ConfigurationError


@pytest.mark.parametrize(("library", "extra"), [("qh3", "quic"), ("aioquic", "quic-aioquic")])
def test_a_backend_without_its_library_names_the_extra(
    library: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, f"mainstem.aqueduct.quic.{library}_backend", raising=False)
    # A submodule that another test has loaded is importable even where its package is not.
    for name in [library, *(name for name in sys.modules if name.startswith(f"{library}."))]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ConfigurationError, match=rf"^backend '{library}' .*'mainstem\[{extra}\]'$"):
        load_backend(library)
