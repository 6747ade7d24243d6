"""What a cluster is: the wish (`ClusterSpec`), where it lives (`Placement`) and its fixed names.

Pure data. `podyard.cluster.roles` turns it into containers, `podyard.cluster.plan` into steps.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from podyard.cluster.enginehost import LOOPBACK, in_url
from podyard.cluster.errors import SpecError
from podyard.cluster.version import VERSION

POD_NETWORK = "10.244.0.0/16"
SERVICE_NETWORK = "10.96.0.0/16"
KUBERNETES_SERVICE_ADDRESS = "10.96.0.1"
DNS_SERVICE_ADDRESS = "10.96.0.10"
CLUSTER_DOMAIN = "cluster.local"

REST_PORT = 6443
GRPC_PORT = 6444
GRPC_TOKEN_PORT = 6445
ETCD_CLIENT_PORT = 2379
ETCD_PEER_PORT = 2380
# Plain HTTP for health and metrics, on the container's own loopback only.
ETCD_METRICS_PORT = 2381
REGISTRY_PORT = 5000

DEFAULT_NAME = "podyard"
DEFAULT_NODES = 2
REGISTRY_NAME = "podyard-registry"
IMAGE = f"podyard:{VERSION}"
BASE_IMAGE = "debian:trixie-slim"

LABEL_CLUSTER = "podyard.cluster"
LABEL_ROLE = "podyard.role"
# Digest of all that defines a container but its image: a different one means that it must be made anew.
LABEL_DEFINITION = "podyard.definition"
# Digest of the files that compose's one-shot service writes for a container.
LABEL_FILES = "podyard.files"

# How the engine is told a network's MTU.
MTU_OPTION = "com.docker.network.driver.mtu"

# A network of 1,022 addresses: the last quarter is the engine's to give, the rest is ours, at fixed offsets.
NETWORK_PREFIX = 22
MAX_NODES = 500

_NAME = re.compile(r"[a-z]([a-z0-9-]{0,30}[a-z0-9])?")

_ENGINE_NETWORKS = frozenset({"bridge", "host", "none", "default"})


class Role(StrEnum):
    """What a container is there for; the value stands in its name and its label."""

    ETCD = "etcd"
    APISERVER = "apiserver"
    SCHEDULER = "scheduler"
    CONTROLLER_MANAGER = "controller-manager"
    WORKER = "worker"
    REGISTRY = "registry"


# What `podyard node` and `podyard component` act on.
NODES = (Role.WORKER,)
COMPONENTS = (Role.ETCD, Role.APISERVER, Role.SCHEDULER, Role.CONTROLLER_MANAGER)

# First address of each role, counted from the network's own.
_ADDRESS_OFFSET = {
    Role.ETCD: 16,
    Role.APISERVER: 32,
    Role.SCHEDULER: 48,
    Role.CONTROLLER_MANAGER: 64,
    # worker-1 is x.y.z.1.
    Role.WORKER: 257,
}


# Upstream: --node-monitor-grace-period, and the toleration that DefaultTolerationSeconds gives.
DEFAULT_NODE_GRACE_S = 50.0
DEFAULT_TOLERATION_S = 300
MIN_NODE_GRACE_S = 12.0


@dataclass(frozen=True, slots=True)
class Port:
    """A port of a container that the engine publishes.

    Attributes:
        inside: the container's.
        outside: the engine's host's.
        protocol: `tcp` or `udp`.
        address: of the engine's host, where it listens.
    """

    inside: int
    outside: int
    protocol: str = "tcp"
    address: str = LOOPBACK

    def __str__(self) -> str:
        return f"{in_url(self.address)}:{self.outside}/{self.protocol}"


@dataclass(frozen=True, slots=True)
class Publication:
    """A port of the `node`-th node (from 1) that is published on the engine's host."""

    node: int
    port: Port


@dataclass(frozen=True, slots=True)
class NodeTaint:
    """A taint that a node registers with."""

    key: str
    effect: str
    value: str = ""


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """What a node registers with besides its own labels."""

    labels: tuple[tuple[str, str], ...] = ()
    taints: tuple[NodeTaint, ...] = ()


def name_problem(name: str) -> str:
    """Why a cluster cannot have this name, as what it must be; empty when it can."""
    if not _NAME.fullmatch(name):
        return "must be lower-case letters, digits and '-' (not at the ends), a letter first, 32 at most"
    if name in _ENGINE_NETWORKS:
        return "must not be the name of one of the engine's own networks"
    return ""


