"""Lower packages find what they use of higher ones."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from mainstem._internal.entry_points import ENTRY_POINTS, entry_point
from mainstem.store.open_store import ARCHIVE_SCHEME

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_every_entry_point_exists(name: str) -> None:
    assert callable(entry_point(name))


def test_an_archive_location_needs_no_import_of_the_archive_package(tmp_path: Path) -> None:
    program = (
        "from mainstem import errors, open_recordings\n"
        f"try: open_recordings('{ARCHIVE_SCHEME}://localhost:1', {{'aeron_dir': {str(tmp_path)!r}, 'timeout': '0.1s'}})\n"
        "except errors.MainstemError as error: print(type(error).__name__)\n"
        "import sys; assert 'mainstem.archive.remote_archive' in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout, done.stderr
