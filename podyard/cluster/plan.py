"""From the wish and what exists to the steps between: pure.

The engine's labels are the truth about what exists, so a plan resumes whatever an interrupted one left:
what is there and right is not touched, what is wrong is made anew (volumes stay), what is missing is made.
The steps are in the order to take them; those of one kind may run side by side. Called by
`podyard.cluster.bringup`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Network
from itertools import groupby
from typing import assert_never

from podyard.cluster.errors import SpecError
from podyard.cluster.roles import Container, Volume
from podyard.cluster.spec import ClusterSpec, Role, full_name
from podyard.cluster.wording import counted, named

# As `podyard.cluster.roles` names an etcd member's volume.
_ETCD_DATA = re.compile(rf"(?P<member>.*-{Role.ETCD}-[0-9]+)-data")


@dataclass(frozen=True, slots=True)
class ObservedContainer:
    """A container as the engine has it. `state` is the engine's word: created, running, exited, ..."""

    name: str
    role: str
    state: str
    image_id: str
    definition: str
    addresses: Mapping[str, str] = field(default_factory=dict)
    started_at: str = ""


@dataclass(frozen=True, slots=True)
class ObservedNetwork:
    """The cluster's network as the engine has it."""

    name: str
    subnet: str


@dataclass(frozen=True, slots=True)
class Observed:
    """All of one cluster that the engine has, and the host's registry."""

    network: ObservedNetwork | None = None
    containers: Mapping[str, ObservedContainer] = field(default_factory=dict)
    volumes: frozenset[str] = frozenset()
    registry: ObservedContainer | None = None

    @property
    def exists(self) -> bool:
        """True when anything of the cluster is left."""
        return bool(self.network or self.containers or self.volumes)

    def count(self, role: Role) -> int:
        """Containers of a role, in any state."""
        return sum(1 for container in self.containers.values() if container.role == role.value)

    def meant_by(self, cluster: str, word: str) -> ObservedContainer | None:
        """The container that a user means by its name, with or without the cluster's, or by a role of one."""
        named = self.containers.get(full_name(cluster, word))
        of_role = [container for container in self.containers.values() if container.role == word]
        return named or (of_role[0] if len(of_role) == 1 else None)


@dataclass(frozen=True, slots=True)
class RemoveContainer:
    """Away with a container; its volumes stay."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class RemoveNetwork:
    """Away with the network; nothing may be attached any more."""

    name: str


@dataclass(frozen=True, slots=True)
class CreateNetwork:
    """Makes the cluster's network."""

    name: str


@dataclass(frozen=True, slots=True)
class CreateVolume:
    """Makes a volume and labels it."""

    volume: Volume
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class CreateContainer:
    """Makes a container with its files inside, not started."""

    container: Container


@dataclass(frozen=True, slots=True)
class Connect:
    """Puts a container on the cluster's network; an empty address leaves the choice to the engine."""

    name: str
    network: str
    address: str


@dataclass(frozen=True, slots=True)
class StartContainer:
    """Starts a container that does not run."""

    name: str


@dataclass(frozen=True, slots=True)
class UnpauseContainer:
    """Thaws a container."""

    name: str


Step = (
    RemoveContainer
    | RemoveNetwork
    | CreateNetwork
    | CreateVolume
    | CreateContainer
    | Connect
    | StartContainer
    | UnpauseContainer
)


def resolve_nodes(asked: int | None, observed: Observed, *, meant: int | None, default: int) -> int:
    """How many nodes the cluster shall have.

    Args:
        asked: by the user; None for "as it is".
        meant: what the last `up`, perhaps interrupted, was to reach; None when that is not known.
        default: of a cluster that does not exist yet.

    Raises:
        SpecError: fewer than there are: `up` takes nothing away.
    """
    present = observed.count(Role.WORKER)
    if asked is None:
        return max(present, meant) if meant is not None else present or default
    if asked < present:
        raise SpecError(
            f"the cluster has {counted(present, 'node')} and `up` takes none away",
            hint=f"podyard node remove worker-{present} does, the last one first",
        )
    return asked


def plan(
    spec: ClusterSpec,
    wanted: Sequence[Container],
    observed: Observed,
    *,
    subnet: str,
    image_id: str,
    registry: Container | None = None,
) -> list[Step]:
    """The steps from `observed` to `wanted`; empty when there is nothing to do.

    Args:
        wanted: in the order to start them in.
        subnet: of the cluster's network; one with another subnet is replaced.
        image_id: the engine's id of the image that every container shall run.
        registry: the host's registry, wanted on this network too; None for none.
    """
    removals: list[Step] = []
    # Another subnet: nothing that is attached can stay as it is.
    network_is_wrong = observed.network is not None and observed.network.subnet != subnet
    fresh: set[str] = set()
    for container in wanted:
        reason = _wrong(container, observed.containers.get(container.name), image_id, network_is_wrong)
        if reason:
            removals.append(RemoveContainer(container.name, reason))
        if reason or container.name not in observed.containers:
            fresh.add(container.name)
    steps: list[Step] = list(removals)
    if network_is_wrong:
        steps.append(RemoveNetwork(spec.name))
    if observed.network is None or network_is_wrong:
        steps.append(CreateNetwork(spec.name))
    steps += [
        CreateVolume(volume, container.labels)
        for container in wanted
        for volume in container.volumes
        if volume.name not in observed.volumes
    ]
    if registry is not None:
        steps += _registry_steps(
            spec, registry, observed, network_is_wrong=network_is_wrong, image_id=image_id
        )
    steps += [CreateContainer(container) for container in wanted if container.name in fresh]
    for container in wanted:
        steps += _revival(
            spec, container, None if container.name in fresh else observed.containers[container.name]
        )
    return steps


