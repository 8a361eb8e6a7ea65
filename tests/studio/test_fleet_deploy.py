"""What deploy/ tells Docker and Kubernetes fits what the studio is: names, ports, routes, settings, versions."""

from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError
from starlette.testclient import TestClient
from typer.testing import CliRunner

from madrigal.cli import app as command
from madrigal.errors import UserError
from madrigal.studio.app import create_app
from madrigal.studio.fleet import FleetSettings, build, serve_fleet
from madrigal.studio.settings import StudioSettings

ROOT = Path(__file__).parents[2]
CONSTRAINTS = (ROOT / "constraints.txt").read_text()


@pytest.fixture(scope="module")
def spec() -> dict[str, Any]:
    documents = list(yaml.safe_load_all((ROOT / "deploy/kuberay.yaml").read_text()))
    return next(each for each in documents if each["kind"] == "RayService")["spec"]


@pytest.fixture(scope="module")
def config(spec: dict[str, Any]) -> dict[str, Any]:
    return yaml.safe_load(spec["serveConfigV2"])


@pytest.fixture(scope="module")
def dockerfile() -> str:
    return (ROOT / "deploy/Dockerfile").read_text().replace("\\\n", "")


def containers(spec: dict[str, Any]) -> list[dict[str, Any]]:
    cluster = spec["rayClusterConfig"]
    pods = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    return [container for pod in pods for container in pod["template"]["spec"]["containers"]]


def test_the_manifest_names_what_builds_the_fleet_and_settings_that_exist(config: dict[str, Any]) -> None:
    (application,) = config["applications"]
    room, _, name = application["import_path"].partition(":")
    assert getattr(import_module(room), name) is build
    settings = FleetSettings(**application["args"])
    assert settings.api_key_file is not None
    assert settings.api_key is None, "a manifest is no place for a key"
    assert settings.replicas < (settings.max_replicas or 0)
    patience = settings.limits.timeout_seconds + settings.limits.stall_seconds
    assert config["http_options"]["request_timeout_s"] == patience


def test_what_ray_is_told_is_what_it_knows(config: dict[str, Any]) -> None:
    schema = pytest.importorskip("ray.serve.schema", reason="Ray Serve is not installed: pip install 'madrigal[ray]'")
    told = schema.ServeDeploySchema.model_validate(config)
    assert told.applications[0].route_prefix == "/"
    deployment = build(FleetSettings(**config["applications"][0]["args"]))._bound_deployment
    scaling = deployment._deployment_config.autoscaling_config
    assert (scaling.min_replicas, scaling.max_replicas, scaling.target_ongoing_requests) == (2, 8, 2)
    (given,) = deployment.init_args
    assert json.loads(json.dumps(given)) == given, "only plain data travels"
    FleetSettings(**given)


def test_ports_and_mounts_of_the_manifest_agree(spec: dict[str, Any], config: dict[str, Any]) -> None:
    arguments = config["applications"][0]["args"]
    for container in containers(spec):
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert ports["serve"] == config["http_options"]["port"]
        mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
        assert arguments["folder"] in mounts
        assert str(Path(arguments["api_key_file"]).parent) in mounts
    worker = containers(spec)[1]
    assert worker["readinessProbe"]["httpGet"] == {"path": "/-/healthz", "port": "serve"}
    group = spec["rayClusterConfig"]["workerGroupSpecs"][0]
    cores = float(worker["resources"]["requests"]["cpu"])
    assert group["minReplicas"] * cores >= arguments["replicas"] * arguments["cpus"]
    assert group["maxReplicas"] * cores >= arguments["max_replicas"] * arguments["cpus"]
    stay = group["template"]["spec"]["terminationGracePeriodSeconds"]
    assert stay > arguments["limits"]["grace_seconds"]


