"""The container engine: Docker's SDK behind a few async calls. The only module that imports `docker`.

The SDK blocks, so each call runs in a thread; a cancelled call's request still ends in its thread. What
fails is an `EngineError` with the engine's own words. Knows labels and definitions, decides nothing.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, TypeVar

import docker
import docker.errors
import docker.types
import requests.exceptions

from podyard.cluster.enginehost import LOOPBACK, host_of
from podyard.cluster.enginerows import (
    archive_of,
    bindings,
    by_cluster,
    from_inspect,
    from_list,
    published,
    subnets,
)
from podyard.cluster.errors import ClusterError, PreflightError
from podyard.cluster.plan import Observed, ObservedContainer, ObservedNetwork
from podyard.cluster.roles import LOG_OPTIONS, Container, File
from podyard.cluster.spec import (
    LABEL_CLUSTER,
    LABEL_DEFINITION,
    MTU_OPTION,
    REGISTRY_NAME,
    Placement,
    Port,
    Role,
)

T = TypeVar("T")

_REQUEST_TIMEOUT_S = 120
_BUILD_TIMEOUT_S = 1800
_STOP_GRACE_S = 10

LOOK_AT_ENGINE = "podyard doctor looks at the engine and its host; the engine's own log says more"


class EngineError(ClusterError):
    """The engine refused or could not be reached. Without a `hint` of its own, where to look."""

    def __init__(self, message: str, *, hint: str = LOOK_AT_ENGINE, status: int = 0) -> None:
        super().__init__(message, hint=hint)
        self.status = status


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What the engine says about itself."""

    version: str
    api_version: str
    os_type: str
    kernel: str
    root_directory: str
    memory_bytes: int
    cpus: int
    rootless: bool = False
    podman: bool = False
    architecture: str = ""


