"""What the workers of a node's pods share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from kubelet.endmessages import EndMessages
from kubelet.handlers import Handlers
from kubelet.images import ImagePuller
from kubelet.podbuild import ClusterNetwork, HostFacts
from kubelet.podstatus import NodeFacts
from kubelet.runtime.base import ObservedPod, Runtime
from kubelet.statuses import StatusWriter
from kubelet.volumes import Lookup, Volumes
from podyard.api.types import Pod, Service


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What every worker of a node shares.

    Attributes:
        starts: bounds how many sandboxes and containers start at once: more gains nothing.
        lookup: (kind, namespace, name) -> object or None, for ConfigMaps and Secrets.
        services: the cluster's Services, once they are known.
        statuses: writes pods' statuses.
        confirm: removes a pod's object once nothing of it runs.
        record: (pod, type, reason, message, field path) records an event.
        tidy: removes logs and cgroups of a pod that is gone.
        network_ready: None, or why pods can't have a network now.
        handlers: carries out probes and lifecycle hooks.
        messages: termination messages; None where containers write no files.
    """

    runtime: Runtime
    images: ImagePuller
    volumes: Volumes
    starts: asyncio.Semaphore
    lookup: Lookup
    services: Callable[[], Awaitable[Iterable[Service]]]
    statuses: StatusWriter
    confirm: Callable[[Pod], Awaitable[None]]
    record: Callable[[Pod, str, str, str, str], None]
    tidy: Callable[[ObservedPod, Pod | None], Awaitable[None]]
    host: Callable[[], HostFacts]
    node: Callable[[], NodeFacts]
    network: ClusterNetwork
    network_ready: Callable[[], str | None]
    handlers: Handlers
    messages: EndMessages | None = None
