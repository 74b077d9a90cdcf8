"""Clients of an archive name hosts that only the archive's driver knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.ports import free_port

from mainstem import Aeron, MediaDriver
from mainstem.archive import connect
from mainstem.archive.server import ArchiveServer

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.system


@pytest.mark.parametrize("resolver", ["table", "table for a port", "driver"])
def test_an_archive_responds_to_a_name_that_its_driver_resolves(tmp_path: Path, resolver: str) -> None:
    port = free_port()
    settings = {"name_resolver_supplier": "csv_table", "name_resolver_init_args": "node.invalid,127.0.0.1,127.0.0.2"}
    if resolver == "table for a port":
        row = f"node.invalid:{port},endpoint,127.0.0.1:{port},127.0.0.2:{port}"
        settings["name_resolver_init_args"] = row
    elif resolver == "driver":
        address = f"127.0.0.1:{free_port()}"
        settings = {"driver_resolver_name": "node.invalid", "driver_resolver_interface": address}
        settings["name_resolver_supplier"] = "driver"
    with (
        MediaDriver.launch(str(tmp_path / "driver"), **settings) as driver,
        ArchiveServer.launch(
            tmp_path / "archive", driver.directory, control_channel=f"aeron:udp?endpoint=127.0.0.1:{free_port()}"
        ) as server,
        Aeron.connect(driver.directory) as aeron,
        connect(
            server.settings.control_channel, response_channel=f"aeron:udp?endpoint=node.invalid:{port}", aeron=aeron
        ) as client,
    ):
        assert list(client.list_recordings()) == []
