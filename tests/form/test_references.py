"""References resolve to an existing page and numbered section, file or heading."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.form

ROOT = Path(__file__).resolve().parents[2]
PROTOCOLS = ROOT / "docs" / "protocols"
CODE_DIRECTORIES = ("src", "tests", "benchmarks", "examples", "fuzz", "tools")
CODE_SUFFIXES = {".py", ".pyi", ".pxd", ".pyx"}
ROOT_PAGES = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")

# ``docs/protocols/aeron.md, 14.4``; several sections are joined by "and", "to" or a comma.
_PART = r"\d+(?:\.\d+)*(?!\w)"
CITATION = re.compile(rf"docs/protocols/([\w-]+\.md),\s+({_PART}(?:(?:,| and| to)\s+{_PART})*)")
# The path of a page, wherever it is written; a link's target is checked as a link.
PAGE_PATH = re.compile(r"(?<![\w/.-])(docs/[\w./-]+\.(?:md|svg))")
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
NUMBER = re.compile(rf"^({_PART})\.? ")
CODE_BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def code_files() -> list[Path]:
    directories = (ROOT / directory for directory in CODE_DIRECTORIES)
    files = (
        path
        for directory in directories
        if directory.is_dir()
        for path in directory.rglob("*")
        if path.suffix in CODE_SUFFIXES
    )
    return sorted(path for path in files if path != Path(__file__).resolve())


def pages() -> list[Path]:
    directories = [directory for name in ("docs", *CODE_DIRECTORIES) if (directory := ROOT / name).is_dir()]
    found = [page for directory in directories for page in directory.rglob("*.md")]
    return sorted([*found, *(ROOT / name for name in ROOT_PAGES if (ROOT / name).exists())])


def where(path: Path, text: str, at: int) -> str:
    return f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, at) + 1}"


@cache
def headings(page: Path) -> tuple[str, ...]:
    return tuple(match[1] for match in HEADING.finditer(CODE_BLOCK.sub("", page.read_text())))


@cache
def sections(page: Path) -> frozenset[str]:
    """Return the numbers of a page's sections, such as ``## 14. Sender side`` and ``### 14.4 Accepting control frames``."""
    return frozenset(match[1] for heading in headings(page) if (match := NUMBER.match(heading)))


@cache
def anchors(page: Path) -> frozenset[str]:
    """Return what a link can name after ``#``: headings in lower case, without punctuation, with dashes for spaces."""
    plain = (
        re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "") for heading in headings(page)
    )
    return frozenset(re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in plain)


def broken_citations(path: Path) -> list[str]:
    """Return a file's broken citations. A citation may continue on the next line of a docstring or comment."""
    text = path.read_text()
    joined = re.sub(r"\n[ \t]*#?[ \t]*", lambda match: match[0].replace("#", " "), text)
    broken = []
    for match in CITATION.finditer(joined):
        page = PROTOCOLS / match[1]
        known = sections(page) if page.exists() else frozenset[str]()
        wrong = [number for number in re.findall(_PART, match[2]) if number not in known]
        if wrong:
            broken.append(f"{where(path, joined, match.start())}: docs/protocols/{match[1]}, {', '.join(wrong)}")
    return broken


def broken_paths(path: Path) -> list[str]:
    """Return the paths of pages in a file that do not exist."""
    text = path.read_text()
    if path.suffix == ".md":
        text = LINK.sub(lambda match: " " * len(match[0]), text)
    found = PAGE_PATH.finditer(text)
    return [f"{where(path, text, match.start())}: {match[1]}" for match in found if not (ROOT / match[1]).exists()]


def broken_links(page: Path) -> list[str]:
    """Return a page's relative links whose file or heading does not exist."""
    text = CODE_BLOCK.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), page.read_text())
    broken = []
    for match in LINK.finditer(text):
        target, _, anchor = match[1].partition("#")
        if re.match(r"[a-z][a-z0-9+.-]*:", target):
            continue
        file = (page.parent / target).resolve() if target else page
        missing = not file.exists()
        if missing or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
            broken.append(f"{where(page, text, match.start())}: {match[1]}")
    return broken


def test_every_citation_of_a_protocol_page_names_a_section_of_it() -> None:
    broken = [each for path in [*code_files(), *pages()] for each in broken_citations(path)]
    assert broken == [], "\n".join(broken)


def test_every_page_that_is_named_by_its_path_is_there() -> None:
    broken = [each for path in [*code_files(), *pages()] for each in broken_paths(path)]
    assert broken == [], "\n".join(broken)


def test_every_relative_link_leads_to_a_file_and_a_heading() -> None:
    broken = [each for page in pages() for each in broken_links(page)]
    assert broken == [], "\n".join(broken)


def test_sections_are_numbered_in_order() -> None:
    """A missing or duplicate number would make later citations point to the wrong section."""
    wrong = []
    for page in sorted(PROTOCOLS.glob("*.md")):
        numbers = [match[1] for heading in headings(page) if (match := NUMBER.match(heading))]
        numbers_read = [tuple(map(int, number.split("."))) for number in numbers]
        expected = numbers_read[0][0]
        for parts in numbers_read:
            top = parts[0]
            if len(parts) == 1 and top != expected:
                wrong.append(f"{page.name}: {top} where {expected} is due")
            expected = top + 1
        if numbers_read != sorted(set(numbers_read)):
            wrong.append(f"{page.name}: {', '.join(numbers)}")
    assert wrong == [], "\n".join(wrong)


def test_every_file_that_the_architecture_names_is_there() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    named = re.findall(r"`((?:[\w-]+/)+[\w-]+\.(?:py|pxd|md))`", text)
    assert [
        name
        for name in named
        if not any((base / name).exists() for base in (ROOT, ROOT / "src/mainstem", ROOT / "src/mainstem/_core"))
    ] == []


def test_every_logger_is_documented() -> None:
    sources = (path.read_text() for path in (ROOT / "src" / "mainstem").rglob("*.py"))
    found = [name for source in sources for name in re.findall(r"getLogger\(([^)]+)\)", source)]
    loggers = {name.strip('"') for name in found} - {"quic", "py4j", "mainstem"}
    documented = set(re.findall(r"`(mainstem(?:\.\w+)*)`", (ROOT / "docs" / "tools.md").read_text()))
    assert loggers <= documented
