"""Write a bill of materials of what users install with Mainstem, and report known advisories.

    python tools/audit.py             writes dist/mainstem.cdx.json, prints advisories: `make audit`, a part of `make check`
    python tools/audit.py --strict    exits with 1 if there is an advisory

The materials are the packages of this environment that Mainstem requires, with every extra, directly or indirectly. Packages
needed only for development are excluded. The oldest version that each range in pyproject.toml admits is checked for advisories
too. The bill is in CycloneDX format, by cyclonedx-bom; the advisories are PyPI's, by pip-audit. Both tools are installed into a
separate environment below build/audit. If advisories cannot be fetched, the run says so and continues. Advisories change
independently of Mainstem, so they fail a run only with --strict.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
HOME = ROOT / "build" / "audit"
BILL = ROOT / "dist" / "mainstem.cdx.json"
TOOLS = ("pip-audit>=2.9,<3", "cyclonedx-bom>=7,<8")


def say(text: str) -> None:
    print(f"audit: {text}", flush=True)


def materials() -> dict[str, str]:
    """Return the installed version of each package that Mainstem requires, by canonical name."""
    versions: dict[str, str] = {}
    own = metadata.distribution("mainstem")
    waiting = [("mainstem", frozenset(own.metadata.get_all("Provides-Extra") or ()))]
    seen = set(waiting)
    while waiting:
        name, extras = waiting.pop()
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        versions[canonicalize_name(name)] = distribution.version
        for text in distribution.requires or ():
            requirement = Requirement(text)
            if any(
                requirement.marker is None or requirement.marker.evaluate({"extra": each}) for each in ("", *extras)
            ):
                item = (requirement.name, frozenset(requirement.extras))
                if item not in seen:
                    seen.add(item)
                    waiting.append(item)
    return versions


def oldest_versions() -> dict[str, str]:
    """Return the oldest version of each package that Mainstem's own requirements admit."""
    versions: dict[str, str] = {}
    for text in metadata.distribution("mainstem").requires or ():
        requirement = Requirement(text)
        for specifier in requirement.specifier:
            if specifier.operator == ">=":
                versions[canonicalize_name(requirement.name)] = specifier.version
    return versions


def tools() -> Path:
    """Return the directory of the tools. Install them if they are missing."""
    programs = HOME / "environment" / "bin"
    if not (programs / "pip-audit").exists() or not (programs / "cyclonedx-py").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", programs.parent], check=True)
        pip = [programs / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *TOOLS]
        subprocess.run(pip, check=True)
    return programs


def write_bill(programs: Path, versions: dict[str, str]) -> None:
    """Write the bill of materials."""
    whole = HOME / "environment.cdx.json"
    options = ["--pyproject", ROOT / "pyproject.toml", "--output-format", "JSON", "--output-file", whole]
    subprocess.run(
        [programs / "cyclonedx-py", "environment", sys.executable, *options], check=True, stderr=subprocess.DEVNULL
    )
    bill = json.loads(whole.read_text())
    bill["components"] = [each for each in bill["components"] if canonicalize_name(each["name"]) in versions]
    kept = {each["bom-ref"] for each in bill["components"]} | {bill["metadata"]["component"]["bom-ref"]}
    bill["dependencies"] = [
        each | {"dependsOn": [ref for ref in each["dependsOn"] if ref in kept]} if "dependsOn" in each else each
        for each in bill["dependencies"]
        if each["ref"] in kept
    ]
    BILL.parent.mkdir(exist_ok=True)
    BILL.write_text(json.dumps(bill, indent=1))
    say(f"{BILL.relative_to(ROOT)}: {len(bill['components'])} packages")


def advisories(programs: Path, versions: dict[str, str], what: str) -> int:
    """Print the advisories against packages. Return their number."""
    requirements, report = HOME / "requirements.txt", HOME / "advisories.json"
    requirements.write_text(
        "".join(f"{name}=={version}\n" for name, version in sorted(versions.items()) if name != "mainstem")
    )
    report.unlink(missing_ok=True)
    command = [
        programs / "pip-audit",
        "--requirement",
        requirements,
        "--no-deps",
        "--disable-pip",
        "--progress-spinner",
        "off",
    ]
    done = subprocess.run([*command, "--format", "json", "--output", report], capture_output=True, text=True)
    if not report.exists():
        say(f"advisories against {what} cannot be had here: {(done.stderr.strip() or 'no reason').splitlines()[-1]}")
        return 0
    packages = json.loads(report.read_text())["dependencies"]
    unknown = [each["name"] for each in packages if "skip_reason" in each]
    count = 0
    for each in packages:
        for advisory in each.get("vulns", ()):
            count += 1
            fixed = ", ".join(advisory["fix_versions"]) or "no version"
            say(f"{what}: {each['name']} {each['version']}: {advisory['id']}, fixed in {fixed}")
    if len(unknown) == len(packages):
        say(f"advisories against {what} cannot be had here: PyPI cannot be reached")
    else:
        known = len(packages) - len(unknown)
        say(f"{what}: {count} advisories against {known} packages; nothing is known of {len(unknown)} others")
    return count


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strict", action="store_true", help="end with 1 where there is an advisory")
    chosen = parser.parse_args()
    HOME.mkdir(parents=True, exist_ok=True)
    try:
        programs = tools()
    except subprocess.CalledProcessError:
        say(f"{' and '.join(TOOLS)} cannot be installed here: no bill of materials, no advisories")
        return int(chosen.strict)
    versions = materials()
    write_bill(programs, versions)
    count = advisories(programs, versions, "what is installed")
    count += advisories(programs, oldest_versions(), "the oldest versions admitted")
    return int(count > 0 and chosen.strict)


if __name__ == "__main__":
    sys.exit(main())
