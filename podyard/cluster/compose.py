"""The same cluster as a compose file: rendered from the definitions that `up` makes its containers from.

Compose copies no files into containers, so a service that runs once writes each container's files into a
volume of that container's own, with the same code and keys as `up`. Pure.

Written for compose 1.29 and later: no `cgroup`, no top-level `name`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import yaml

from podyard.base.pki import KeyPair, SigningKey
from podyard.cluster.enginehost import in_url
from podyard.cluster.errors import SpecError
from podyard.cluster.identities import Material
from podyard.cluster.roles import (
    CONFIG_DIRECTORY,
    LOG_OPTIONS,
    PKI_DIRECTORY,
    Container,
    containers,
    registry,
)
from podyard.cluster.settings import Settings
from podyard.cluster.spec import (
    LABEL_CLUSTER,
    LABEL_FILES,
    LABEL_ROLE,
    MTU_OPTION,
    REGISTRY_NAME,
    ClusterSpec,
    HostPorts,
    Placement,
    Port,
    Role,
)
from podyard.cluster.wording import counted

# Neither what `up` chooses from nor what engines and kernels give by themselves.
DEFAULT_PLACEMENT = Placement("172.31.84.0/22", 1500, {})
FIRST_PORT = 25443
REGISTRY_PORT_ON_HOST = 25500
FILES = "files"
# Where the one-shot service has the volumes: each container's own, and the host's state with all keys.
FILES_DIRECTORY = "/files"
STATE_DIRECTORY = "/state"
# The kernel's bound on one argument (MAX_ARG_STRLEN), its end counted.
_ARGUMENT_BYTES = 131072

HEADER = """\
# {name}: {nodes}, {etcd}. Made by `podyard compose`; do not edit.
#   podyard build                                     once: the image
#   docker-compose -p {name} -f {file} up -d
#   podyard --name {name} kubectl get nodes
#   docker-compose -p {name} -f {file} down --volumes
"""


class _Blank(dict[str, KeyPair]):
    """Keys that are not made yet: what is rendered names files, and never holds their content."""

    def __missing__(self, name: str) -> KeyPair:
        return KeyPair(b"", b"")


def placement_of(spec: ClusterSpec, subnet: str = DEFAULT_PLACEMENT.subnet) -> Placement:
    """Where a compose cluster lives: fixed, since nobody chooses at its start."""
    ports = {
        name: HostPorts(FIRST_PORT + 10 * number, FIRST_PORT + 10 * number + 1, FIRST_PORT + 10 * number + 2)
        for number, name in enumerate(spec.names(Role.APISERVER))
    }
    return Placement(subnet, DEFAULT_PLACEMENT.mtu, ports)


def render(spec: ClusterSpec, placement: Placement, *, file: str = "compose.yaml") -> str:
    """The compose file's text."""
    blank = _Blank()
    made = containers(spec, placement, Material(blank, blank, SigningKey(b"", b"")))  # type: ignore[arg-type]
    store = registry(host_port=REGISTRY_PORT_ON_HOST)
    services = {
        FILES: _files_service(spec, placement, [*made, store]),
        "registry": _registry(spec, placement, store),
        **{c.name.removeprefix(f"{spec.name}-"): _service(spec, placement, c) for c in made},
    }
    volumes = {
        **{files_volume(spec, c.name): _volume(spec, files_volume(spec, c.name)) for c in [*made, store]},
        **{v.name: _volume(spec, v.name) for c in made for v in c.volumes},
        f"{spec.name}-registry": _volume(spec, f"{spec.name}-registry"),
        f"{spec.name}-state": _volume(spec, f"{spec.name}-state"),
    }
    network = {
        "name": spec.name,
        "labels": {LABEL_CLUSTER: spec.name},
        "driver_opts": {MTU_OPTION: str(placement.mtu)},
        "ipam": {
            "config": [
                {
                    "subnet": placement.subnet,
                    "gateway": placement.gateway,
                    "ip_range": placement.engine_range,
                }
            ]
        },
    }
    head = HEADER.format(
        name=spec.name,
        nodes=counted(spec.nodes, "node"),
        etcd=counted(spec.etcd_members, "etcd member"),
        file=file,
    )
    body = {"services": services, "networks": {"cluster": network}, "volumes": volumes}
    return head + yaml.safe_dump(body, sort_keys=False, width=110)


