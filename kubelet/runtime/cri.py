"""The runtime behind CRI v1: containerd over its Unix socket.

Only thin calls and translations; no decision is made here. Exits come from the container event
stream; since that stream may lose an event (see `events`), the kubelet looks at everything again
from time to time.
"""

from __future__ import annotations

import math
import re
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, cast

import grpc
import grpc.aio

from kubelet.runtime.base import (
    ANNOTATION_HASH,
    ANNOTATION_RESTARTS,
    CREATED,
    EXITED,
    LABEL_CONTAINER_NAME,
    LABEL_POD_NAME,
    LABEL_POD_NAMESPACE,
    LABEL_POD_UID,
    RUNNING,
    UNKNOWN,
    ContainerSpec,
    ImageInfo,
    MountSpec,
    ObservedPod,
    Resources,
    RuntimeContainer,
    RuntimeFailure,
    RuntimeStatus,
    Sandbox,
    SandboxSpec,
    StreamOptions,
)
from kubelet.runtime.cni import write_network_config
from kubelet.runtime.netsweep import NetworkSweeper
from podyard.api.types import M, Message, cri
from podyard.base import metrics

_OPERATIONS = metrics.counter(
    "kubelet_runtime_operations_total",
    "Cumulative number of runtime operations by operation type",
    ("operation_type",),
)

# Upstream: runtimeRequestTimeout; pulls have no bound but their own progress.
_TIMEOUT_S = 120.0
# The runtime ends the command itself; only if it does not, the call is given up.
_EXEC_SLACK_S = 5.0
_PULL_TIMEOUT_S = 1800.0
_NANOS = 1e9
_CAPITAL = re.compile(r"(?<!^)(?=[A-Z])")
_STATES = {
    cri.CONTAINER_CREATED: CREATED,
    cri.CONTAINER_RUNNING: RUNNING,
    cri.CONTAINER_EXITED: EXITED,
    cri.CONTAINER_UNKNOWN: UNKNOWN,
}
_PROPAGATION = {
    "private": cri.PROPAGATION_PRIVATE,
    "host_to_container": cri.PROPAGATION_HOST_TO_CONTAINER,
    "bidirectional": cri.PROPAGATION_BIDIRECTIONAL,
}
# Who asked for these looks at the pod afterwards anyway.
_OWN_DOING = (cri.CONTAINER_CREATED_EVENT, cri.CONTAINER_STARTED_EVENT)
_PROTOCOLS = {"TCP": cri.TCP, "UDP": cri.UDP, "SCTP": cri.SCTP}