class Engine:
    """One engine. `connect` makes it; `close` after use.

    Attributes:
        host: whose ports are the engine's, as this machine reaches them.
    """

    def __init__(self, client: docker.DockerClient, *, host: str = LOOPBACK) -> None:
        self.host = host
        self._client = client
        self._api = client.api
        self._identity = ""

    @classmethod
    async def connect(cls) -> Engine:
        """Reaches the engine that `DOCKER_HOST`, else the current docker context, names.

        Raises:
            PreflightError: it cannot be reached; the hint says what to look at.
        """
        try:
            client, endpoint = await asyncio.to_thread(_new_client)
            return cls(client, host=host_of(endpoint))
        except (docker.errors.DockerException, requests.exceptions.RequestException, OSError) as error:
            raise PreflightError(
                f"the Docker engine cannot be reached: {error}",
                hint="is it running, and may this user talk to it? Try: docker info",
            ) from error

    async def close(self) -> None:
        """Gives back the connections."""
        await asyncio.to_thread(self._client.close)

    async def _call(self, function: Callable[..., T], *arguments: Any, **named: Any) -> T:
        try:
            return await asyncio.to_thread(function, *arguments, **named)
        except docker.errors.APIError as error:
            raise EngineError(str(error.explanation or error), status=error.status_code or 0) from error
        except (docker.errors.DockerException, requests.exceptions.RequestException) as error:
            raise EngineError(f"the Docker engine: {error}") from error

    async def _unless_missing(self, function: Callable[..., T], *arguments: Any, **named: Any) -> T | None:
        try:
            return await self._call(function, *arguments, **named)
        except EngineError as error:
            if error.status == 404:
                return None
            raise

    # What is there

    async def info(self) -> EngineInfo:
        """Version and host facts."""
        info, version = await self._call(self._api.info), await self._call(self._api.version)
        return EngineInfo(
            version=version["Version"],
            api_version=version["ApiVersion"],
            os_type=info["OSType"],
            kernel=info["KernelVersion"],
            root_directory=info["DockerRootDir"],
            memory_bytes=info["MemTotal"],
            cpus=info["NCPU"],
            rootless=any("rootless" in option for option in info.get("SecurityOptions") or ()),
            architecture=info.get("Architecture", ""),
            podman=any("podman" in part["Name"].lower() for part in version.get("Components") or ()),
        )

    async def identity(self) -> str:
        """What tells this engine from every other: its own id, else where it is. Asked for once."""
        if not self._identity:
            info = await self._call(self._api.info)
            self._identity = str(info.get("ID") or f"engine at {self.host}")
        return self._identity

    async def clusters(self) -> dict[str, list[ObservedContainer]]:
        """Containers of every cluster on this engine, by cluster name."""
        return by_cluster(await self._call(self._api.containers, all=True, filters={"label": LABEL_CLUSTER}))

    async def labelled(self, label: str) -> dict[str, str]:
        """Cluster -> value of a label that anything of it has: containers, volumes, network."""
        wanted = {"label": [LABEL_CLUSTER, label]}
        containers, volumes, networks = await asyncio.gather(
            self._call(self._api.containers, all=True, filters=wanted),
            self._call(self._api.volumes, filters=wanted),
            self._call(self._api.networks, filters=wanted),
        )
        rows = [*containers, *(volumes["Volumes"] or ()), *networks]
        return {row["Labels"][LABEL_CLUSTER]: row["Labels"][label] for row in rows}

    async def observe(self, cluster: str) -> Observed:
        """All of one cluster, by label, and the registry."""
        label = {"label": f"{LABEL_CLUSTER}={cluster}"}
        rows, volumes, networks, found = await asyncio.gather(
            self._call(self._api.containers, all=True, filters=label),
            self._call(self._api.volumes, filters=label),
            self._call(self._api.networks, filters=label),
            self._unless_missing(self._api.inspect_container, REGISTRY_NAME),
        )
        network = next((row for row in networks if row["Name"] == cluster), None)
        return Observed(
            network=None if network is None else ObservedNetwork(cluster, subnets(network)[0]),
            containers={container.name: container for container in map(from_list, rows)},
            volumes=frozenset(row["Name"] for row in volumes["Volumes"] or ()),
            registry=None if found is None else from_inspect(found),
        )

    async def inspect(self, name: str) -> ObservedContainer | None:
        """One container, with the time it was started; None when there is none."""
        row = await self._unless_missing(self._api.inspect_container, name)
        return None if row is None else from_inspect(row)

    async def container_id(self, name: str) -> str:
        """A container's id; empty where there is none."""
        row = await self._unless_missing(self._api.inspect_container, name)
        return "" if row is None else str(row["Id"])

    async def published(self, name: str) -> frozenset[Port]:
        """The ports that a container was told to publish, whether or not it runs."""
        row = await self._unless_missing(self._api.inspect_container, name)
        return frozenset() if row is None else published(row)

    async def host_port(self, name: str, port: int) -> int:
        """The host's port that a container's port is published at, as it was asked for; 0 for none."""
        there = await self.published(name)
        return min((found.outside for found in there if found.inside == port), default=0)

    async def subnets(self) -> list[str]:
        """IPv4 subnets of all of the engine's networks."""
        rows = await self._call(self._api.networks)
        return [subnet for row in rows for subnet in subnets(row) if ":" not in subnet]

    async def default_mtu(self) -> int:
        """The MTU that the default bridge has; user-defined networks do not inherit it."""
        row = await self._unless_missing(self._api.inspect_network, "bridge")
        return int(((row or {}).get("Options") or {}).get(MTU_OPTION, 1500))

    # Making and ending

    async def create_network(
        self, cluster: str, placement: Placement, labels: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """The cluster's own bridge network; `labels` are those besides ours."""
        pool = docker.types.IPAMPool(
            subnet=placement.subnet, gateway=placement.gateway, iprange=placement.engine_range
        )
        await self._call(
            self._api.create_network,
            cluster,
            driver="bridge",
            check_duplicate=True,
            ipam=docker.types.IPAMConfig(pool_configs=[pool]),
            options={MTU_OPTION: str(placement.mtu)},
            labels={**labels, LABEL_CLUSTER: cluster},
        )

    async def remove_network(self, name: str) -> None:
        """Disconnects whoever is on it, such as the registry, and removes it."""
        row = await self._unless_missing(self._api.inspect_network, name)
        if row is None:
            return
        for container in row.get("Containers") or {}:
            await self._unless_missing(
                self._api.disconnect_container_from_network, container, name, force=True
            )
        # A stopped container is attached too, and not listed above.
        registry = await self.inspect(REGISTRY_NAME)
        if registry is not None and name in registry.addresses:
            await self._unless_missing(
                self._api.disconnect_container_from_network, REGISTRY_NAME, name, force=True
            )
        await self._unless_missing(self._api.remove_network, name)

    async def create_volume(self, name: str, labels: Mapping[str, str]) -> None:
        """Idempotent."""
        await self._call(self._api.create_volume, name, labels=dict(labels))

    async def remove_volume(self, name: str) -> None:
        """Idempotent."""
        await self._unless_missing(self._api.remove_volume, name, force=True)

    async def create_container(self, container: Container, image: str) -> None:
        """Makes it and puts its files in; not started."""
        await self._call(self._api.create_container, **_creation(self._api, container, image))
        await self.put_files(container.name, container.files)

    async def put_files(self, name: str, files: Iterable[File]) -> None:
        """Writes files into a container. To a tmpfs path it would succeed and be lost."""
        await self._call(self._api.put_archive, name, "/", archive_of(files))

    async def attach(self, name: str, network: str, address: str = "") -> None:
        """Attaches a container to a network; idempotent."""
        try:
            await self._call(
                self._api.connect_container_to_network, name, network, ipv4_address=address or None
            )
        except EngineError as error:
            if "already exists in network" not in str(error):
                raise

    async def start(self, name: str) -> None:
        """Starts a container; idempotent."""
        await self._call(self._api.start, name)

    async def stop(self, name: str) -> None:
        """Asks a running container to end, and kills it after the grace; one in another state is left."""
        found = await self.inspect(name)
        if found is not None and found.state == "running":
            await self._unless_missing(self._api.stop, name, timeout=_STOP_GRACE_S)

    async def unpause(self, name: str) -> None:
        """Thaws a container."""
        await self._call(self._api.unpause, name)

    async def thaw(self, name: str) -> None:
        """Thaws a container that is frozen; one in another state is left."""
        found = await self.inspect(name)
        if found is not None and found.state == "paused":
            await self.unpause(name)

    async def pause(self, name: str) -> None:
        """Freezes a running container; one that is frozen already is left."""
        found = await self.inspect(name)
        if found is not None and found.state == "running":
            await self._call(self._api.pause, name)

    async def kill(self, name: str) -> None:
        """Kills every process of a container, frozen or not; returns when it is dead. Idempotent."""
        found = await self.inspect(name)
        if found is None or found.state not in ("running", "paused"):
            return
        await self._unless_missing(self._api.kill, name)
        await self._unless_missing(self._api.wait, name, timeout=_STOP_GRACE_S)

    async def neighbours(self, cluster: str, name: str) -> list[tuple[str, str]]:
        """(address, link address) of every other container on the cluster's network."""
        network = await self._call(self._api.inspect_network, cluster)
        return [
            (str(entry.get("IPv4Address", "")).partition("/")[0], str(entry.get("MacAddress", "")))
            for entry in (network.get("Containers") or {}).values()
            if entry.get("Name") != name and not str(entry.get("Name", "")).startswith(REGISTRY_NAME)
        ]

    async def in_network_of(self, name: str, argv: list[str], text: str) -> str:
        """Runs a command of our image in a container's network, with the right to change it.

        Args:
            text: the command's standard input.

        Raises:
            EngineError: it failed; the text is what it said.
        """
        found = await self._call(self._api.inspect_container, name)
        image = str(found["Image"])
        return await self._call(_run_helper, self._client, image, name, argv, text)

    async def run_in(self, name: str, argv: list[str]) -> tuple[int, str]:
        """Runs a command in a running container: its exit code and all its output."""
        return await self._call(_run_in, self._api, name, argv)

    async def volumes_of(self, cluster: str, name: str) -> list[str]:
        """Names of the volumes that belong to one container of a cluster."""
        observed = await self.observe(cluster)
        return [volume for volume in observed.volumes if volume.startswith(f"{name}-")]

    async def remove_container(self, name: str) -> None:
        """Kills and removes a container in any state, its anonymous volumes too; idempotent."""
        found = await self.inspect(name)
        if found is None:
            return
        if found.state == "paused":
            await self._unless_missing(self._api.unpause, name)
        await self._unless_missing(self._api.remove_container, name, force=True, v=True)

    def logs(self, name: str, *, follow: bool, tail: int | None) -> Iterator[bytes]:
        """A container's output, in chunks; blocks while it follows.

        Raises:
            EngineError: no such container, or the engine is gone.
        """
        try:
            yield from self._api.logs(
                name,
                stdout=True,
                stderr=True,
                stream=True,
                follow=follow,
                tail="all" if tail is None else tail,
            )
        except docker.errors.APIError as error:
            raise EngineError(str(error.explanation or error), status=error.status_code or 0) from error

    async def copy_out(self, name: str, path: str, to: IO[bytes]) -> bool:
        """Writes a tar of a folder in a container, which need not run; False where there is no such path."""
        answer = await self._unless_missing(self._api.get_archive, name, path)
        if answer is None:
            return False
        await self._call(to.writelines, answer[0])
        return True

    async def last_lines(self, name: str, count: int) -> list[str]:
        """The end of a container's output."""
        output = await self._unless_missing(self._api.logs, name, stdout=True, stderr=True, tail=count)
        return (output or b"").decode(errors="replace").splitlines()

    # Images

    async def image_id(self, reference: str) -> str:
        """The image's id; empty when there is none."""
        row = await self._unless_missing(self._api.inspect_image, reference)
        return "" if row is None else str(row["Id"])

    async def image_labels(self, reference: str) -> dict[str, str]:
        """The image's labels; empty when there is none."""
        row = await self._unless_missing(self._api.inspect_image, reference)
        return dict(((row or {}).get("Config") or {}).get("Labels") or {})

    async def image_names(self) -> list[str]:
        """Every name with a tag of every image."""
        return [name for row in await self._call(self._api.images) for name in row["RepoTags"] or ()]

    async def untagged_images(self, label: str) -> list[str]:
        """Ids of images that carry the label and have no tag."""
        filters = {"label": label, "dangling": True}
        return [row["Id"] for row in await self._call(self._api.images, filters=filters)]

    async def pull(self, reference: str) -> None:
        """Pulls an image."""
        repository, _, tag = reference.rpartition(":")
        await self._call(self._api.pull, repository, tag=tag)

    async def import_image(self, archive: Path, reference: str) -> None:
        """Makes an image of one layer from a root file system's tar."""
        repository, _, tag = reference.rpartition(":")
        answer = await self._call(
            self._api.import_image_from_file, str(archive), repository=repository, tag=tag
        )
        if '"error"' in str(answer):
            raise EngineError(f"the engine could not import {reference}: {answer}")

    async def build(
        self,
        context: IO[bytes],
        reference: str,
        *,
        labels: Mapping[str, str],
        arguments: Mapping[str, str],
        on_line: Callable[[str], None],
    ) -> str:
        """Builds an image from a tar with a Dockerfile; answers its id. `on_line` is called from a thread."""
        return await self._call(_build, self._api, context, reference, dict(labels), dict(arguments), on_line)

    async def remove_image(self, reference: str) -> None:
        """Removes an image that nothing uses; one in use, or none, is left."""
        try:
            await self._unless_missing(self._api.remove_image, reference)
        except EngineError as error:
            # In use, or taken away by someone else at this very moment.
            if error.status != 409 and "unrecognized image" not in str(error).lower():
                raise

    async def push(self, source: str, repository: str, tag: str, on_line: Callable[[str], None]) -> None:
        """Tags `source` as `repository:tag`, pushes it, and takes the tag off again."""
        await self._call(self._api.tag, source, repository, tag)
        try:
            await self._call(_push, self._api, repository, tag, on_line)
        finally:
            await self.remove_image(f"{repository}:{tag}")


def glimpse(timeout_s: float) -> dict[str, list[ObservedContainer]]:
    """As `Engine.clusters`, for whoever cannot wait: each question to the engine has this deadline.

    Raises:
        Exception: whatever the SDK raises, for nobody is to be told.
    """
    client, _ = _new_client(timeout_s)
    try:
        return by_cluster(client.api.containers(all=True, filters={"label": LABEL_CLUSTER}))
    finally:
        client.close()


def _new_client(timeout_s: float = _REQUEST_TIMEOUT_S) -> tuple[docker.DockerClient, str]:
    """A client, and the address of the engine that it talks to; empty for the SDK's default."""
    named = os.environ.get("DOCKER_HOST", "")
    if not named:
        context = docker.ContextAPI.get_current_context()
        if context is not None and context.Host:
            client = docker.DockerClient(
                base_url=context.Host,
                tls=context.TLSConfig or False,
                timeout=timeout_s,
                version="auto",
            )
            client.ping()
            return client, context.Host
    client = docker.from_env(timeout=timeout_s, version="auto")
    client.ping()
    return client, named


def _run_helper(client: docker.DockerClient, image: str, name: str, argv: list[str], text: str) -> str:
    """A throw-away container; what it reads is handed over as an argument, since it has no terminal."""
    try:
        output = client.containers.run(
            image,
            ["sh", "-c", 'printf %s "$0" | "$@"', text, *argv],
            network_mode=f"container:{name}",
            cap_drop=["ALL"],
            cap_add=["NET_ADMIN"],
            labels={"podyard.role": "helper"},
            remove=True,
            stdout=True,
            stderr=True,
        )
    except docker.errors.ContainerError as error:
        said = (error.stderr or b"").decode(errors="replace").strip()
        raise EngineError(f"{' '.join(argv)} in the network of {name}: {said}") from error
    return str(output.decode(errors="replace"))


def _run_in(api: docker.APIClient, name: str, argv: list[str]) -> tuple[int, str]:
    command = api.exec_create(name, argv)["Id"]
    output: bytes = api.exec_start(command)
    return int(api.exec_inspect(command)["ExitCode"]), output.decode(errors="replace")


def _creation(api: docker.APIClient, container: Container, image: str) -> dict[str, Any]:
    """The arguments of the SDK's create_container."""
    on_cluster_network = container.role is not Role.REGISTRY
    host_config = api.create_host_config(
        cap_add=list(container.capabilities),
        cap_drop=list(container.drop_capabilities),
        security_opt=list(container.security_options),
        device_cgroup_rules=list(container.device_rules),
        mounts=[docker.types.Mount(volume.path, volume.name, type="volume") for volume in container.volumes],
        tmpfs=dict(container.tmpfs),
        sysctls=dict(container.sysctls),
        port_bindings=bindings(container.ports),
        network_mode=container.cluster if on_cluster_network else "bridge",
        log_config=docker.types.LogConfig(type="json-file", config=LOG_OPTIONS),
        restart_policy={"Name": "no"},
    )
    networking = None
    if on_cluster_network:
        endpoint = api.create_endpoint_config(ipv4_address=container.address)
        networking = api.create_networking_config({container.cluster: endpoint})
    return {
        "image": image,
        "name": container.name,
        "hostname": container.name,
        "command": list(container.command),
        "environment": dict(container.environment),
        "labels": {**container.labels, LABEL_DEFINITION: container.definition},
        "ports": sorted({(port.inside, port.protocol) for port in container.ports}),
        "host_config": host_config,
        "networking_config": networking,
        "stop_signal": "SIGTERM",
    }


def _build(
    api: docker.APIClient,
    context: IO[bytes],
    reference: str,
    labels: dict[str, str],
    arguments: dict[str, str],
    on_line: Callable[[str], None],
) -> str:
    tail: list[str] = []
    for event in api.build(
        fileobj=context,
        custom_context=True,
        tag=reference,
        labels=labels,
        buildargs=arguments,
        rm=True,
        forcerm=True,
        decode=True,
        timeout=_BUILD_TIMEOUT_S,
    ):
        if "error" in event:
            raise EngineError(
                "the image build failed: " + "\n".join([*tail, str(event["error"])]),
                hint="what failed stands above; podyard build tries again from that step",
            )
        for line in str(event.get("stream", "")).splitlines():
            if line.strip():
                tail = [*tail[-20:], line]
                on_line(line.rstrip())
    return str(api.inspect_image(reference)["Id"])


def _push(api: docker.APIClient, repository: str, tag: str, on_line: Callable[[str], None]) -> None:
    for event in api.push(repository, tag=tag, stream=True, decode=True):
        if "error" in event:
            raise EngineError(
                f"the push failed: {event['error']}",
                hint=f"see what the registry says: podyard logs {REGISTRY_NAME}",
            )
        if event.get("status") and "progress" not in event:
            on_line(" ".join(filter(None, (event.get("id", ""), event["status"]))))
