"""What goes into which container: keys, configuration, rights."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import PurePosixPath

import pytest
import yaml

from podyard.base import pki
from podyard.cluster.identities import Authority, Material, entries
from podyard.cluster.roles import Container, containers, registry
from podyard.cluster.spec import LABEL_CLUSTER, ClusterSpec, HostPorts, Placement, Port, Role

SPEC = ClusterSpec("demo", nodes=2)
PLACEMENT = Placement("172.28.0.0/22", 1400, {"demo-apiserver-1": HostPorts(26443, 26444, 26445)})
NOW_S = 1_800_000_000.0


@pytest.fixture(scope="module")
def material() -> Material:
    authorities = {authority: pki.new_authority(authority.value, now_s=NOW_S) for authority in Authority}
    pairs = {
        name: pki.issue(authorities[entry.authority], entry.identity, now_s=NOW_S)
        for name, entry in entries(SPEC, PLACEMENT).items()
    }
    return Material(authorities, pairs, pki.new_signing_key())


@pytest.fixture(scope="module")
def cluster(material: Material) -> dict[str, Container]:
    return {container.name: container for container in containers(SPEC, PLACEMENT, material)}


def file(container: Container, path: str) -> bytes:
    return next(file.content for file in container.files if file.path == f"/etc/podyard/{path}")


def test_names_and_order(cluster: dict[str, Container]) -> None:
    assert list(cluster) == [
        "demo-etcd-1",
        "demo-etcd-2",
        "demo-etcd-3",
        "demo-apiserver-1",
        "demo-worker-1",
        "demo-worker-2",
        "demo-controller-manager-1",
        "demo-scheduler-1",
    ]
    assert all(container.labels[LABEL_CLUSTER] == "demo" for container in cluster.values())


def test_no_private_key_is_in_two_containers_and_none_of_an_authority_in_any(
    cluster: dict[str, Container], material: Material
) -> None:
    keys = Counter(
        file.content
        for container in cluster.values()
        for file in container.files
        if b"PRIVATE" in file.content
    )
    assert keys
    assert set(keys.values()) == {1}
    assert not {pair.key for pair in material.authorities.values()} & set(keys)
    assert material.pairs["admin"].key not in keys


def test_private_files_are_readable_by_root_only(cluster: dict[str, Container]) -> None:
    for container in cluster.values():
        for entry in container.files:
            assert entry.mode == (0o600 if b"PRIVATE" in entry.content else 0o644), entry.path


def test_only_the_apiserver_has_a_certificate_that_etcd_takes_from_clients(
    cluster: dict[str, Container], material: Material
) -> None:
    from cryptography import x509

    etcd_authority = x509.load_pem_x509_certificate(material.authorities[Authority.ETCD].certificate)
    holders = set()
    for container in cluster.values():
        for entry in container.files:
            if entry.path.endswith(".crt"):
                certificate = x509.load_pem_x509_certificate(entry.content)
                if certificate.issuer == etcd_authority.subject and certificate != etcd_authority:
                    holders.add(container.role)
    assert holders == {Role.ETCD, Role.APISERVER}


def test_no_volume_is_shared(cluster: dict[str, Container]) -> None:
    names = [volume.name for container in cluster.values() for volume in container.volumes]
    assert len(names) == len(set(names))
    assert "/var/lib/containerd" in {volume.path for volume in cluster["demo-worker-1"].volumes}


def test_no_file_lands_on_a_tmpfs_or_volume(cluster: dict[str, Container]) -> None:
    for container in cluster.values():
        mounts = [path for path, _ in container.tmpfs] + [volume.path for volume in container.volumes]
        for entry in container.files:
            assert not any(PurePosixPath(entry.path).is_relative_to(mount) for mount in mounts)


def test_etcd_asks_for_certificates_on_both_ports(cluster: dict[str, Container]) -> None:
    config = yaml.safe_load(file(cluster["demo-etcd-2"], "etcd.yaml"))
    assert config["name"] == "demo-etcd-2"
    assert config["initial-cluster"].split(",") == [
        f"demo-etcd-{index}=https://demo-etcd-{index}:2380" for index in (1, 2, 3)
    ]
    for side in ("client-transport-security", "peer-transport-security"):
        assert config[side]["client-cert-auth"] is True
        assert config[side]["trusted-ca-file"] == "/etc/podyard/pki/ca.crt"


def test_every_configured_path_is_in_the_container(cluster: dict[str, Container]) -> None:
    def paths(value: object) -> list[str]:
        if isinstance(value, dict):
            return [path for inner in value.values() for path in paths(inner)]
        if isinstance(value, list):
            return [path for inner in value for path in paths(inner)]
        return [value] if isinstance(value, str) and value.startswith("/etc/podyard/") else []

    for container in cluster.values():
        present = {entry.path for entry in container.files}
        for entry in container.files:
            if entry.path.endswith(".yaml"):
                assert set(paths(yaml.safe_load(entry.content))) <= present, entry.path
            if entry.path.endswith("init.json"):
                assert set(paths(json.loads(entry.content))) <= present, entry.path


def test_processes_of_a_worker(cluster: dict[str, Container]) -> None:
    processes = {
        row["name"]: row for row in json.loads(file(cluster["demo-worker-1"], "init.json"))["processes"]
    }
    assert list(processes) == ["containerd", "pause-image", "kubelet", "proxy"]
    assert processes["pause-image"]["once"] is True
    assert processes["kubelet"]["after"] == ["pause-image"]


def test_only_workers_and_apiservers_keep_network_rights(cluster: dict[str, Container]) -> None:
    for container in cluster.values():
        if container.role is Role.WORKER:
            assert "SYS_ADMIN" in container.capabilities
            assert container.device_rules == ("a *:* rwm",)
        else:
            assert container.drop_capabilities == ("ALL",)
            assert not container.security_options
    # The others may give NET_ADMIN up, which takes SETPCAP; see the image's entrypoint.
    assert cluster["demo-apiserver-1"].capabilities == ("NET_ADMIN",)
    assert set(cluster["demo-etcd-1"].capabilities) == {"NET_ADMIN", "SETPCAP"}


def test_ports_of_the_host(cluster: dict[str, Container]) -> None:
    published = {name: container.ports for name, container in cluster.items() if container.ports}
    assert published == {"demo-apiserver-1": (Port(6443, 26443), Port(6444, 26444), Port(6445, 26445))}
    assert registry(host_port=26446).ports == (Port(5000, 26446),)


def test_the_definition_follows_every_part(cluster: dict[str, Container], material: Material) -> None:
    from dataclasses import replace

    one = cluster["demo-etcd-1"]
    assert one.definition == containers(SPEC, PLACEMENT, material)[0].definition
    changed = replace(one.files[0], content=one.files[0].content + b"#")
    assert replace(one, files=(changed, *one.files[1:])).definition != one.definition
    assert replace(one, sysctls=(("net.ipv4.ip_forward", "1"),)).definition != one.definition
    assert len({container.definition for container in cluster.values()}) == len(cluster)


def test_identities_of_the_cluster() -> None:
    table = {
        name: (e.authority, e.identity.common_name, e.identity.organizations)
        for name, e in entries(SPEC, PLACEMENT).items()
    }
    cluster = Authority.CLUSTER
    assert table["admin"] == (cluster, "kubernetes-admin", ("system:masters",))
    assert table["demo-scheduler-1/identity"] == (cluster, "system:kube-scheduler", ())
    assert table["demo-controller-manager-1/identity"] == (cluster, "system:kube-controller-manager", ())
    assert table["demo-worker-1/kubelet-client"] == (cluster, "system:node:demo-worker-1", ("system:nodes",))
    assert table["demo-worker-2/proxy-client"] == (cluster, "system:kube-proxy", ())
    assert table["demo-apiserver-1/kubelet-client"] == (
        cluster,
        "kube-apiserver-kubelet-client",
        ("system:masters",),
    )
    assert table["demo-apiserver-1/front-proxy-client"][0] is Authority.FRONT_PROXY
    serving = entries(SPEC, PLACEMENT)["demo-apiserver-1/serving"].identity
    assert set(serving.dns_names) == {
        "demo-apiserver-1",
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
    }
    assert set(serving.addresses) == {"127.0.0.1", "10.96.0.1"}
