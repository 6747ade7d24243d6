"""What scheduler and controller manager share: client, leader election, health, orderly end."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from podyard.base import ids
from podyard.base.config import TlsFiles
from podyard.base.health import Check, HealthServer
from podyard.base.run import Background
from podyard.client.client import Client
from podyard.client.grpc_transport import GrpcTransport, credentials_of
from podyard.client.leader import LeaderElection
from podyard.client.recorder import Recorder


@dataclass(frozen=True)
class DaemonConfig:
    """`/etc/podyard/config.yaml` of a component that works through the API server.

    Attributes:
        name: of this process's host, part of the leader's identity.
        apiservers: `host:port` of gRPC with mutual TLS.
        tls: this component's client certificate.
        serving: certificate of its health port; None serves plain HTTP.
    """

    name: str
    apiservers: list[str]
    tls: TlsFiles
    serving: TlsFiles | None = None
    port: int = 0
    leader_elect: bool = True
    log_level: str = "info"


class Daemon:
    """The surroundings of one component.

    Args:
        component: as upstream names it, such as "kube-scheduler".
        reporter: the events' source, such as "default-scheduler".
        lease: name of the leader's Lease.
    """

    def __init__(self, config: DaemonConfig, *, component: str, reporter: str, port: int) -> None:
        self._config = config
        self._transport = GrpcTransport(config.apiservers, credentials_of(config.tls), user_agent=component)
        self.client = Client(self._transport, field_manager=component)
        self.recorder = Recorder(self.client, reporter)
        self._election = LeaderElection(self.client, component, f"{config.name}_{ids.uid()}")
        self._port = config.port or port

    async def run(
        self,
        stop: asyncio.Event,
        *,
        follow: Callable[[], object],
        lead: Callable[[], object],
        ready: Mapping[str, Check],
    ) -> None:
        """Runs until `stop`.

        Args:
            follow: coroutine function that runs always, such as the informers: a standby is warm.
            lead: coroutine function that runs while this process is the leader.
        """
        tls = None if self._config.serving is None else _context(self._config.serving)
        health = HealthServer("0.0.0.0", self._port, ready=ready, tls=tls)
        await health.start()
        try:
            async with Background() as background:
                background.start(self.recorder.run(), name="events")
                background.start(follow(), name="follow")  # type: ignore[arg-type]
                if self._config.leader_elect:
                    background.start(self._election.run(lead), name="leader")  # type: ignore[arg-type]
                else:
                    background.start(lead(), name="lead")  # type: ignore[arg-type]
                await stop.wait()
        finally:
            await self.recorder.flush(1.0)
            await health.stop()
            await self._transport.close()


def _context(tls: TlsFiles) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tls.cert, tls.key)
    return context
