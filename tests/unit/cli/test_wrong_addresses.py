"""Wrong hosts and ports of every protocol raise an error of Mainstem, never another exception."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from mainstem import aqueduct, bymux, duologue, jmux
from mainstem.errors import MainstemError

if TYPE_CHECKING:
    from types import ModuleType

LONG_LABEL = "a" * 64 + ".example"
HOSTS = ("a..b", LONG_LABEL, "host name", "[::1", "::1::2", "256.1.1.1", "\0", "a%25b", "nowhere.invalid")
PORTS = (70_000, -1, 65_536)


@pytest.mark.parametrize("family", [bymux, jmux, aqueduct, duologue], ids=lambda each: each.__name__)
@pytest.mark.parametrize("call", ["connect", "serve"])
def test_an_invalid_address_raises_a_mainstem_error(family: ModuleType, call: str) -> None:
    function: Any = getattr(family, call)
    arguments: tuple[Any, ...] = () if call == "connect" else (lambda *_: None,)
    for host, port in (*((host, 9) for host in HOSTS), *(("127.0.0.1", port) for port in PORTS)):
        with pytest.raises(MainstemError) as error:
            function(*arguments, host, port)
        text = str(error.value)
        assert text
        assert "Traceback" not in text
        assert "idna" not in text
