"""The compose file says what `up` would make, and the containers' files land each in its own volume."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from podyard.base import pki
from podyard.cli import compose as cli_compose
from podyard.cli import wish
from podyard.cli.commands import podyard
from podyard.cluster.compose import FILES, files_digest, placement_of, render
from podyard.cluster.composefiles import write_files
from podyard.cluster.errors import SpecError
from podyard.cluster.roles import containers
from podyard.cluster.settings import Settings
from podyard.cluster.spec import LABEL_FILES, LABEL_ROLE, ClusterSpec
from podyard.cluster.state import StateDirectory

REPOSITORY = Path(__file__).resolve().parents[3]
SPEC = ClusterSpec(name="lab", nodes=3)


def test_the_file_of_the_repository_is_what_is_rendered():
    spec = ClusterSpec()
    text = (REPOSITORY / "compose" / "compose.yaml").read_text(encoding="utf-8")
    assert text == render(spec, placement_of(spec)), "podyard compose > compose/compose.yaml"


@pytest.fixture
def made(tmp_path, monkeypatch):
    """What `up` makes, with real keys, and where the one-shot service wrote the same files."""
    monkeypatch.setenv("XDG_DATA_HOME", "")
    write_files(SPEC, placement_of(SPEC), now_s=1_800_000_000.0, root=tmp_path)
    material = StateDirectory(SPEC.name).material(SPEC, placement_of(SPEC), now_s=1_800_000_000.0)
    return containers(SPEC, placement_of(SPEC), material), tmp_path


def test_each_service_is_one_of_ups_containers(made):
    services = yaml.safe_load(render(SPEC, placement_of(SPEC)))["services"]
    assert set(services) == {"files", "registry", *(c.name.removeprefix("lab-") for c in made[0])}
    for container in made[0]:
        service = services[container.name.removeprefix("lab-")]
        assert service["container_name"] == service["hostname"] == container.name
        assert service["image"] == SPEC.image
        assert service["command"] == list(container.command)
        assert service["labels"] == {**container.labels, LABEL_FILES: files_digest(container)}
        assert service["networks"]["cluster"]["ipv4_address"] == container.address
        assert service.get("environment", {}) == dict(container.environment)
        assert service.get("cap_add", []) == list(container.capabilities)
        assert service.get("cap_drop", []) == list(container.drop_capabilities)
        assert service.get("security_opt", []) == list(container.security_options)
        assert service.get("device_cgroup_rules", []) == list(container.device_rules)
        assert service.get("sysctls", {}) == dict(container.sysctls)
        mounted = {f"{volume.name}:{volume.path}" for volume in container.volumes}
        own = f"lab-files-{container.name.removeprefix('lab-')}:/etc/podyard:ro"
        assert set(service["volumes"]) == {*mounted, own}


def test_no_container_but_the_one_shot_has_anothers_files():
    services = yaml.safe_load(render(SPEC, placement_of(SPEC)))["services"]
    files = [volume for volume in services.pop(FILES)["volumes"] if "-files-" in volume]
    assert len(files) == len(services)
    for name, service in services.items():
        assert sum("-files-" in volume for volume in service["volumes"]) == 1, name
        assert not any("-state:" in volume for volume in service["volumes"]), name
        assert service["labels"][LABEL_ROLE] != FILES


def test_the_files_are_those_that_up_copies_in(made):
    for container in made[0]:
        folder = made[1] / "files" / container.name
        for file in container.files:
            written = folder / Path(file.path).relative_to("/etc/podyard")
            assert written.read_bytes() == file.content
            assert written.stat().st_mode & 0o777 == file.mode
        count = sum(path.is_file() for path in folder.rglob("*"))
        assert count == len(container.files)
    registry = made[1] / "files" / "podyard-registry"
    assert [path.name for path in registry.iterdir()] == ["init.json"]


def test_keys_that_are_there_are_kept(made):
    before = {path: path.read_bytes() for path in made[1].rglob("*.key")}
    assert before
    write_files(SPEC, placement_of(SPEC), now_s=1_800_000_100.0, root=made[1])
    assert {path: path.read_bytes() for path in made[1].rglob("*.key")} == before


def test_what_is_no_longer_said_is_taken_away(made):
    """A certificate that stayed would be trusted for ever."""
    more = replace(SPEC, extra_cas=("one", "two"))
    for spec, count in ((more, 2), (replace(SPEC, extra_cas=("two",)), 1), (SPEC, 0)):
        write_files(spec, placement_of(spec), now_s=1_800_000_000.0, root=made[1])
        for container in made[0]:
            folder = made[1] / "files" / container.name
            assert len(list(folder.rglob("*.crt"))) - len(list(folder.rglob("pki/*.crt"))) == count
            assert (folder / "extra-cas").exists() == bool(count)
            found = {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}
            assert {Path(file.path).relative_to("/etc/podyard") for file in container.files} <= found


@pytest.mark.parametrize(
    ("change", "anew"),
    [
        ({"extra_cas": ("PEM",)}, {"etcd", "apiserver", "scheduler", "controller-manager", "worker"}),
        ({"flags": {"scheduler": {"log_level": "debug"}}}, {"scheduler"}),
        ({"node_grace_s": 20.0}, {"controller-manager"}),
        ({}, set()),
    ],
)
def test_a_service_whose_files_change_is_another_service_to_compose(change, anew):
    before, after = (
        yaml.safe_load(render(spec, placement_of(spec)))["services"]
        for spec in (SPEC, replace(SPEC, **change))
    )
    changed = {name for name in before if before[name] != after[name]} - {FILES}
    assert {name.rstrip("-0123456789") for name in changed} == anew


def test_what_one_argument_cannot_hold_is_refused():
    def spec(size: int) -> ClusterSpec:
        return replace(SPEC, extra_cas=("x" * size,))

    def words(size: int) -> list[str]:
        return yaml.safe_load(render(spec(size), placement_of(SPEC)))["services"][FILES]["command"]

    fits = 131072 - 1 - (len(words(1)[-1]) - 1)
    assert len(words(fits)[-1]) == 131071
    with pytest.raises(SpecError, match="131072 bytes"):
        words(fits + 1)


def test_what_old_compose_refuses_is_not_in_it():
    content = yaml.safe_load(render(SPEC, placement_of(SPEC)))
    assert set(content) == {"services", "networks", "volumes"}
    for service in content["services"].values():
        assert not {"cgroup", "cgroupns_mode", "develop"} & set(service)


def test_the_one_shot_is_told_what_the_file_of_the_cluster_says(tmp_path, monkeypatch):
    file = tmp_path / "lab.yaml"
    (tmp_path / "company-ca.crt").write_bytes(pki.new_authority("company", now_s=1_800_000_000.0).certificate)
    file.write_text(wish.EXAMPLE)
    shown = CliRunner().invoke(podyard, ["compose", "--config", str(file)])
    assert shown.exit_code == 0, shown.output
    services = yaml.safe_load(shown.output)["services"]
    assert services["worker-1"]["ports"] == ["127.0.0.1:8080:30080"]
    assert {"worker-3", "scheduler-2"} <= set(services)
    words = [word.replace("$$", "$") for word in services[FILES]["command"]]
    monkeypatch.setattr(cli_compose, "write_files", lambda spec, placement, **_: seen.append(spec) or [])
    seen: list[ClusterSpec] = []
    assert CliRunner().invoke(podyard, words[1:]).exit_code == 0
    settings = Settings.of(seen[0])
    read = wish.read_file(str(file))
    assert (seen[0].name, seen[0].nodes, settings) == ("lab", 3, read.settings)
    assert settings.extra_cas
