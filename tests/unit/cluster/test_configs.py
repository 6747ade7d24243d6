"""The files that bring-up writes are what the components read."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from podyard.base import config, pki
from podyard.cli.component import ROLES
from podyard.cluster.identities import Authority, Material, entries
from podyard.cluster.roles import containers
from podyard.cluster.spec import ClusterSpec, HostPorts, Placement

SPEC = ClusterSpec("demo", nodes=1)
PLACEMENT = Placement("172.28.0.0/22", 1400, {"demo-apiserver-1": HostPorts(26443, 26444, 26445)})
FILES = {
    "apiserver": ("demo-apiserver-1", "config.yaml"),
    "scheduler": ("demo-scheduler-1", "config.yaml"),
    "controller-manager": ("demo-controller-manager-1", "config.yaml"),
    "kubelet": ("demo-worker-1", "kubelet.yaml"),
    "proxy": ("demo-worker-1", "proxy.yaml"),
}


@pytest.mark.slow
@pytest.mark.parametrize("role", list(ROLES))
def test_each_component_reads_its_file(role: str, tmp_path: Path) -> None:
    pairs = {name: pki.KeyPair(b"", b"") for name in entries(SPEC, PLACEMENT)}
    authorities = {authority: pki.KeyPair(b"", b"") for authority in Authority}
    material = Material(authorities, pairs, pki.SigningKey(b"", b""))
    container, file = FILES[role]
    definition = next(one for one in containers(SPEC, PLACEMENT, material) if one.name == container)
    content = next(one.content for one in definition.files if one.path == f"/etc/podyard/{file}")
    path = tmp_path / file
    path.write_bytes(content)
    settings = config.load(importlib.import_module(ROLES[role]).Config, path)
    assert settings.name == container
