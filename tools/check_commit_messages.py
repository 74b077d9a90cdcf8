"""Checks commit messages: a subject of at most 72 characters, an empty line, and a body that says why.

As a hook (`make hooks` installs it) it reads the message that is being written: ``check_commit_messages.py --file PATH``.
Without arguments it checks the commits since this check came into the repository; merges are left out.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SUBJECT_LIMIT = 72
HERE = Path(__file__).resolve()


def faults(message: str) -> list[str]:
    """What is wrong with one message."""
    lines = [line for line in message.splitlines() if not line.startswith("#")]
    subject = lines[0] if lines else ""
    if subject.startswith(("Merge ", "Revert ", "fixup! ", "squash! ")):
        return []
    problems = []
    if not subject.strip():
        problems.append("no subject")
    if len(subject) > SUBJECT_LIMIT:
        problems.append(f"the subject has {len(subject)} characters, the limit is {SUBJECT_LIMIT}")
    if subject.endswith("."):
        problems.append("the subject ends with a full stop")
    if len(lines) > 1 and lines[1].strip():
        problems.append("the second line is not empty")
    if not any(line.strip() for line in lines[2:]):
        problems.append("no body: say why")
    return problems


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=HERE.parent, capture_output=True, text=True, check=True).stdout


def commits() -> dict[str, str]:
    """The messages to check, by commit."""
    added = git("log", "--diff-filter=A", "--format=%H", "--", HERE.name).split()
    if not added:
        return {}
    hashes = git("log", "--no-merges", "--format=%H", f"{added[-1]}..HEAD").split()
    return {commit[:10]: git("log", "-1", "--format=%B", commit) for commit in hashes}


def main() -> int:
    if sys.argv[1:2] == ["--file"]:
        messages = {"this commit": Path(sys.argv[2]).read_text()}
    else:
        messages = commits()
    wrong = {commit: problems for commit, message in messages.items() if (problems := faults(message))}
    for commit, problems in wrong.items():
        print(f"{commit}: {'; '.join(problems)}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