class CriRuntime:
    """Implements `Runtime` with containerd.

    Args:
        socket: path of the runtime's socket.
        network_directory: where CNI configurations are read from.
        mtu: of the node's uplink.
    """

    def __init__(self, socket: str, *, network_directory: Path, mtu: int) -> None:
        options = [("grpc.max_receive_message_length", 16 * 1024 * 1024)]
        # Back at once when containerd is: its restarts take less than a second.
        options += [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 1000)]
        self._channel = grpc.aio.insecure_channel(f"unix://{socket}", options)
        self._network_directory = network_directory
        self._mtu = mtu
        self._sweeper = NetworkSweeper()
        # What does not change any more while the runtime lists a container in the same state, and a
        # sandbox at all: every look at a pod would else ask for each of them anew.
        self._seen: dict[str, RuntimeContainer] = {}
        self._addresses: dict[str, tuple[str, ...]] = {}

    async def _call(
        self, method: str, request: Message, response: type[M], timeout_s: float = _TIMEOUT_S
    ) -> M:
        _OPERATIONS.labels(operation_type(method)).inc()
        call = self._channel.unary_unary(
            f"/runtime.v1.{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=response.FromString,
        )
        try:
            return cast("M", await call(request, timeout=timeout_s))
        except grpc.aio.AioRpcError as error:
            raise _failure(error) from None

    async def status(self) -> RuntimeStatus:
        version = await self._call("RuntimeService/Version", cri.VersionRequest(), cri.VersionResponse, 10.0)
        answer = await self._call("RuntimeService/Status", cri.StatusRequest(), cri.StatusResponse, 10.0)
        conditions = {condition.type: condition for condition in answer.status.conditions}
        runtime, network = conditions.get("RuntimeReady"), conditions.get("NetworkReady")
        failed = next((c for c in (runtime, network) if c is not None and not c.status), None)
        return RuntimeStatus(
            ready=runtime is not None and runtime.status,
            network_ready=network is not None and network.status,
            reason=failed.reason if failed else "",
            message=failed.message if failed else "",
            name=version.runtime_name,
            version=version.runtime_version.removeprefix("v"),
        )

    async def pods(self) -> list[ObservedPod]:
        sandboxes = await self._call(
            "RuntimeService/ListPodSandbox", cri.ListPodSandboxRequest(), cri.ListPodSandboxResponse
        )
        containers = await self._call(
            "RuntimeService/ListContainers", cri.ListContainersRequest(), cri.ListContainersResponse
        )
        _keep_only(self._addresses, {item.id for item in sandboxes.items})
        _keep_only(self._seen, {item.id for item in containers.containers})
        return _by_pod(
            [_sandbox_of(item) for item in sandboxes.items],
            [_listed_container(item) for item in containers.containers],
        )

    async def pod(self, uid: str) -> ObservedPod:
        selector = {LABEL_POD_UID: uid}
        sandboxes = await self._call(
            "RuntimeService/ListPodSandbox",
            cri.ListPodSandboxRequest(filter={"label_selector": selector}),
            cri.ListPodSandboxResponse,
        )
        containers = await self._call(
            "RuntimeService/ListContainers",
            cri.ListContainersRequest(filter={"label_selector": selector}),
            cri.ListContainersResponse,
        )
        detailed = [await self._detailed(item) for item in containers.containers]
        found = _by_pod(
            [await self._with_address(item) for item in sandboxes.items],
            [container for container in detailed if container is not None],
        )
        return found[0] if found else ObservedPod(uid)

    async def _with_address(self, item: cri.PodSandbox) -> Sandbox:
        if item.state != cri.SANDBOX_READY:
            return _sandbox_of(item)
        ips = self._addresses.get(item.id)
        if ips is not None:
            return _sandbox_of(item, ips)
        try:
            answer = await self._call(
                "RuntimeService/PodSandboxStatus",
                cri.PodSandboxStatusRequest(pod_sandbox_id=item.id),
                cri.PodSandboxStatusResponse,
            )
        except RuntimeFailure as failure:
            if failure.code == "NOT_FOUND":
                return _sandbox_of(item)
            raise
        network = answer.status.network
        ips = tuple(ip for ip in (network.ip, *(extra.ip for extra in network.additional_ips)) if ip)
        ready = answer.status.state == cri.SANDBOX_READY
        if ready:
            self._addresses[item.id] = ips
        return _sandbox_of(item, ips, ready=ready)

    async def _detailed(self, item: cri.Container) -> RuntimeContainer | None:
        known = self._seen.get(item.id)
        if known is not None and known.state == _STATES[item.state]:
            return known
        try:
            answer = await self._call(
                "RuntimeService/ContainerStatus",
                cri.ContainerStatusRequest(container_id=item.id),
                cri.ContainerStatusResponse,
            )
        except RuntimeFailure as failure:
            if failure.code == "NOT_FOUND":
                return None  # removed between the list and this question
            raise
        self._seen[item.id] = container_of(item.pod_sandbox_id, answer.status)
        return self._seen[item.id]

    async def run_sandbox(self, spec: SandboxSpec) -> str:
        request = cri.RunPodSandboxRequest(config=_sandbox_config(spec), runtime_handler=spec.runtime_handler)
        with self._sweeper.starting():
            answer = await self._call("RuntimeService/RunPodSandbox", request, cri.RunPodSandboxResponse)
        return answer.pod_sandbox_id

    async def stop_sandbox(self, sandbox_id: str) -> None:
        request = cri.StopPodSandboxRequest(pod_sandbox_id=sandbox_id)
        await self._unless_gone("RuntimeService/StopPodSandbox", request, cri.StopPodSandboxResponse)

    async def remove_sandbox(self, sandbox_id: str) -> None:
        request = cri.RemovePodSandboxRequest(pod_sandbox_id=sandbox_id)
        await self._unless_gone("RuntimeService/RemovePodSandbox", request, cri.RemovePodSandboxResponse)

    async def create_container(self, sandbox_id: str, spec: ContainerSpec, sandbox: SandboxSpec) -> str:
        request = cri.CreateContainerRequest(
            pod_sandbox_id=sandbox_id,
            config=_container_config(spec, sandbox),
            sandbox_config=_sandbox_config(sandbox),
        )
        answer = await self._call("RuntimeService/CreateContainer", request, cri.CreateContainerResponse)
        return answer.container_id

    async def start_container(self, container_id: str) -> None:
        request = cri.StartContainerRequest(container_id=container_id)
        await self._call("RuntimeService/StartContainer", request, cri.StartContainerResponse)

    async def stop_container(self, container_id: str, grace_s: float) -> None:
        request = cri.StopContainerRequest(container_id=container_id, timeout=max(int(grace_s), 0))
        # The runtime ends it by KILL after the grace; only then may it take the usual time more.
        await self._unless_gone(
            "RuntimeService/StopContainer", request, cri.StopContainerResponse, grace_s + _TIMEOUT_S
        )

    async def remove_container(self, container_id: str) -> None:
        request = cri.RemoveContainerRequest(container_id=container_id)
        await self._unless_gone("RuntimeService/RemoveContainer", request, cri.RemoveContainerResponse)

    async def _unless_gone(
        self, method: str, request: Message, response: type[Message], timeout_s: float = _TIMEOUT_S
    ) -> None:
        try:
            await self._call(method, request, response, timeout_s)
        except RuntimeFailure as failure:
            if failure.code != "NOT_FOUND":
                raise

    async def image(self, reference: str) -> ImageInfo | None:
        answer = await self._call(
            "ImageService/ImageStatus",
            cri.ImageStatusRequest(image={"image": reference}),
            cri.ImageStatusResponse,
        )
        return _image_of(answer.image) if answer.HasField("image") and answer.image.id else None

    async def images(self) -> Sequence[ImageInfo]:
        answer = await self._call("ImageService/ListImages", cri.ListImagesRequest(), cri.ListImagesResponse)
        return [_image_of(image) for image in answer.images]

    async def pull(self, reference: str) -> str:
        request = cri.PullImageRequest(image={"image": reference})
        answer = await self._call("ImageService/PullImage", request, cri.PullImageResponse, _PULL_TIMEOUT_S)
        return answer.image_ref

    async def set_pod_cidr(self, cidr: str) -> None:
        write_network_config(self._network_directory, cidr, self._mtu)

    async def sweep(self) -> None:
        await self._sweeper.sweep(self._sandbox_ids)

    async def _sandbox_ids(self) -> set[str]:
        listed = await self._call(
            "RuntimeService/ListPodSandbox", cri.ListPodSandboxRequest(), cri.ListPodSandboxResponse
        )
        return {item.id for item in listed.items}

    async def exec(self, container_id: str, command: Sequence[str], timeout_s: float) -> tuple[int, str]:
        request = cri.ExecSyncRequest(
            container_id=container_id, cmd=command, timeout=max(math.ceil(timeout_s), 1)
        )
        answer = await self._call(
            "RuntimeService/ExecSync", request, cri.ExecSyncResponse, timeout_s + _EXEC_SLACK_S
        )
        return answer.exit_code, (answer.stdout + answer.stderr).decode(errors="replace")

    async def exec_url(self, container_id: str, command: Sequence[str], options: StreamOptions) -> str:
        request = cri.ExecRequest(
            container_id=container_id,
            cmd=command,
            stdin=options.stdin,
            stdout=options.stdout,
            stderr=options.stderr,
            tty=options.tty,
        )
        return (await self._call("RuntimeService/Exec", request, cri.ExecResponse)).url

    async def attach_url(self, container_id: str, options: StreamOptions) -> str:
        request = cri.AttachRequest(
            container_id=container_id,
            stdin=options.stdin,
            stdout=options.stdout,
            stderr=options.stderr,
            tty=options.tty,
        )
        return (await self._call("RuntimeService/Attach", request, cri.AttachResponse)).url

    async def forward_url(self, sandbox_id: str, ports: Sequence[int]) -> str:
        request = cri.PortForwardRequest(pod_sandbox_id=sandbox_id, port=ports)
        return (await self._call("RuntimeService/PortForward", request, cri.PortForwardResponse)).url

    async def events(self) -> AsyncIterator[str]:
        # The runtime keeps one queue for all readers and drops what nobody reads in time, and the
        # first event after a broken stream may be lost: a hint, never the truth.
        call = self._channel.unary_stream(
            "/runtime.v1.RuntimeService/GetContainerEvents",
            request_serializer=cri.GetEventsRequest.SerializeToString,
            response_deserializer=cri.ContainerEventResponse.FromString,
        )(cri.GetEventsRequest())
        try:
            async for event in call:
                if event.container_event_type not in _OWN_DOING:
                    yield event.pod_sandbox_status.metadata.uid
        except grpc.aio.AioRpcError as error:
            raise _failure(error) from None
        finally:
            call.cancel()

    async def close(self) -> None:
        await self._channel.close(None)


