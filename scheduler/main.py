"""The scheduler process: wiring only."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from podyard.control.daemon import Daemon, DaemonConfig
from scheduler.shell import Scheduler

_PORT = 10259


@dataclass(frozen=True)
class Config(DaemonConfig):
    """`/etc/podyard/config.yaml` of a scheduler.

    Attributes:
        scheduler_name: schedules pods with this `spec.schedulerName`.
    """

    scheduler_name: str = "default-scheduler"


async def main(config: Config, stop: asyncio.Event) -> None:
    """Runs until `stop`."""
    daemon = Daemon(config, component="kube-scheduler", reporter=config.scheduler_name, port=_PORT)
    scheduler = Scheduler(daemon.client, daemon.recorder, name=config.scheduler_name)
    informers = scheduler.informers
    synced = {"informer-sync": lambda: None if informers.synced else "informers are not synced yet"}
    await daemon.run(stop, follow=informers.run, lead=scheduler.run, ready=synced)
