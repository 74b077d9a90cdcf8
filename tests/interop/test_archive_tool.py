"""`mainstem recordings` and the reference's ArchiveTool on the same directories: each checks what the other changed."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path

import pytest
from tests.interop.test_shared_archive_directory import contents, make, tool
from tests.support import java
from typer.testing import CliRunner

from mainstem.cli.recordings import app
from mainstem.recording.catalog import Catalog, read_catalog, read_entries
from mainstem.recording.index import index_file

pytestmark = [pytest.mark.interop, pytest.mark.long]
SEGMENT = 128 << 10
CLASSES = {"crc-32": "org.agrona.checksum.Crc32", "crc-32c": "org.agrona.checksum.Crc32c"}


def run(*words: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, [str(each) for each in words])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.output


def asked(directory: Path, *words: str) -> str:
    """Return the output of an ArchiveTool command that asks for confirmation, which this gives."""
    done = java.run(java.ARCHIVE_TOOL, directory, *words, answers="y\n")
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


@pytest.fixture
def made(tmp_path: Path) -> Path:
    java.require_java()
    directory = tmp_path / "archive"
    make(directory, (500, 501))
    return directory


def copied(directory: Path, name: str) -> Path:
    return Path(shutil.copytree(directory, directory.with_name(name)))


def segments(directory: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in sorted(directory.glob("*.rec"))}


@pytest.mark.parametrize("algorithm", list(CLASSES))
@pytest.mark.parametrize("everywhere", [True, False])
def test_both_store_the_same_checksums(made: Path, algorithm: str, everywhere: bool) -> None:
    theirs, before = copied(made, "theirs"), contents(made)
    tool(theirs, "checksum", CLASSES[algorithm], *(["-a"] if everywhere else []))
    assert run("checksum", made, "--algorithm", algorithm, *(["--all-segments"] if everywhere else []))[0] == 0
    assert segments(made) == segments(theirs)
    entries = [list(read_entries(directory)) for directory in (made, theirs)]
    assert entries[0] == entries[1]
    catalogs = [(directory / "archive.catalog").read_bytes() for directory in (made, theirs)]
    assert catalogs[0] == catalogs[1][: len(catalogs[0])]
    for directory in (made, theirs):
        assert contents(directory) == before, "both are verified, by the index too"
        assert run("verify", directory, "--check-frames")[0] == 0
        words = ["-a"] if everywhere else []
        assert tool(directory, "verify", *words, "-checksum", CLASSES[algorithm]).count("OK") == 2


def damage(directory: Path, kind: str) -> None:
    path = directory / f"0-{SEGMENT}.rec"
    data = bytearray(path.read_bytes())
    catalog = directory / "archive.catalog"
    if kind == "payload":
        data[40] ^= 1
    elif kind == "zeros":
        data[:4096] = bytes(4096)
    elif kind == "negative length":
        struct.pack_into("<i", data, 0, -1)
    elif kind == "term id":
        data[20] ^= 1
    elif kind == "term offset":
        data[8] ^= 32
    elif kind == "stream id":
        data[16] ^= 1
    elif kind == "short file":
        del data[SEGMENT // 2 :]
    path.write_bytes(data)
    if kind == "missing file":
        path.unlink()
    elif kind == "entry":
        (entry, _) = read_entries(directory)
        at = entry.offset + 32 + 80 + 4
        text = bytearray(catalog.read_bytes())
        text[at] ^= 2
        catalog.write_bytes(text)


FOUND_BY_BOTH = ["payload", "term id", "term offset", "stream id", "entry"]
# ArchiveTool takes these for the end of the recorded data although other segments follow, or it fails.
FOUND_BY_MAINSTEM = ["zeros", "negative length", "short file", "missing file"]


@pytest.mark.parametrize("kind", FOUND_BY_BOTH + FOUND_BY_MAINSTEM)
@pytest.mark.parametrize("has_index", [True, False])
@pytest.mark.parametrize("writer", ["mainstem", "java"])
def test_both_find_the_same_damage(made: Path, kind: str, writer: str, has_index: bool) -> None:
    if writer == "java":
        tool(made, "checksum", CLASSES["crc-32c"], "-a")
    else:
        run("checksum", made, "--all-segments")
    if not has_index:
        for number in (0, 1):
            index_file(made, number).unlink()
    damage(made, kind)
    code, text = run("verify", made, "--json")
    found = {(row["recording_id"], row["kind"]) for row in json.loads(text)}
    assert code == 1
    assert found
    assert {number for number, _ in found} <= {0, -1}, "the other recording is sound"
    refused, said = run("checksum", made, "--all-segments")
    assert (refused, "would hide that" in said) == (1, True)
    told = java.run(java.ARCHIVE_TOOL, made, "verify", "-a", "-checksum", CLASSES["crc-32c"])
    if kind not in FOUND_BY_BOTH:
        assert told.stdout.count("OK") == 2 or "IllegalArgumentException" in told.stderr
        return
    assert told.stdout.count("OK") == 1
    # ArchiveTool marked the recording invalid; either tool can undo that.
    assert [each.recording_id for each in read_catalog(made)] == [1]
    if kind != "entry":
        assert run("mark-valid", made, 0)[0] == 0
        assert tool(made, "count-entries").split()[-1] == "2"
        assert run("mark-invalid", made, 1)[0] == 0
        assert tool(made, "count-entries").split()[-1] == "1"
        tool(made, "mark-valid", "1")
        assert [each.recording_id for each in read_catalog(made)] == [0, 1]


def test_both_compact_alike(made: Path) -> None:
    make(made, (502,))
    tool(made, "mark-invalid", "1")
    theirs = copied(made, "theirs")
    asked(theirs, "compact")
    assert run("compact", made)[0] == 0
    assert segments(made) == segments(theirs)
    assert [each.recording_id for each in read_catalog(made)] == [0, 2]
    ours, other = ([each.descriptor for each in read_entries(directory)] for directory in (made, theirs))
    assert ours == other
    for directory in (made, theirs):
        assert tool(directory, "verify", "-a").count("OK") == 2
    before = contents(made)
    make(made, (503,))
    assert [each.recording_id for each in read_catalog(made)] == [0, 2, 3]
    assert {key: value for key, value in contents(made).items() if key != 3} == before


def test_both_find_the_same_orphans(made: Path) -> None:
    catalog = Catalog(made)
    first, _ = catalog.recordings()
    catalog.set_start(first, SEGMENT)
    catalog.stop(first, 2 * SEGMENT + 65536, first.stop_timestamp)
    catalog.close()
    for number in (0, 1):
        index_file(made, number).unlink()
    theirs = copied(made, "theirs")
    asked(theirs, "delete-orphaned-segments")
    assert run("delete-orphans", made)[0] == 0
    assert sorted(segments(made)) == sorted(segments(theirs))
    assert f"0-{SEGMENT}.rec" in segments(made)
    assert "0-0.rec" not in segments(made)


def test_both_grow_the_catalog(made: Path) -> None:
    assert run("capacity", made, "--grow-to", "4m")[0] == 0
    assert tool(made, "count-entries").split()[-1] == "2"
    assert run("capacity", made)[1].startswith("4,194,304 bytes")
    assert tool(made, "verify", "-a").count("OK") == 2