def operation_type(method: str) -> str:
    """A method's name as upstream's metric has it: RunPodSandbox is run_podsandbox."""
    name = method.rpartition("/")[2].replace("PodSandbox", "Podsandbox")
    return _CAPITAL.sub("_", name).lower()


def _keep_only(known: dict[str, Any], present: set[str]) -> None:
    for ident in known.keys() - present:
        del known[ident]


def _failure(error: grpc.aio.AioRpcError) -> RuntimeFailure:
    return RuntimeFailure(error.details() or error.code().name, error.code().name)


def _by_pod(sandboxes: list[Sandbox], containers: list[RuntimeContainer]) -> list[ObservedPod]:
    uids = dict.fromkeys([s.pod_uid for s in sandboxes] + [c.pod_uid for c in containers])
    pods = []
    for uid in uids:
        own = sorted((s for s in sandboxes if s.pod_uid == uid), key=lambda s: (-s.created_at_s, s.id))
        made = sorted(
            (c for c in containers if c.pod_uid == uid), key=lambda c: (-c.attempt, -c.created_at_s, c.id)
        )
        name, namespace = (own[0].pod_name, own[0].pod_namespace) if own else ("", "")
        pods.append(ObservedPod(uid, name, namespace, tuple(own), tuple(made)))
    return pods