def files_volume(spec: ClusterSpec, container: str) -> str:
    """The volume that has a container's /etc/podyard."""
    return f"{spec.name}-files-{container.removeprefix(f'{spec.name}-')}"


def _volume(spec: ClusterSpec, name: str) -> dict[str, Any]:
    return {"name": name, "labels": {LABEL_CLUSTER: spec.name}}


def _files_service(spec: ClusterSpec, placement: Placement, made: list[Container]) -> dict[str, Any]:
    told = ["--nodes", str(spec.nodes), "--subnet", placement.subnet]
    settings = Settings.of(spec).plain()
    if settings != Settings().plain():
        text = json.dumps(settings)
        if len(text) >= _ARGUMENT_BYTES:
            raise SpecError(
                f"what is told of the cluster is {len(text)} bytes, and a compose file hands over fewer than "
                f"{_ARGUMENT_BYTES}",
                hint="name fewer certificates in extraCAs; podyard up takes as many as there are",
            )
        # Compose puts variables in for what begins with a dollar.
        told += ["--settings", text.replace("$", "$$")]
    return {
        "image": spec.image,
        "container_name": f"{spec.name}-{FILES}",
        "command": ["podyard", "--name", spec.name, "compose-files", *told],
        "network_mode": "none",
        "cap_drop": ["ALL"],
        "volumes": [
            f"{spec.name}-state:{STATE_DIRECTORY}",
            *(f"{files_volume(spec, c.name)}:{FILES_DIRECTORY}/{c.name}" for c in made),
        ],
        "labels": {LABEL_CLUSTER: spec.name, LABEL_ROLE: FILES},
    }


def _service(spec: ClusterSpec, placement: Placement, container: Container) -> dict[str, Any]:
    volumes = [
        f"{files_volume(spec, container.name)}:{CONFIG_DIRECTORY}:ro",
        *(f"{volume.name}:{volume.path}" for volume in container.volumes),
    ]
    optional: Mapping[str, Any] = {
        "environment": dict(container.environment),
        "tmpfs": [f"{path}:{options}" for path, options in container.tmpfs],
        "sysctls": dict(container.sysctls),
        "cap_add": list(container.capabilities),
        "cap_drop": list(container.drop_capabilities),
        "security_opt": list(container.security_options),
        "device_cgroup_rules": list(container.device_rules),
        "ports": [_published(port) for port in container.ports],
    }
    return {
        "image": spec.image,
        "container_name": container.name,
        "hostname": container.name,
        "command": list(container.command),
        **{key: value for key, value in optional.items() if value},
        "volumes": volumes,
        "networks": {"cluster": {"ipv4_address": container.address}},
        "labels": {**container.labels, LABEL_FILES: files_digest(container)},
        "logging": {"driver": "json-file", "options": dict(LOG_OPTIONS)},
        "restart": "no",
        "depends_on": {FILES: {"condition": "service_completed_successfully"}},
    }


def files_digest(container: Container) -> str:
    """Of a container's files but its keys and certificates, which are made later and not told.

    Compose makes a container anew when its labels change, and looks at no volume.
    """
    found = [
        (file.path, file.mode, hashlib.sha256(file.content).hexdigest())
        for file in container.files
        if not file.path.startswith(f"{PKI_DIRECTORY}/")
    ]
    return hashlib.sha256(json.dumps(sorted(found)).encode()).hexdigest()[:16]


def _published(port: Port) -> str:
    tail = "" if port.protocol == "tcp" else f"/{port.protocol}"
    return f"{in_url(port.address)}:{port.outside}:{port.inside}{tail}"


def _registry(spec: ClusterSpec, placement: Placement, store: Container) -> dict[str, Any]:
    """A registry of the cluster's own, by the name that nodes know."""
    service = _service(spec, placement, store)
    return {
        **service,
        "container_name": f"{spec.name}-registry",
        "hostname": f"{spec.name}-registry",
        "volumes": [service["volumes"][0], f"{spec.name}-registry:{store.volumes[0].path}"],
        "networks": {"cluster": {"aliases": [REGISTRY_NAME]}},
        "labels": {
            LABEL_CLUSTER: spec.name,
            LABEL_ROLE: Role.REGISTRY.value,
            LABEL_FILES: files_digest(store),
        },
    }
