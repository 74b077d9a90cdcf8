"""Settings of a duologue server and its clients on this machine."""

from __future__ import annotations

from typing import Any

from mainstem.duologue import ClientSettings, ServerSettings

HERE = "127.0.0.1"


def server_settings(port: int, **more: Any) -> ServerSettings:
    return ServerSettings(
        address=HERE, initial_port=port, initial_control_port=port + 1, base_port=port + 2, **{"max_clients": 4, **more}
    )


def client_settings(port: int, **more: Any) -> ClientSettings:
    return ClientSettings(server=HERE, initial_port=port, initial_control_port=port + 1, **{"timeout": 15.0, **more})