def _sandbox_of(item: cri.PodSandbox, ips: tuple[str, ...] = (), ready: bool | None = None) -> Sandbox:
    return Sandbox(
        id=item.id,
        pod_uid=item.metadata.uid,
        pod_name=item.metadata.name,
        pod_namespace=item.metadata.namespace,
        attempt=item.metadata.attempt,
        ready=item.state == cri.SANDBOX_READY if ready is None else ready,
        created_at_s=item.created_at / _NANOS,
        ips=ips,
    )


def _listed_container(item: cri.Container) -> RuntimeContainer:
    return RuntimeContainer(
        id=item.id,
        sandbox_id=item.pod_sandbox_id,
        pod_uid=item.labels.get(LABEL_POD_UID, ""),
        name=item.metadata.name,
        attempt=item.metadata.attempt,
        state=_STATES[item.state],
        created_at_s=item.created_at / _NANOS,
        hash=item.annotations.get(ANNOTATION_HASH, ""),
    )


def container_of(sandbox_id: str, status: cri.ContainerStatus) -> RuntimeContainer:
    """What CRI says of a container, in seconds; never one that ended before it started."""
    # containerd notes the start once its shim has answered: a container that ends at once may have
    # ended, by the shim's own note, before that.
    started_at = min(status.started_at, status.finished_at or status.started_at)
    return RuntimeContainer(
        id=status.id,
        sandbox_id=sandbox_id,
        pod_uid=status.labels.get(LABEL_POD_UID, ""),
        name=status.metadata.name,
        attempt=status.metadata.attempt,
        state=_STATES[status.state],
        created_at_s=status.created_at / _NANOS,
        started_at_s=started_at / _NANOS,
        finished_at_s=status.finished_at / _NANOS,
        exit_code=status.exit_code,
        reason=status.reason,
        message=status.message,
        image=status.image.image,
        image_id=status.image_ref or status.image_id,
        hash=status.annotations.get(ANNOTATION_HASH, ""),
    )


def _image_of(image: cri.Image) -> ImageInfo:
    names = (*image.repo_digests, *image.repo_tags)
    uid = image.uid.value if image.HasField("uid") else None
    return ImageInfo(image.id, names, image.size, image.username, uid)


def _namespaces(spec: SandboxSpec) -> dict[str, Any]:
    pid = cri.NODE if spec.host_pid else cri.POD if spec.share_processes else cri.CONTAINER
    return {
        "network": cri.NODE if spec.host_network else cri.POD,
        "pid": pid,
        "ipc": cri.NODE if spec.host_ipc else cri.POD,
    }