def test_versions_are_those_of_the_tests(spec: dict[str, Any], dockerfile: str) -> None:
    (ray,) = re.findall(r"^ray==(.+)$", CONSTRAINTS, re.MULTILINE)
    assert spec["rayClusterConfig"]["rayVersion"] == ray
    installs = re.findall(r"^RUN pip install .*$", dockerfile, re.MULTILINE)
    assert len(installs) == 2
    assert all("--constraint constraints.txt" in line for line in installs)


def test_the_image_serves_a_route_that_exists_as_nobody_special(dockerfile: str) -> None:
    (health,) = re.findall(r"http://127\.0\.0\.1:(\d+)(/\w+)", dockerfile)
    words = json.loads(re.findall(r"^CMD (.+)$", dockerfile, re.MULTILINE)[-1])
    assert words[words.index("--port") + 1] == health[0]
    assert f"EXPOSE {health[0]}" in dockerfile
    with TestClient(create_app(StudioSettings(warm=False, shipped=False, api_key="of-no-matter"))) as client:
        assert client.get(health[1]).status_code == 200
    assert re.findall(r"^USER (.+)$", dockerfile, re.MULTILINE) == ["1000"]
    shown = CliRunner().invoke(command, ["studio", "--help"], env={"COLUMNS": "200"}).output
    assert [word for word in words if word.startswith("--") and word not in shown] == []


def test_only_requests_come_from_outside(spec: dict[str, Any], config: dict[str, Any]) -> None:
    documents = list(yaml.safe_load_all((ROOT / "deploy/kuberay.yaml").read_text()))
    policy = next(each for each in documents if each["kind"] == "NetworkPolicy")["spec"]
    cluster = spec["rayClusterConfig"]
    for pod in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        assert pod["template"]["metadata"]["labels"] == policy["podSelector"]["matchLabels"]
    for rule in policy["ingress"]:
        assert "from" in rule or rule["ports"] == [{"port": config["http_options"]["port"]}]


def test_a_fleet_without_a_key_has_to_be_wanted() -> None:
    with pytest.raises(ValidationError, match="api_key_file"):
        FleetSettings()
    assert FleetSettings(no_key=True).api_key is None


def test_a_key_never_travels_with_the_arguments_of_copies() -> None:
    with pytest.raises(ValidationError, match="api_key_file"):
        FleetSettings(api_key="a-key-for-tests")
    with pytest.raises(UserError, match="from a file"):
        serve_fleet(StudioSettings(api_key="a-key-for-tests"), "local", host="127.0.0.1", port=0)


def test_ray_is_told_where_the_key_is_and_not_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[FleetSettings] = []

    def caught(settings: FleetSettings, *_: Any, **__: Any) -> Any:
        told.append(settings)
        raise UserError("as far as that")

    monkeypatch.setattr("madrigal.studio.fleet.running", caught)
    settings = StudioSettings(api_key="a-key-for-tests")
    with pytest.raises(UserError, match="as far as that"):
        serve_fleet(settings, "local", host="127.0.0.1", port=0, api_key_file=tmp_path / "key")
    assert told[0].api_key_file == tmp_path / "key"
    assert "a-key-for-tests" not in told[0].model_dump_json()


def test_a_fleet_starts_no_trainings() -> None:
    with pytest.raises(ValidationError, match="starts no trainings"):
        FleetSettings(control=True, no_key=True)  # as a manifest would say it
    with pytest.raises(UserError, match="leave --control away"):
        serve_fleet(StudioSettings(control=True), "local", host="127.0.0.1", port=0)


def test_a_cluster_that_is_not_there_gives_one_sentence(tmp_path: Path) -> None:
    pytest.importorskip("ray.serve", reason="Ray Serve is not installed: pip install 'madrigal[ray]'")
    with pytest.raises(UserError, match=r"There is no Ray cluster at 127\.0\.0\.1:9"):
        serve_fleet(StudioSettings(folder=tmp_path), "127.0.0.1:9", host="127.0.0.1", port=0)
