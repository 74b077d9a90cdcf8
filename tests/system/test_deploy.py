"""The deployment files: their metrics are exported, their commands exist, and the programs that read them accept them."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from tests.support.ports import free_port
from tests.support.waiting import STALL_S

from mainstem import Aeron, MediaDriver, aqueduct, cli
from mainstem.metrics import Endpoints, render_families

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
PREFIX = "mainstem_"
pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def exported() -> set[str]:
    """Return the metric names that a server and ``mainstem metrics`` export, for a driver with a stream to several receivers."""
    port = free_port()
    channel = f"control=127.0.0.1:{port + 1}|control-mode=dynamic"
    with MediaDriver.launch(threading_mode="SHARED") as driver, Aeron.connect(driver.directory) as aeron:
        subscription = aeron.add_subscription(f"aeron:udp?endpoint=127.0.0.1:{port}|{channel}", 1001)
        publication = aeron.add_publication(f"aeron:udp?{channel}|fc=min", 1001)
        publication.send(b"tide", timeout=STALL_S)
        assert next(subscription.messages(timeout=STALL_S)) == b"tide"
        command = [sys.executable, "-m", "mainstem", "metrics", "--dir", driver.directory]
        text = subprocess.run(command, capture_output=True, text=True, timeout=STALL_S, check=True).stdout
    text += asyncio.run(page_of_a_server())
    return set(re.findall(rf"^# TYPE ({PREFIX}\w+)", text, re.MULTILINE))


async def page_of_a_server() -> str:
    """Return what a program with an Aqueduct server exports: all metrics that bymux and Jmux servers have, and more."""
    pytest.importorskip("qh3")
    pytest.importorskip("cryptography")

    async def handler(_: aqueduct.Connection) -> None:
        """Do nothing."""

    with tempfile.TemporaryDirectory() as directory:
        files = aqueduct.make_certificates(Path(directory))
        async with aqueduct.aio.serve(handler, certificate=files.certificate, key=files.key) as server:
            endpoints = Endpoints()
            endpoints.add("gauges", server)
            return render_families(endpoints.families())


def parse(words: list[str]) -> None:
    command: Any = typer.main.get_command(cli.build(words)).commands[words[0]]  # type: ignore[attr-defined]
    command.make_context(words[0], words[1:])


def metrics(expression: str) -> set[str]:
    return set(re.findall(rf"\b{PREFIX}\w+", expression))


def test_every_metric_of_the_alert_rules_is_exported(exported: set[str]) -> None:
    groups = yaml.safe_load((DEPLOY / "alerts.yaml").read_text())["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len(rules) >= 8
    for rule in rules:
        assert metrics(rule["expr"])
        assert metrics(rule["expr"]) <= exported, rule["alert"]
        assert rule["annotations"]["summary"]


@pytest.mark.parametrize("name", ["grafana.json", "grafana-endpoints.json"])
def test_every_metric_of_a_dashboard_is_exported(name: str, exported: set[str]) -> None:
    dashboard = json.loads((DEPLOY / name).read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert len(expressions) >= 10
    for expression in expressions:
        assert metrics(expression)
        assert metrics(expression) <= exported, expression
        assert expression.count("(") == expression.count(")")
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_the_manifest_mounts_what_it_has_and_runs_commands_that_there_are() -> None:
    stateful, service = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
    pod = stateful["spec"]["template"]
    volumes = {each["name"] for each in pod["spec"]["volumes"]}
    volumes |= {each["metadata"]["name"] for each in stateful["spec"]["volumeClaimTemplates"]}
    for container in pod["spec"]["containers"]:
        mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
        assert set(mounts) <= volumes
        assert mounts["shm"] == "/dev/shm"
        parse(container["args"])
    labels = stateful["spec"]["selector"]["matchLabels"]
    assert labels.items() <= pod["metadata"]["labels"].items()
    assert service["spec"]["selector"] == labels
    assert stateful["spec"]["serviceName"] == service["metadata"]["name"]


@pytest.mark.parametrize("unit", sorted(DEPLOY.glob("*.service")), ids=lambda unit: unit.name)
def test_a_systemd_unit_runs_an_existing_command(unit: Path, tmp_path: Path) -> None:
    text = unit.read_text()
    (words,) = re.findall(r"^ExecStart=/opt/mainstem/bin/mainstem (.*)$", text, re.MULTILINE)
    parse(words.split())
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not there")
    copy = tmp_path / unit.name
    copy.write_text(
        text.replace("/opt/mainstem/bin/mainstem", "/bin/true").replace("mainstem-driver.service", "basic.target")
    )
    result = subprocess.run(
        ["systemd-analyze", "verify", copy], capture_output=True, text=True, timeout=STALL_S, check=False
    )
    assert unit.name not in result.stderr, result.stderr
    assert result.returncode == 0, result.stderr


def test_the_container_runs_commands_that_there_are() -> None:
    text = (DEPLOY / "Containerfile").read_text()
    (entry,) = re.findall(r"^ENTRYPOINT (.*)$", text, re.MULTILINE)
    (command,) = re.findall(r"^CMD (.*)$", text, re.MULTILINE)
    assert json.loads(entry) == ["mainstem"]
    parse(json.loads(command))


def test_the_build_of_the_container_reads_only_what_it_needs() -> None:
    """Without .dockerignore, environments and demo output would be copied first."""
    kept = [line[1:] for line in (DEPLOY.parent / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    assert {"pyproject.toml", "setup.py", "src"} <= set(kept)
    assert {name for name in kept if not (DEPLOY.parent / name).exists()} == set()
    paths = [path for name in kept for path in [DEPLOY.parent / name, *(DEPLOY.parent / name).rglob("*")]]
    sources = [path for path in paths if path.is_file() and path.suffix not in (".so", ".pyc")]
    assert sum(path.stat().st_size for path in sources) < 10 << 20


def test_the_reference_names_the_metrics_that_are_exported(exported: set[str]) -> None:
    page = (DEPLOY.parent / "docs" / "reference" / "counters.md").read_text()
    assert exported <= set(re.findall(rf"`({PREFIX}\w+)`", page))
