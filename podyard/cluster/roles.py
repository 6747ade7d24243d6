"""What each role's container is: pure, from the wish to complete definitions.

A definition has everything that the engine needs but the image's identity: files, volumes, capabilities,
ports. Its digest goes on the container as a label, so that a changed definition is seen without asking the
container.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import yaml

from podyard.cluster.enginehost import publish_address
from podyard.cluster.identities import Authority, Material
from podyard.cluster.spec import (
    ETCD_CLIENT_PORT,
    ETCD_METRICS_PORT,
    ETCD_PEER_PORT,
    GRPC_PORT,
    LABEL_CLUSTER,
    LABEL_ROLE,
    POD_NETWORK,
    REGISTRY_NAME,
    REGISTRY_PORT,
    SERVICE_NETWORK,
    ClusterSpec,
    Placement,
    Port,
    Role,
    container_name,
)

CONFIG_DIRECTORY = "/etc/podyard"
PKI_DIRECTORY = f"{CONFIG_DIRECTORY}/pki"
# Bounds what one container's output may take on the host.
LOG_OPTIONS = {"max-size": "10m", "max-file": "3"}
# The entrypoint makes the container trust what is here.
EXTRA_CAS_DIRECTORY = f"{CONFIG_DIRECTORY}/extra-cas"
PAUSE_ARCHIVE = "/opt/podyard/images/pause.tar"
CONTAINERD_SOCKET = "/run/containerd/containerd.sock"

# The engine's root may lack CAP_SYS_RESOURCE, so `privileged` would fail: the list is explicit.
_NODE_CAPABILITIES = (
    "AUDIT_CONTROL",
    "AUDIT_WRITE",
    "DAC_READ_SEARCH",
    "IPC_LOCK",
    "IPC_OWNER",
    "LEASE",
    "LINUX_IMMUTABLE",
    "MKNOD",
    "NET_ADMIN",
    "NET_BROADCAST",
    "NET_RAW",
    "SYSLOG",
    "SYS_ADMIN",
    "SYS_CHROOT",
    "SYS_NICE",
    "SYS_PTRACE",
)
# NET_ADMIN sets the unreachable routes; SETPCAP then takes NET_ADMIN away for good (see the image's
# entrypoint).
_GUARDED_CAPABILITIES = ("NET_ADMIN", "SETPCAP")


@dataclass(frozen=True, slots=True)
class File:
    """A file to put into a container before its first start."""

    path: str
    content: bytes = field(repr=False)
    mode: int = 0o600


@dataclass(frozen=True, slots=True)
class Volume:
    """A named volume and where it is mounted."""

    name: str
    path: str


@dataclass(frozen=True, slots=True)
class Container:
    """A complete definition."""

    name: str
    role: Role
    cluster: str
    address: str
    command: tuple[str, ...]
    files: tuple[File, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    volumes: tuple[Volume, ...] = ()
    tmpfs: tuple[tuple[str, str], ...] = ()
    ports: tuple[Port, ...] = ()
    sysctls: tuple[tuple[str, str], ...] = ()
    capabilities: tuple[str, ...] = ()
    drop_capabilities: tuple[str, ...] = ()
    security_options: tuple[str, ...] = ()
    device_rules: tuple[str, ...] = ()
    more_labels: tuple[tuple[str, str], ...] = ()

    @property
    def labels(self) -> dict[str, str]:
        """What says whose it is; the truth about what exists."""
        return {**dict(self.more_labels), LABEL_CLUSTER: self.cluster, LABEL_ROLE: self.role.value}

    @property
    def definition(self) -> str:
        """Digest of everything above."""
        plain = asdict(self)
        del plain["more_labels"]  # no reason to make it anew
        # Ports on the loopback as they have always been written, so that a newer podyard replaces nothing.
        plain["ports"] = [
            [port.inside, port.outside] if port == Port(port.inside, port.outside) else asdict(port)
            for port in self.ports
        ]
        for file in plain["files"]:
            file["content"] = hashlib.sha256(file["content"]).hexdigest()
        return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class _Inputs:
    spec: ClusterSpec
    placement: Placement
    material: Material


def containers(spec: ClusterSpec, placement: Placement, material: Material) -> list[Container]:
    """Every container of the cluster, in the order to start them in."""
    inputs = _Inputs(spec, placement, material)
    builders: dict[Role, Callable[[_Inputs, str, int], Container]] = {
        Role.ETCD: _etcd,
        Role.APISERVER: _apiserver,
        Role.WORKER: _worker,
        Role.CONTROLLER_MANAGER: _controller_manager,
        Role.SCHEDULER: _scheduler,
    }
    made = [
        build(inputs, container_name(spec.name, role, index), index)
        for role, build in builders.items()
        for index in range(1, spec.count(role) + 1)
    ]
    trusted = _extra_cas(spec)
    return [
        replace(container, files=(*container.files, *trusted), more_labels=spec.labels) for container in made
    ]


def _extra_cas(spec: ClusterSpec) -> tuple[File, ...]:
    return tuple(
        File(f"{EXTRA_CAS_DIRECTORY}/extra-{number}.crt", certificate.encode(), 0o644)
        for number, certificate in enumerate(spec.extra_cas, 1)
    )


def registry(*, host_port: int) -> Container:
    """The one registry of this host, shared by its clusters; its label names no cluster."""
    return Container(
        name=REGISTRY_NAME,
        role=Role.REGISTRY,
        cluster="",
        address="",
        command=(Role.REGISTRY.value,),
        files=(
            _init_file(_process("registry", "docker-registry", "serve", "/etc/docker/registry/podyard.yml")),
        ),
        volumes=(Volume(REGISTRY_NAME, "/var/lib/registry"),),
        # On the loopback, wherever the engine is: the engine itself pushes, and nobody asks who pushes.
        ports=(Port(REGISTRY_PORT, host_port),),
    )


def _etcd(inputs: _Inputs, name: str, index: int) -> Container:
    members = inputs.spec.names(Role.ETCD)
    tls = {"trusted-ca-file": f"{PKI_DIRECTORY}/ca.crt", "client-cert-auth": True}

    def transport(purpose: str) -> dict[str, object]:
        return {
            **tls,
            "cert-file": f"{PKI_DIRECTORY}/{purpose}.crt",
            "key-file": f"{PKI_DIRECTORY}/{purpose}.key",
        }

    config = {
        "name": name,
        "data-dir": "/var/lib/etcd",
        "listen-client-urls": f"https://0.0.0.0:{ETCD_CLIENT_PORT}",
        "advertise-client-urls": f"https://{name}:{ETCD_CLIENT_PORT}",
        "listen-peer-urls": f"https://0.0.0.0:{ETCD_PEER_PORT}",
        "initial-advertise-peer-urls": f"https://{name}:{ETCD_PEER_PORT}",
        "listen-metrics-urls": f"http://127.0.0.1:{ETCD_METRICS_PORT}",
        "initial-cluster": ",".join(f"{member}=https://{member}:{ETCD_PEER_PORT}" for member in members),
        "initial-cluster-token": inputs.spec.name,
        "initial-cluster-state": "new",
        # Each member keeps as many of the last writes in memory as both say: the first between snapshots, the
        # second for members that lag; one further behind gets all, which is little here. The defaults of
        # etcd 3.5 (100,000 and 5,000) let it grow to hundreds of megabytes.
        "snapshot-count": 1_000,
        "experimental-snapshot-catch-up-entries": 1_000,
        "client-transport-security": transport("server"),
        "peer-transport-security": transport("peer"),
        "logger": "zap",
        "log-level": "warn",
    }
    return _guarded(
        inputs,
        Role.ETCD,
        index,
        files=(
            _yaml_file("etcd.yaml", config),
            _certificate("ca", inputs.material, Authority.ETCD),
            *_pair("server", inputs.material, name),
            *_pair("peer", inputs.material, name),
            _init_file(_process("etcd", "etcd", "--config-file", f"{CONFIG_DIRECTORY}/etcd.yaml")),
        ),
        volumes=(Volume(f"{name}-data", "/var/lib/etcd"),),
    )


def _apiserver(inputs: _Inputs, name: str, index: int) -> Container:
    material, ports = inputs.material, inputs.placement.ports[name]
    published = publish_address(ports.host)
    return Container(
        name=name,
        role=Role.APISERVER,
        cluster=inputs.spec.name,
        address=inputs.placement.address(Role.APISERVER, index),
        command=(Role.APISERVER.value,),
        files=(
            _yaml_file("config.yaml", apiserver_config(inputs.spec, name)),
            _certificate("ca", material, Authority.CLUSTER),
            _certificate("etcd-ca", material, Authority.ETCD),
            _certificate("front-proxy-ca", material, Authority.FRONT_PROXY),
            *_pair("serving", material, name),
            *_pair("etcd-client", material, name),
            *_pair("kubelet-client", material, name),
            *_pair("front-proxy-client", material, name),
            File(f"{PKI_DIRECTORY}/service-account.key", material.service_account.private),
            File(f"{PKI_DIRECTORY}/service-account.pub", material.service_account.public, 0o644),
            _init_file(_component("apiserver")),
        ),
        environment=_networks(),
        ports=tuple(Port(inside, outside, address=published) for inside, outside in ports.pairs()),
        # It owns the routes to pods; binding and serving need nothing more.
        capabilities=("NET_ADMIN",),
        drop_capabilities=("ALL",),
    )


def _scheduler(inputs: _Inputs, name: str, index: int) -> Container:
    return _controller(inputs, Role.SCHEDULER, name, index)


def _controller_manager(inputs: _Inputs, name: str, index: int) -> Container:
    return _controller(inputs, Role.CONTROLLER_MANAGER, name, index)


def _controller(inputs: _Inputs, role: Role, name: str, index: int) -> Container:
    return _guarded(
        inputs,
        role,
        index,
        files=(
            _yaml_file("config.yaml", _controller_settings(inputs.spec, role, name)),
            _certificate("ca", inputs.material, Authority.CLUSTER),
            *_pair("identity", inputs.material, name),
            _init_file(_component(role.value)),
        ),
    )


def _controller_settings(spec: ClusterSpec, role: Role, name: str) -> dict[str, Any]:
    told = controller_config(spec, name)
    if role is Role.CONTROLLER_MANAGER:
        return {**told, "node_grace_s": spec.node_grace_s, **spec.flags.get("controllerManager", {})}
    return {**told, **spec.flags.get("scheduler", {})}


def _worker(inputs: _Inputs, name: str, index: int) -> Container:
    material = inputs.material
    pause = _process(
        "pause-image",
        *(
            "ctr",
            "--connect-timeout",
            "30s",
            "--namespace",
            "k8s.io",
            "images",
            "import",
            "--local",
            PAUSE_ARCHIVE,
        ),
    )
    processes = (
        _process("containerd", "containerd"),
        {**pause, "once": True},
        # Without the sandbox image the runtime would look for it on the internet.
        {**_component("kubelet", "kubelet.yaml"), "after": ["pause-image"]},
        _component("proxy", "proxy.yaml"),
    )
    return Container(
        name=name,
        role=Role.WORKER,
        cluster=inputs.spec.name,
        address=inputs.placement.address(Role.WORKER, index),
        command=(Role.WORKER.value,),
        files=(
            _yaml_file("kubelet.yaml", kubelet_config(inputs.spec, name, index)),
            _yaml_file("proxy.yaml", proxy_config(inputs.spec, name)),
            _certificate("ca", material, Authority.CLUSTER),
            *_pair("kubelet-client", material, name),
            *_pair("kubelet-serving", material, name),
            *_pair("proxy-client", material, name),
            _init_file(*processes),
        ),
        environment=_networks(),
        volumes=(
            # overlayfs does not stack on the engine's own storage driver.
            Volume(f"{name}-containerd", "/var/lib/containerd"),
            Volume(f"{name}-kubelet", "/var/lib/kubelet"),
            Volume(f"{name}-logs", "/var/log/pods"),
        ),
        tmpfs=(("/run", "rw,exec,nosuid,nodev,mode=755"),),
        ports=tuple(each.port for each in inputs.spec.publish if each.node == index),
        sysctls=(("net.ipv4.ip_forward", "1"),),
        capabilities=_NODE_CAPABILITIES,
        security_options=("seccomp=unconfined", "apparmor=unconfined"),
        device_rules=("a *:* rwm",),
    )


def apiserver_config(spec: ClusterSpec, name: str) -> dict[str, Any]:
    """`apiserver.main.Config` of one API server."""
    return {
        "name": name,
        "etcd": {
            "endpoints": [f"{member}:{ETCD_CLIENT_PORT}" for member in spec.names(Role.ETCD)],
            "tls": _tls("etcd-ca", "etcd-client"),
        },
        "tls": _tls("ca", "serving"),
        "kubelet_client": _tls("ca", "kubelet-client"),
        "default_toleration_s": spec.toleration_s,
        **spec.flags.get("apiserver", {}),
    }


def client_config(spec: ClusterSpec, name: str, purpose: str) -> dict[str, Any]:
    """The keys that every client of the API server has in common."""
    return {
        "name": name,
        "apiservers": [f"{apiserver}:{GRPC_PORT}" for apiserver in spec.names(Role.APISERVER)],
        "tls": _tls("ca", purpose),
    }


def controller_config(spec: ClusterSpec, name: str) -> dict[str, Any]:
    """`scheduler.main.Config` or `controller_manager.main.Config`; the same identity serves health."""
    return {**client_config(spec, name, "identity"), "serving": _tls("ca", "identity")}


def kubelet_config(spec: ClusterSpec, name: str, index: int = 1) -> dict[str, Any]:
    """`kubelet.main.Config` of the `index`-th node (from 1)."""
    options = spec.options_of(index)
    registers = {
        "labels": dict(options.labels),
        "taints": [
            {name: value for name, value in asdict(taint).items() if value} for taint in options.taints
        ],
    }
    return {
        **client_config(spec, name, "kubelet-client"),
        "serving": _tls("ca", "kubelet-serving"),
        **{key: value for key, value in registers.items() if value},
        **spec.flags.get("kubelet", {}),
    }


def proxy_config(spec: ClusterSpec, name: str) -> dict[str, Any]:
    """`proxy.main.Config` of one node."""
    return {**client_config(spec, name, "proxy-client"), **spec.flags.get("proxy", {})}


def _guarded(
    inputs: _Inputs, role: Role, index: int, *, files: tuple[File, ...], volumes: tuple[Volume, ...] = ()
) -> Container:
    """A container whose entrypoint sets the unreachable routes and then gives up the right to change them."""
    return Container(
        name=container_name(inputs.spec.name, role, index),
        role=role,
        cluster=inputs.spec.name,
        address=inputs.placement.address(role, index),
        command=(role.value,),
        files=files,
        environment=_networks(),
        volumes=volumes,
        capabilities=_GUARDED_CAPABILITIES,
        drop_capabilities=("ALL",),
    )


def _networks() -> tuple[tuple[str, str], ...]:
    return (("PODYARD_POD_NETWORK", POD_NETWORK), ("PODYARD_SERVICE_NETWORK", SERVICE_NETWORK))


def _process(name: str, *argv: str) -> dict[str, Any]:
    return {"name": name, "argv": list(argv)}


def _component(role: str, config: str = "config.yaml") -> dict[str, Any]:
    return _process(role, "podyard", "run", role, "--config", f"{CONFIG_DIRECTORY}/{config}")


def _init_file(*processes: Mapping[str, Any]) -> File:
    content = json.dumps({"processes": list(processes)}, indent=1)
    return File(f"{CONFIG_DIRECTORY}/init.json", content.encode(), 0o644)


def _yaml_file(name: str, content: Mapping[str, Any]) -> File:
    return File(f"{CONFIG_DIRECTORY}/{name}", yaml.safe_dump(dict(content), sort_keys=False).encode(), 0o644)


def _tls(authority: str, purpose: str) -> dict[str, str]:
    return {
        "ca": f"{PKI_DIRECTORY}/{authority}.crt",
        "cert": f"{PKI_DIRECTORY}/{purpose}.crt",
        "key": f"{PKI_DIRECTORY}/{purpose}.key",
    }


def _certificate(name: str, material: Material, authority: Authority) -> File:
    return File(f"{PKI_DIRECTORY}/{name}.crt", material.authorities[authority].certificate, 0o644)


def _pair(purpose: str, material: Material, container: str) -> tuple[File, File]:
    pair = material.pairs[f"{container}/{purpose}"]
    return (
        File(f"{PKI_DIRECTORY}/{purpose}.crt", pair.certificate, 0o644),
        File(f"{PKI_DIRECTORY}/{purpose}.key", pair.key),
    )
