"""Settings: any TOML file and any environment produce settings of a driver and of a client, or an error.

The input is a TOML file, a zero byte, and lines NAME=VALUE of the environment.
"""

from __future__ import annotations

import zlib

from scratch import folder

from mainstem.aeron.client.settings import ClientSettings
from mainstem.aeron.driver.settings import DriverSettings
from mainstem.errors import ConfigurationError

KINDS = (DriverSettings, ClientSettings)
_DEFAULTS = [kind.load(environ={}) for kind in KINDS]
_TABLES = [
    "\n".join(f'{each.name} = "{each.value}"' for each in settings.explain_all() if each.value)
    for settings in _DEFAULTS
]
_LINES = [f"{each.env}={each.default}" for settings in _DEFAULTS for each in settings.explain_all()]
SEEDS = [
    b'mtu_length = "4k"\nterm_buffer_length = 65536\n\0AERON_IPC_MTU_LENGTH=8k',
    b'threading_mode = "INVOKER"\nspies_simulate_connection = true\n\0AERON_TIMER_INTERVAL=1s\nAERON_FILE_PAGE_SIZE=4k',
    b"initial_window_length = 128\n[table]\nx = [1, 2.5, 1979-05-27]\n\0",
    *(table[:400].encode() + b"\0" for table in _TABLES),
    *(b"\0" + "\n".join(_LINES[start : start + 6]).encode() for start in range(0, len(_LINES), 6)),
]
_PATH = str(folder() / "driver.toml")


def target(data: bytes) -> None:
    """Process one input."""
    table, _, lines = data.partition(b"\0")
    with open(_PATH, "wb") as file:
        file.write(table)
    pairs = (line.partition("=") for line in lines.decode(errors="surrogateescape").splitlines())
    environ = {name: value for name, _, value in pairs}
    for kind in KINDS:
        for source in ({"toml": _PATH, "environ": {}}, {"environ": environ}):
            try:
                settings = kind.load(**source)  # type: ignore[arg-type]
            except ConfigurationError as error:
                assert str(error)
                continue
            # Only sometimes, because this takes a hundred times as long as everything else.
            if zlib.crc32(data) % 64 == 0:
                again = kind.load(environ=settings.environment())
                assert again == settings, "settings do not come back from an environment"
