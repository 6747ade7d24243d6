"""The controller manager process: wiring only."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from controller_manager.nodelifecycle import GRACE_S
from controller_manager.table import controllers
from podyard.client.client import Client
from podyard.client.informer import InformerSet
from podyard.client.recorder import Recorder
from podyard.control.controller import Controller
from podyard.control.daemon import Daemon, DaemonConfig
from podyard.control.spec import ControllerSpec

_PORT = 10257


@dataclass(frozen=True)
class Config(DaemonConfig):
    """`/etc/podyard/config.yaml` of a controller manager.

    Attributes:
        cluster_cidr: range of all pods.
        node_grace_s: how long a node may be silent before it is not ready.
        root_ca: file with the CA that pods trust; empty for the one of `tls`.
    """

    cluster_cidr: str = "10.244.0.0/16"
    root_ca: str = ""
    node_grace_s: float = GRACE_S


class Manager:
    """Runs a set of controllers over shared informers."""

    def __init__(self, specs: Sequence[ControllerSpec], client: Client, recorder: Recorder) -> None:
        self.informers = InformerSet(client)
        self._controllers = [Controller(spec, client, self.informers, recorder) for spec in specs]

    async def run(self) -> None:
        """Runs the controllers; ends by cancellation only."""
        await self.informers.wait_synced()
        # It may have waited for its turn for days: what another wrote last must count.
        await self.informers.refresh()
        async with asyncio.TaskGroup() as group:
            for controller in self._controllers:
                group.create_task(controller.run(), name=controller.spec.name)


async def main(config: Config, stop: asyncio.Event) -> None:
    """Runs until `stop`."""
    ca_pem = Path(config.root_ca or config.tls.ca).read_text(encoding="utf-8")  # noqa: ASYNC240 - once, at start
    daemon = Daemon(
        config, component="kube-controller-manager", reporter="kube-controller-manager", port=_PORT
    )
    specs = controllers(cluster_cidr=config.cluster_cidr, ca_pem=ca_pem, node_grace_s=config.node_grace_s)
    manager = Manager(specs, daemon.client, daemon.recorder)
    informers = manager.informers
    synced = {"informer-sync": lambda: None if informers.synced else "informers are not synced yet"}
    await daemon.run(stop, follow=informers.run, lead=manager.run, ready=synced)
