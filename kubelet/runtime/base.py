"""What the kubelet asks of a container runtime, and what it sees of it.

Two implementations: `cri` (containerd through CRI v1) and `hollow` (in memory, so that one
process can be a thousand nodes). Both pass the same suite. The kubelet remembers nothing: all it
needs to find a pod again is in the labels and annotations that it gives sandboxes and containers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

# Labels on sandboxes and containers; upstream's names, so that other tools recognize them.
LABEL_POD_NAME = "io.kubernetes.pod.name"
LABEL_POD_NAMESPACE = "io.kubernetes.pod.namespace"
LABEL_POD_UID = "io.kubernetes.pod.uid"
LABEL_CONTAINER_NAME = "io.kubernetes.container.name"
ANNOTATION_HASH = "io.kubernetes.container.hash"
ANNOTATION_RESTARTS = "io.kubernetes.container.restartCount"

CREATED = "created"
RUNNING = "running"
EXITED = "exited"
UNKNOWN = "unknown"


class RuntimeFailure(Exception):
    """The runtime refused or failed a request.

    Attributes:
        code: the canonical gRPC code's name, such as "NOT_FOUND" or "UNAVAILABLE".
    """

    def __init__(self, message: str, code: str = "UNKNOWN") -> None:
        super().__init__(message)
        self.message = message
        self.code = code


@dataclass(frozen=True, slots=True)
class Sandbox:
    """One pod sandbox. `ips` is empty with host networking or before the network is up."""

    id: str
    pod_uid: str
    pod_name: str
    pod_namespace: str
    attempt: int
    ready: bool
    created_at_s: float
    ips: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RuntimeContainer:
    """One container.

    Attributes:
        state: created, running, exited or unknown.
        attempt: 0 for the first, one more for each restart: the restart count.
        hash: of the spec that it was made from.
    """

    id: str
    sandbox_id: str
    pod_uid: str
    name: str
    attempt: int
    state: str
    created_at_s: float
    started_at_s: float = 0.0
    finished_at_s: float = 0.0
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    image: str = ""
    image_id: str = ""
    hash: str = ""


@dataclass(frozen=True, slots=True)
class ObservedPod:
    """All that the runtime has of one pod, the newest first."""

    uid: str
    name: str = ""
    namespace: str = ""
    sandboxes: tuple[Sandbox, ...] = ()
    containers: tuple[RuntimeContainer, ...] = ()

    @property
    def sandbox(self) -> Sandbox | None:
        """The newest sandbox."""
        return self.sandboxes[0] if self.sandboxes else None

    def of(self, name: str) -> list[RuntimeContainer]:
        """The containers made for one container of the spec, the newest first."""
        return [container for container in self.containers if container.name == name]

    @property
    def running(self) -> bool:
        """Whether anything of it may still run."""
        return any(c.state in (RUNNING, UNKNOWN) for c in self.containers) or any(
            s.ready for s in self.sandboxes
        )


@dataclass(frozen=True, slots=True)
class Resources:
    """Limits of a container or pod; 0 means none."""

    cpu_shares: int = 2
    cpu_quota_us: int = 0
    cpu_period_us: int = 100_000
    memory_limit_bytes: int = 0
    oom_score_adj: int = 1000


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """What a sandbox is made from."""

    pod_uid: str
    pod_name: str
    pod_namespace: str
    attempt: int
    hostname: str
    log_directory: str
    cgroup_parent: str
    dns_servers: tuple[str, ...] = ()
    dns_searches: tuple[str, ...] = ()
    dns_options: tuple[str, ...] = ()
    port_mappings: tuple[tuple[str, int, int, str], ...] = ()  # protocol, container, host port, host address
    host_network: bool = False
    host_pid: bool = False
    host_ipc: bool = False
    share_processes: bool = False
    privileged: bool = False
    run_as_user: int | None = None
    run_as_group: int | None = None
    supplemental_groups: tuple[int, ...] = ()
    sysctls: dict[str, str] = field(default_factory=dict)
    resources: Resources = Resources()
    runtime_handler: str = ""


@dataclass(frozen=True, slots=True)
class MountSpec:
    """A path of the host in a container. `propagation`: private, host_to_container or bidirectional."""

    container_path: str
    host_path: str
    readonly: bool = False
    propagation: str = "private"


@dataclass(frozen=True, slots=True)
class SecuritySpec:
    """How confined a container is; None leaves it to the image."""

    privileged: bool = False
    run_as_user: int | None = None
    run_as_group: int | None = None
    readonly_root: bool = False
    no_new_privileges: bool = False
    add_capabilities: tuple[str, ...] = ()
    drop_capabilities: tuple[str, ...] = ()
    supplemental_groups: tuple[int, ...] = ()
    seccomp: str = ""  # "", "RuntimeDefault", "Unconfined" or the path of a local profile


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """What a container is made from."""

    name: str
    attempt: int
    image: str
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    working_dir: str = ""
    env: tuple[tuple[str, str], ...] = ()
    mounts: tuple[MountSpec, ...] = ()
    log_path: str = ""
    stdin: bool = False
    stdin_once: bool = False
    tty: bool = False
    hash: str = ""
    resources: Resources = Resources()
    security: SecuritySpec = SecuritySpec()


@dataclass(frozen=True, slots=True)
class ImageInfo:
    """An image on the node."""

    id: str
    names: tuple[str, ...]
    size_bytes: int
    user: str = ""
    uid: int | None = None


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """Which streams of a process are wanted."""

    stdin: bool = False
    stdout: bool = False
    stderr: bool = False
    tty: bool = False


@dataclass(frozen=True, slots=True)
class RuntimeStatus:
    """Whether the runtime and its network work; texts say why not."""

    ready: bool
    network_ready: bool
    reason: str = ""
    message: str = ""
    name: str = ""
    version: str = ""


class Runtime(Protocol):
    """A container runtime. Every method raises `RuntimeFailure`; all but the pulls end within two minutes."""

    async def status(self) -> RuntimeStatus: ...

    async def pods(self) -> list[ObservedPod]:
        """Everything that runs or has run, in little detail: ids, states, attempts."""
        ...

    async def pod(self, uid: str) -> ObservedPod:
        """One pod in full detail; an empty record when nothing is left of it."""
        ...

    async def run_sandbox(self, spec: SandboxSpec) -> str:
        """Makes and starts a sandbox; answers its id."""
        ...

    async def stop_sandbox(self, sandbox_id: str) -> None:
        """Stops a sandbox with all in it and frees its address. Stopped or gone already is fine."""
        ...

    async def remove_sandbox(self, sandbox_id: str) -> None:
        """Removes a sandbox and its containers. Gone already is fine."""
        ...

    async def create_container(self, sandbox_id: str, spec: ContainerSpec, sandbox: SandboxSpec) -> str: ...

    async def start_container(self, container_id: str) -> None: ...

    async def stop_container(self, container_id: str, grace_s: float) -> None:
        """TERM, then KILL after the grace; returns when it has ended. Gone already is fine."""
        ...

    async def remove_container(self, container_id: str) -> None: ...

    async def exec(self, container_id: str, command: Sequence[str], timeout_s: float) -> tuple[int, str]:
        """Runs a command in a running container; answers its exit code and what it printed.

        Raises:
            RuntimeFailure: it could not be run, or did not end in time.
        """
        ...

    async def exec_url(self, container_id: str, command: Sequence[str], options: StreamOptions) -> str:
        """Where on this node a command in a running container can be begun, by an upgrade, once."""
        ...

    async def attach_url(self, container_id: str, options: StreamOptions) -> str:
        """The same for a running container's own process."""
        ...

    async def forward_url(self, sandbox_id: str, ports: Sequence[int]) -> str:
        """The same for connections to ports of a sandbox."""
        ...

    async def image(self, reference: str) -> ImageInfo | None: ...

    async def images(self) -> Sequence[ImageInfo]: ...

    async def pull(self, reference: str) -> str:
        """Pulls an image; answers its id."""
        ...

    async def set_pod_cidr(self, cidr: str) -> None:
        """Tells the runtime's network which addresses this node's pods have."""
        ...

    async def sweep(self) -> None:
        """Frees what a killed runtime left that belongs to no sandbox. Called now and then."""
        ...

    def events(self) -> AsyncIterator[str]:
        """Uids of pods in which something has changed, until the stream breaks."""
        ...

    async def close(self) -> None: ...