def require_name(name: str) -> None:
    """Raises:
    SpecError: no cluster can have this name.
    """
    problem = name_problem(name)
    if problem:
        raise SpecError(f"{name!r} is no name for a cluster", hint=f"it {problem}")


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """The wish: how many of each role, from which image, and how they are.

    Attributes:
        node_grace_s: how long a node may be silent before it is NotReady.
        toleration_s: how long new pods stay on a node that is lost.
        labels: more labels for everything of the cluster, so that others can tell whose it is.
        node_options: of the first nodes, in order; those after them have none.
        flags: component as in `podyard.cluster.flags` -> flags of its own.
        publish: ports of nodes that are published on the host.
        extra_cas: certificates in PEM that every container of the cluster trusts, for image pulls too.
    """

    name: str = DEFAULT_NAME
    nodes: int = DEFAULT_NODES
    etcd_members: int = 3
    apiservers: int = 1
    schedulers: int = 1
    controller_managers: int = 1
    image: str = IMAGE
    node_grace_s: float = DEFAULT_NODE_GRACE_S
    toleration_s: int = DEFAULT_TOLERATION_S
    labels: tuple[tuple[str, str], ...] = ()
    node_options: tuple[NodeOptions, ...] = ()
    flags: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    publish: tuple[Publication, ...] = ()
    extra_cas: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require_name(self.name)
        if self.node_grace_s < MIN_NODE_GRACE_S:
            raise SpecError(
                f"nodes renew every 10 s: a grace of {self.node_grace_s:g} s would call all of them dead",
                hint=f"give them {MIN_NODE_GRACE_S:g} s or more",
            )
        if self.toleration_s < 0:
            raise SpecError(
                f"pods cannot stay for {self.toleration_s} s on a lost node", hint="give them 0 s or more"
            )
        if not 0 <= self.nodes <= MAX_NODES:
            raise SpecError(
                f"{self.nodes} is no number of nodes", hint=f"a cluster has from 0 to {MAX_NODES}"
            )

    def count(self, role: Role) -> int:
        """How many containers of the role."""
        return {
            Role.ETCD: self.etcd_members,
            Role.APISERVER: self.apiservers,
            Role.SCHEDULER: self.schedulers,
            Role.CONTROLLER_MANAGER: self.controller_managers,
            Role.WORKER: self.nodes,
            Role.REGISTRY: 0,
        }[role]

    def options_of(self, node: int) -> NodeOptions:
        """What is said of the `node`-th node (from 1)."""
        return self.node_options[node - 1] if node <= len(self.node_options) else NodeOptions()

    def names(self, role: Role) -> list[str]:
        """Container names of the role, in order."""
        return [container_name(self.name, role, index) for index in range(1, self.count(role) + 1)]


@dataclass(frozen=True, slots=True)
class HostPorts:
    """Ports that lead to the API server's three, and the host that has them."""

    rest: int
    grpc: int
    grpc_token: int
    host: str = LOOPBACK

    @property
    def rest_url(self) -> str:
        """Where this machine reaches REST."""
        return f"https://{in_url(self.host)}:{self.rest}"

    @property
    def grpc_target(self) -> str:
        """Where this machine reaches gRPC, with TLS; what grpc calls the target."""
        return f"{in_url(self.host)}:{self.grpc}"

    def pairs(self) -> tuple[tuple[int, int], ...]:
        """(port in the container, port on the host)."""
        return ((REST_PORT, self.rest), (GRPC_PORT, self.grpc), (GRPC_TOKEN_PORT, self.grpc_token))


@dataclass(frozen=True, slots=True)
class Placement:
    """What was chosen once for a cluster on this host and must stay: kept in `cluster.yaml`."""

    subnet: str
    mtu: int
    ports: dict[str, HostPorts] = field(default_factory=dict)

    def address(self, role: Role, index: int) -> str:
        """The fixed address of the `index`-th (from 1) container of a role."""
        network = ipaddress.IPv4Network(self.subnet)
        return str(network[_ADDRESS_OFFSET[role] + index - 1])

    @property
    def gateway(self) -> str:
        """The engine's address on the network."""
        return str(ipaddress.IPv4Network(self.subnet)[1])

    @property
    def engine_range(self) -> str:
        """Where the engine takes addresses for containers that ask for none."""
        return str(list(ipaddress.IPv4Network(self.subnet).subnets(new_prefix=NETWORK_PREFIX + 2))[-1])


def container_name(cluster: str, role: Role, index: int) -> str:
    """`podyard-worker-2`: container, host and node name at once; `index` counts from 1."""
    return f"{cluster}-{role.value}-{index}"


def full_name(cluster: str, name: str) -> str:
    """The container that a user means by `worker-2` or `podyard-worker-2`."""
    return name if name.startswith(f"{cluster}-") else f"{cluster}-{name}"
