"""From a pod's spec to what the runtime is asked for. Pure.

Environment and volumes arrive resolved: reading ConfigMaps and Secrets is the shell's work.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kubelet.cgroups import container_resources, pod_cgroup, pod_resources
from kubelet.podspec import container_hash
from kubelet.runtime.base import ContainerSpec, ImageInfo, MountSpec, SandboxSpec, SecuritySpec
from podyard.api import quantity
from podyard.api.types import Container, Pod, Volume, core_v1

LOG_ROOT = "/var/log/pods"
_REFERENCE = re.compile(r"\$(\$|\(([^)]*)\))")
_PROPAGATION = {
    "": "private",
    "None": "private",
    "HostToContainer": "host_to_container",
    "Bidirectional": "bidirectional",
}
_HOSTNAME_BYTES = 63
HOSTS_PATH = "/etc/hosts"
_MANAGED_HOSTS = """# Kubernetes-managed hosts file.
127.0.0.1\tlocalhost
::1\tlocalhost ip6-localhost ip6-loopback
fe00::0\tip6-localnet
fe00::0\tip6-mcastprefix
fe00::1\tip6-allnodes
fe00::2\tip6-allrouters
"""


class BuildError(Exception):
    """The container can't be made from what is there: shown as CreateContainerConfigError."""


@dataclass(frozen=True, slots=True)
class ClusterNetwork:
    """What resolv.conf of pods says."""

    dns_servers: tuple[str, ...] = ("10.96.0.10",)
    domain: str = "cluster.local"
    node_searches: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What downward references may ask of the node."""

    node_name: str
    host_ip: str
    memory_capacity_bytes: int
    cpu_capacity_m: int


def log_directory(pod: Pod) -> str:
    return f"{LOG_ROOT}/{pod.metadata.namespace}_{pod.metadata.name}_{pod.metadata.uid}"


def log_path(name: str, attempt: int) -> str:
    """Path of a container's log below its pod's log directory."""
    return f"{name}/{attempt}.log"


def sandbox_spec(pod: Pod, attempt: int, network: ClusterNetwork) -> SandboxSpec:
    """The sandbox of a pod."""
    spec: Any = pod.spec
    security = spec.securityContext
    servers, searches, options = dns(pod, network)
    ports = [
        (port.protocol or "TCP", port.containerPort, port.hostPort, port.hostIP)
        for container in spec.containers
        for port in container.ports
        if port.hostPort and not spec.hostNetwork
    ]
    groups = list(security.supplementalGroups)
    if security.HasField("fsGroup"):
        groups.append(security.fsGroup)
    return SandboxSpec(
        pod_uid=pod.metadata.uid,
        pod_name=pod.metadata.name,
        pod_namespace=pod.metadata.namespace,
        attempt=attempt,
        hostname=hostname(pod),
        log_directory=log_directory(pod),
        cgroup_parent=pod_cgroup(pod),
        dns_servers=servers,
        dns_searches=searches,
        dns_options=options,
        port_mappings=tuple(ports),
        host_network=spec.hostNetwork,
        host_pid=spec.hostPID,
        host_ipc=spec.hostIPC,
        share_processes=spec.shareProcessNamespace,
        privileged=any(container.securityContext.privileged for container in spec.containers),
        run_as_user=security.runAsUser if security.HasField("runAsUser") else None,
        run_as_group=security.runAsGroup if security.HasField("runAsGroup") else None,
        supplemental_groups=tuple(groups),
        sysctls={entry.name: entry.value for entry in security.sysctls},
        resources=pod_resources(pod),
    )


def hostname(pod: Pod) -> str:
    """The pod's host name: given, else its own name cut to what a host name may be."""
    name = pod.spec.hostname or pod.metadata.name
    return name[:_HOSTNAME_BYTES].rstrip("-.")