def etcd_members(observed: Observed) -> int:
    """How many etcd members there are by what the engine has of them: a container, or data alone."""
    data = (_ETCD_DATA.fullmatch(volume) for volume in observed.volumes)
    found = {match["member"] for match in data if match is not None}
    return len(found | {row.name for row in observed.containers.values() if row.role == Role.ETCD.value})


def on_another_image(observed: Observed, image_id: str) -> list[str]:
    """Names, sorted, of the containers that live but have another image than this."""
    return sorted(
        row.name
        for row in observed.containers.values()
        if row.state in {"running", "paused"} and row.image_id != image_id
    )


def as_if_on(observed: Observed, image_id: str) -> Observed:
    """What is observed, with all that lives counted as having this image.

    For a plan to which a newer image alone is no reason to touch what runs well.
    """
    counted = {
        name: replace(observed.containers[name], image_id=image_id)
        for name in on_another_image(observed, image_id)
    }
    return replace(observed, containers={**observed.containers, **counted})


def _wrong(
    container: Container, found: ObservedContainer | None, image_id: str, network_is_wrong: bool
) -> str:
    """Why a found container must be made anew; empty when it may stay."""
    if found is None:
        return ""
    if network_is_wrong:
        return "the network changes"
    if found.image_id != image_id:
        return "the image changed"
    if found.definition != container.definition:
        return "its definition changed"
    if found.state == "created":
        # Interrupted before its start, perhaps before its files were in.
        return "it was never started"
    if found.state in {"dead", "removing"}:
        return f"it is {found.state}"
    return ""


def _revival(spec: ClusterSpec, container: Container, found: ObservedContainer | None) -> list[Step]:
    """What brings one container that is right in every other way to life."""
    if found is None:
        return [StartContainer(container.name)]
    steps: list[Step] = []
    if spec.name not in found.addresses:
        steps.append(Connect(container.name, spec.name, container.address))
    if found.state == "paused":
        steps.append(UnpauseContainer(container.name))
    elif found.state not in {"running", "restarting"}:
        steps.append(StartContainer(container.name))
    return steps


def _registry_steps(
    spec: ClusterSpec, registry: Container, observed: Observed, *, network_is_wrong: bool, image_id: str
) -> list[Step]:
    # The registry is shared and outlives clusters: an older image of it still does its work, so it is left
    # alone.
    found = observed.registry
    steps: list[Step] = []
    if found is not None and found.definition != registry.definition:
        steps.append(RemoveContainer(registry.name, "its definition changed"))
        found = None
    elif found is not None and found.state == "created":
        steps.append(RemoveContainer(registry.name, "it was never started"))
        found = None
    elif found is not None and found.image_id != image_id and found.state != "running":
        steps.append(RemoveContainer(registry.name, "the image changed"))
        found = None
    if found is None:
        steps += [CreateVolume(volume, registry.labels) for volume in registry.volumes]
        steps.append(CreateContainer(registry))
    if found is None or network_is_wrong or spec.name not in found.addresses:
        steps.append(Connect(registry.name, spec.name, ""))
    if found is not None and found.state == "paused":
        steps.append(UnpauseContainer(registry.name))
    elif found is None or found.state != "running":
        steps.append(StartContainer(registry.name))
    return steps


def describe(step: Step) -> str:
    """One step for the user, as part of a list."""
    match step:
        case RemoveContainer(name, reason):
            return f"replace {name} ({reason})"
        case RemoveNetwork(name):
            return f"remove network {name}"
        case CreateNetwork(name):
            return f"create network {name}"
        case CreateVolume(volume):
            return f"create volume {volume.name}"
        case CreateContainer(container):
            return f"create {container.name}"
        case Connect(name, network):
            return f"connect {name} to network {network}"
        case StartContainer(name):
            return f"start {name}"
        case UnpauseContainer(name):
            return f"unpause {name}"
        case _:
            assert_never(step)


def phases(steps: Sequence[Step]) -> list[tuple[str, list[Step]]]:
    """Neighbouring steps of one kind together, each group with a title for the user."""
    groups = [list(alike) for _, alike in groupby(steps, key=type)]
    return [(_title(group), group) for group in groups]


def _title(group: Sequence[Step]) -> str:
    containers = counted(len(group), "container")
    match group[0]:
        case RemoveContainer():
            # Which ones, for what they do stops a while.
            names = [step.name for step in group if isinstance(step, RemoveContainer)]
            return f"replacing {named(names, 'container')}"
        case RemoveNetwork():
            return "removing the old network"
        case CreateNetwork():
            return "creating the network"
        case CreateVolume():
            return f"creating {counted(len(group), 'volume')}"
        case CreateContainer():
            return f"creating {containers}"
        case Connect():
            return f"connecting {containers}"
        case StartContainer():
            return f"starting {containers}"
        case UnpauseContainer():
            return f"thawing {containers}"
        case _:
            assert_never(group[0])


def free_subnets(pool: Sequence[str], taken: Sequence[str]) -> list[str]:
    """The subnets of `pool`, in order, that overlap none of `taken` (all as `a.b.c.d/n`)."""
    used = [IPv4Network(subnet, strict=False) for subnet in taken]
    return [
        candidate
        for candidate in pool
        if not any(IPv4Network(candidate).overlaps(network) for network in used)
    ]
