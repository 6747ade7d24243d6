"""Controllers of one's own as a program beside the cluster: `run` watches, reconciles and writes."""

from __future__ import annotations

from collections.abc import Sequence

from podyard.base.config import TlsFiles
from podyard.base.run import Background
from podyard.client.client import Client
from podyard.client.grpc_transport import GrpcTransport, credentials_of
from podyard.client.informer import InformerSet
from podyard.client.recorder import Recorder
from podyard.control.controller import Controller
from podyard.control.spec import ControllerSpec


async def run(specs: Sequence[ControllerSpec], address: str, tls: TlsFiles, *, name: str) -> None:
    """Runs controllers against an API server.

    Args:
        specs: the controllers; they share their informers.
        address: `HOST:PORT` of the API server's gRPC with client certificates.
        tls: who the program is; `podyard.testing` and a cluster's `pki/admin.*` have the administrator's.
        name: of the program, for the server's logs, field managers and events.

    Raises:
        ApiError: never for a server that is away: that is waited for.
    """
    transport = GrpcTransport([address], credentials_of(tls), user_agent=name)
    client = Client(transport, field_manager=name)
    recorder = Recorder(client, name)
    informers = InformerSet(client)
    controllers = [Controller(spec, client, informers, recorder) for spec in specs]
    try:
        async with Background() as background:
            background.start(recorder.run(), name="events")
            for controller in controllers:
                background.start(controller.run(), name=controller.spec.name)
            await informers.run()
    finally:
        await recorder.flush(1.0)
        await transport.close()