def dns(pod: Pod, network: ClusterNetwork) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Servers, search paths and options of resolv.conf (upstream: dns.Configurer)."""
    policy = pod.spec.dnsPolicy or "ClusterFirst"
    servers: list[str] = []
    searches: list[str] = []
    options: dict[str, str | None] = {}
    cluster_first = policy == "ClusterFirstWithHostNet" or (
        policy == "ClusterFirst" and not pod.spec.hostNetwork
    )
    if cluster_first:
        servers = list(network.dns_servers)
        domain = network.domain
        searches = [f"{pod.metadata.namespace}.svc.{domain}", f"svc.{domain}", domain, *network.node_searches]
        options = {"ndots": "5"}
    elif policy != "None":
        # Differs from upstream: the node's own resolver lives on its loopback, which a pod can't
        # reach, so dnsPolicy Default asks the cluster's DNS with the node's search list.
        servers, searches = list(network.dns_servers), list(network.node_searches)
    given = pod.spec.dnsConfig
    servers += [server for server in given.nameservers if server not in servers]
    searches += [search for search in given.searches if search not in searches]
    for option in given.options:
        options[option.name] = option.value if option.HasField("value") else None
    shown = tuple(name if value is None else f"{name}:{value}" for name, value in options.items())
    return tuple(servers), tuple(dict.fromkeys(searches)), shown


def container_spec(
    pod: Pod,
    container: Container,
    *,
    attempt: int,
    env: Mapping[str, str],
    mounts: tuple[MountSpec, ...],
    host: HostFacts,
) -> ContainerSpec:
    """One container; `$(NAME)` in its command and arguments is expanded from `env`."""
    return ContainerSpec(
        name=container.name,
        attempt=attempt,
        image=container.image,
        command=tuple(expand(word, env) for word in container.command),
        args=tuple(expand(word, env) for word in container.args),
        working_dir=container.workingDir,
        env=tuple(env.items()),
        mounts=mounts,
        log_path=log_path(container.name, attempt),
        stdin=container.stdin,
        stdin_once=container.stdinOnce,
        tty=container.tty,
        hash=container_hash(container),
        resources=container_resources(pod, container, host.memory_capacity_bytes),
        security=_security(pod, container),
    )


def expand(text: str, env: Mapping[str, str]) -> str:
    """Replaces `$(NAME)` by the variable; `$$` is a dollar sign; unknown names stay as they are."""

    def replacement(match: re.Match[str]) -> str:
        if match[1] == "$":
            return "$"
        return env.get(match[2], match[0])

    return _REFERENCE.sub(replacement, text)


def _security(pod: Pod, container: Container) -> SecuritySpec:
    own, whole = container.securityContext, pod.spec.securityContext

    def either(name: str) -> Any:
        for context in (own, whole):
            if context.HasField(name):
                return getattr(context, name)
        return None

    profile = own.seccompProfile if own.HasField("seccompProfile") else whole.seccompProfile
    seccomp = profile.localhostProfile if profile.type == "Localhost" else profile.type
    groups = list(whole.supplementalGroups)
    if whole.HasField("fsGroup"):
        groups.append(whole.fsGroup)
    return SecuritySpec(
        privileged=own.privileged,
        run_as_user=either("runAsUser"),
        run_as_group=either("runAsGroup"),
        readonly_root=own.readOnlyRootFilesystem,
        no_new_privileges=own.HasField("allowPrivilegeEscalation") and not own.allowPrivilegeEscalation,
        add_capabilities=tuple(own.capabilities.add),
        drop_capabilities=tuple(own.capabilities.drop),
        supplemental_groups=tuple(groups),
        seccomp=seccomp,
    )


def hosts_text(pod: Pod, addresses: tuple[str, ...], domain: str, node_hosts: str) -> str:
    """What a pod's containers find in /etc/hosts.

    Args:
        addresses: of the pod.
        domain: of the cluster.
        node_hosts: the node's own file, which pods in its network see.

    Source: kubelet_pods.go managedHostsFileContent, nodeHostsFileContent.
    """
    if pod.spec.hostNetwork:
        text = f"# Kubernetes-managed hosts file (host network).\n{node_hosts}"
    else:
        name = hostname(pod)
        if pod.spec.subdomain:
            name = f"{name}.{pod.spec.subdomain}.{pod.metadata.namespace}.svc.{domain}\t{name}"
        text = _MANAGED_HOSTS + "".join(f"{address}\t{name}\n" for address in addresses)
    if pod.spec.hostAliases:
        text += "\n# Entries added by HostAliases.\n"
        for alias in pod.spec.hostAliases:
            text += f"{alias.ip}\t" + "\t".join(alias.hostnames) + "\n"
    return text


def must_not_be_root(pod: Pod, container: Container) -> bool:
    """Whether `runAsNonRoot` is asked for, by the container or else by the pod."""
    own, whole = container.securityContext, pod.spec.securityContext
    return own.runAsNonRoot if own.HasField("runAsNonRoot") else whole.runAsNonRoot


def verify_not_root(pod: Pod, container: Container, image: ImageInfo | None) -> None:
    """Checks a container that must not run as root against its user or its image's.

    Raises:
        BuildError: it would run as root, or nobody can tell.

    Source: kuberuntime security_context_others.go verifyRunAsNonRoot.
    """
    where = f'pod: "{pod.metadata.name}_{pod.metadata.namespace}({pod.metadata.uid})", '
    where += f"container: {container.name}"
    for context in (container.securityContext, pod.spec.securityContext):
        if context.HasField("runAsUser"):
            if context.runAsUser == 0:
                raise BuildError(f"container's runAsUser breaks non-root policy ({where})")
            return
    if image is not None and image.uid:
        return
    if image is not None and image.uid is None and image.user:
        raise BuildError(
            f"container has runAsNonRoot and image has non-numeric user ({image.user}), "
            f"cannot verify user is non-root ({where})"
        )
    raise BuildError(f"container has runAsNonRoot and image will run as root ({where})")


def mount_specs(
    pod: Pod, container: Container, paths: Mapping[str, str], env: Mapping[str, str]
) -> list[tuple[MountSpec, str]]:
    """The mounts of a container, each with the part of its volume that is meant (mostly all: "").

    Args:
        paths: volume name -> path on the node.
        env: for `subPathExpr`.

    Raises:
        BuildError: a mount names an unknown volume or climbs out of it.
    """
    # Upstream: these volumes are the cluster's, whatever the mount says.
    fixed = {volume.name for volume in pod.spec.volumes if _is_readonly(volume)}
    made = []
    for mount in container.volumeMounts:
        if mount.name not in paths:
            raise BuildError(f'cannot find volume "{mount.name}" to mount into container "{container.name}"')
        part = expand(mount.subPathExpr, env) if mount.subPathExpr else mount.subPath
        if part.startswith("/") or ".." in part.split("/"):
            raise BuildError(f"subPath {part!r} must be relative and must not contain '..'")
        spec = MountSpec(
            mount.mountPath,
            paths[mount.name],
            mount.readOnly or mount.name in fixed,
            _PROPAGATION[mount.mountPropagation],
        )
        made.append((spec, part))
    return made


def _is_readonly(volume: Volume) -> bool:
    source = volume.volumeSource
    return any(source.HasField(kind) for kind in ("configMap", "secret", "downwardAPI", "projected"))


def field_value(pod: Pod, path: str, host: HostFacts, pod_ips: tuple[str, ...]) -> str:
    """What a `fieldRef` means.

    Raises:
        BuildError: no such field.
    """
    metadata, spec = pod.metadata, pod.spec
    direct = {
        "metadata.name": metadata.name,
        "metadata.namespace": metadata.namespace,
        "metadata.uid": metadata.uid,
        "spec.nodeName": spec.nodeName,
        "spec.serviceAccountName": spec.serviceAccountName,
        "status.hostIP": host.host_ip,
        "status.hostIPs": host.host_ip,
        "status.podIP": pod_ips[0] if pod_ips else "",
        "status.podIPs": ",".join(pod_ips),
    }
    if path in direct:
        return direct[path]
    for prefix, source in (
        ("metadata.labels", metadata.labels),
        ("metadata.annotations", metadata.annotations),
    ):
        if path.startswith(prefix + "['") and path.endswith("']"):
            return source.get(path[len(prefix) + 2 : -2], "")
        if path == prefix:
            return "\n".join(f"{key}={_quoted(source[key])}" for key in sorted(source))
    raise BuildError(f"unsupported fieldPath: {path}")


def _quoted(text: str) -> str:
    """A value in quotes, so that one with line ends stays one line (as Go's %q)."""
    return json.dumps(text, ensure_ascii=False)


def resource_value(
    pod: Pod, container: Container, selector: core_v1.ResourceFieldSelector, host: HostFacts
) -> str:
    """What a `resourceFieldRef` means: limits fall back to what the node has.

    Raises:
        BuildError: no such resource.
    """
    kind, _, name = selector.resource.partition(".")
    source = {"limits": container.resources.limits, "requests": container.resources.requests}.get(kind)
    if source is None or not name:
        raise BuildError(f"unsupported container resource : {selector.resource}")
    divisor = quantity.of(selector.divisor).nanos or quantity.NANOS
    if name in source:
        amount = quantity.of(source[name]).nanos
    elif kind == "limits" and name == "cpu":
        amount = host.cpu_capacity_m * quantity.NANOS // 1000
    elif kind == "limits" and name == "memory":
        amount = host.memory_capacity_bytes * quantity.NANOS
    else:
        amount = 0
    return str(-(-amount // divisor))