def _sandbox_config(spec: SandboxSpec) -> cri.PodSandboxConfig:
    labels = {
        LABEL_POD_NAME: spec.pod_name,
        LABEL_POD_NAMESPACE: spec.pod_namespace,
        LABEL_POD_UID: spec.pod_uid,
    }
    security: dict[str, Any] = {
        "namespace_options": _namespaces(spec),
        "privileged": spec.privileged,
        "supplemental_groups": spec.supplemental_groups,
        "seccomp": {"profile_type": cri.SecurityProfile.RuntimeDefault},
    }
    if spec.run_as_user is not None:
        security["run_as_user"] = {"value": spec.run_as_user}
    if spec.run_as_group is not None:
        security["run_as_group"] = {"value": spec.run_as_group}
    config = cri.PodSandboxConfig(
        metadata={
            "name": spec.pod_name,
            "uid": spec.pod_uid,
            "namespace": spec.pod_namespace,
            "attempt": spec.attempt,
        },
        log_directory=spec.log_directory,
        labels=labels,
        dns_config={
            "servers": spec.dns_servers,
            "searches": spec.dns_searches,
            "options": spec.dns_options,
        },
        linux={
            "cgroup_parent": spec.cgroup_parent,
            "security_context": security,
            "sysctls": spec.sysctls,
            "resources": _resources(spec.resources),
        },
    )
    if not spec.host_network:
        config.hostname = spec.hostname
    for protocol, container_port, host_port, host_ip in spec.port_mappings:
        config.port_mappings.add(
            protocol=_PROTOCOLS[protocol],
            container_port=container_port,
            host_port=host_port,
            host_ip=host_ip,
        )
    return config


def _container_config(spec: ContainerSpec, sandbox: SandboxSpec) -> cri.ContainerConfig:
    labels = {
        LABEL_POD_NAME: sandbox.pod_name,
        LABEL_POD_NAMESPACE: sandbox.pod_namespace,
        LABEL_POD_UID: sandbox.pod_uid,
        LABEL_CONTAINER_NAME: spec.name,
    }
    return cri.ContainerConfig(
        metadata={"name": spec.name, "attempt": spec.attempt},
        image={"image": spec.image},
        command=spec.command,
        args=spec.args,
        working_dir=spec.working_dir,
        envs=[{"key": key, "value": value.encode()} for key, value in spec.env],
        mounts=[_mount(mount) for mount in spec.mounts],
        labels=labels,
        annotations={ANNOTATION_HASH: spec.hash, ANNOTATION_RESTARTS: str(spec.attempt)},
        log_path=spec.log_path,
        stdin=spec.stdin,
        stdin_once=spec.stdin_once,
        tty=spec.tty,
        linux={"resources": _resources(spec.resources), "security_context": _security(spec, sandbox)},
    )


def _mount(mount: MountSpec) -> cri.Mount:
    return cri.Mount(
        container_path=mount.container_path,
        host_path=mount.host_path,
        readonly=mount.readonly,
        propagation=_PROPAGATION[mount.propagation],
    )


def _resources(resources: Resources) -> cri.LinuxContainerResources:
    return cri.LinuxContainerResources(
        cpu_period=resources.cpu_period_us,
        cpu_quota=resources.cpu_quota_us,
        cpu_shares=resources.cpu_shares,
        memory_limit_in_bytes=resources.memory_limit_bytes,
        oom_score_adj=resources.oom_score_adj,
    )


def _security(spec: ContainerSpec, sandbox: SandboxSpec) -> cri.LinuxContainerSecurityContext:
    security = spec.security
    made = cri.LinuxContainerSecurityContext(
        privileged=security.privileged,
        namespace_options=_namespaces(sandbox),
        readonly_rootfs=security.readonly_root,
        supplemental_groups=security.supplemental_groups,
        no_new_privs=security.no_new_privileges,
        capabilities={
            "add_capabilities": security.add_capabilities,
            "drop_capabilities": security.drop_capabilities,
        },
    )
    if security.run_as_user is not None:
        made.run_as_user.value = security.run_as_user
    if security.run_as_group is not None:
        made.run_as_group.value = security.run_as_group
    if security.seccomp == "RuntimeDefault":
        made.seccomp.profile_type = cri.SecurityProfile.RuntimeDefault
    elif security.seccomp not in ("", "Unconfined"):
        made.seccomp.profile_type = cri.SecurityProfile.Localhost
        made.seccomp.localhost_ref = security.seccomp
    elif not security.privileged:
        made.seccomp.profile_type = cri.SecurityProfile.Unconfined
    if not security.privileged:
        # Upstream: the default ProcMount hides these from unprivileged containers.
        made.masked_paths.extend(_MASKED_PATHS)
        made.readonly_paths.extend(_READONLY_PATHS)
    return made


_MASKED_PATHS = (
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
)
_READONLY_PATHS = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
