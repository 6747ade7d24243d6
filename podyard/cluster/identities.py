"""Who is who in a cluster: every authority and every certificate, as a table.

Pure. A private key belongs to one container; the authorities' keys never leave the host.
`podyard.cluster.state` makes and keeps the material, `podyard.cluster.roles` hands each container its own.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from podyard.base.pki import Identity, KeyPair, SigningKey
from podyard.cluster.spec import KUBERNETES_SERVICE_ADDRESS, ClusterSpec, Placement, Role, container_name


class Authority(StrEnum):
    """The three roots of trust; the value is the file's name and the certificate's common name."""

    CLUSTER = "ca"
    ETCD = "etcd-ca"
    FRONT_PROXY = "front-proxy-ca"


COMMON_NAMES = {
    Authority.CLUSTER: "kubernetes",
    Authority.ETCD: "etcd-ca",
    Authority.FRONT_PROXY: "front-proxy-ca",
}

ADMIN = "admin"
ADMIN_GROUP = "system:masters"
_LOOPBACK_NAMES = ("localhost",)
_LOOPBACK_ADDRESSES = ("127.0.0.1",)


@dataclass(frozen=True, slots=True)
class Entry:
    """One certificate: which authority signs what."""

    authority: Authority
    identity: Identity


@dataclass(frozen=True, slots=True)
class Material:
    """All certificates and keys of a cluster.

    `pairs` has the keys of `entries`; `authorities` carries their private keys, so it must not reach a
    container.
    """

    authorities: Mapping[Authority, KeyPair]
    pairs: Mapping[str, KeyPair]
    service_account: SigningKey


def entries(spec: ClusterSpec, placement: Placement) -> dict[str, Entry]:
    """Every certificate of the cluster by `admin` or `CONTAINER/PURPOSE`."""
    table = {ADMIN: Entry(Authority.CLUSTER, Identity("kubernetes-admin", (ADMIN_GROUP,)))}
    builders = {
        Role.ETCD: _etcd,
        Role.APISERVER: _apiserver,
        Role.SCHEDULER: _scheduler,
        Role.CONTROLLER_MANAGER: _controller_manager,
        Role.WORKER: _worker,
    }
    for role, build in builders.items():
        for index in range(1, spec.count(role) + 1):
            name = container_name(spec.name, role, index)
            for purpose, entry in build(name, placement.address(role, index)).items():
                table[f"{name}/{purpose}"] = entry
            if role is Role.APISERVER and name in placement.ports:
                table[f"{name}/serving"] = _reached_at(table[f"{name}/serving"], placement.ports[name].host)
    return table


def _reached_by(common_name: str, organizations: tuple[str, ...], name: str, *addresses: str) -> Identity:
    return Identity(common_name, organizations, (name, *_LOOPBACK_NAMES), (*_LOOPBACK_ADDRESSES, *addresses))


def _etcd(name: str, _address: str) -> dict[str, Entry]:
    # etcd compares a peer's address with the names in its certificate, resolved anew each time: no address
    # here, so that a member may come back with another one. Both are client certificates too: etcd dials
    # itself and its peers.
    identity = _reached_by(name, (), name)
    return {"server": Entry(Authority.ETCD, identity), "peer": Entry(Authority.ETCD, identity)}


def _apiserver(name: str, _address: str) -> dict[str, Entry]:
    names = (name, *_LOOPBACK_NAMES, "kubernetes", "kubernetes.default", "kubernetes.default.svc")
    serving = Identity(
        "kube-apiserver",
        dns_names=(*names, "kubernetes.default.svc.cluster.local"),
        addresses=(*_LOOPBACK_ADDRESSES, KUBERNETES_SERVICE_ADDRESS),
        client=False,
    )
    return {
        "serving": Entry(Authority.CLUSTER, serving),
        "etcd-client": Entry(Authority.ETCD, Identity(f"kube-apiserver-etcd-client-{name}")),
        "kubelet-client": Entry(Authority.CLUSTER, Identity("kube-apiserver-kubelet-client", (ADMIN_GROUP,))),
        "front-proxy-client": Entry(Authority.FRONT_PROXY, Identity("front-proxy-client")),
    }


def _reached_at(serving: Entry, host: str) -> Entry:
    """The same for a server that is reached at a remote engine's host, too."""
    known = serving.identity
    if host in known.addresses:
        return serving
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return replace(serving, identity=replace(known, dns_names=(*known.dns_names, host)))
    return replace(serving, identity=replace(known, addresses=(*known.addresses, host)))


def _scheduler(name: str, _address: str) -> dict[str, Entry]:
    return {"identity": Entry(Authority.CLUSTER, _reached_by("system:kube-scheduler", (), name))}


def _controller_manager(name: str, _address: str) -> dict[str, Entry]:
    return {"identity": Entry(Authority.CLUSTER, _reached_by("system:kube-controller-manager", (), name))}


def _worker(name: str, address: str) -> dict[str, Entry]:
    node = (f"system:node:{name}", ("system:nodes",))
    return {
        "kubelet-client": Entry(Authority.CLUSTER, Identity(*node)),
        "kubelet-serving": Entry(Authority.CLUSTER, _reached_by(*node, name, address)),
        "proxy-client": Entry(Authority.CLUSTER, Identity("system:kube-proxy")),
    }
