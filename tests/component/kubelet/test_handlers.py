"""Handlers of probes and hooks against real servers on loopback."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import grpc.aio
import pytest
from aiohttp import web
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from kubelet.handlers import NodeHandlers
from kubelet.probes import Outcome
from kubelet.runtime.hollow import HollowRuntime
from podyard.api.types import Container, core_v1

HOST = "127.0.0.1"


@pytest.fixture
async def handlers() -> AsyncIterator[NodeHandlers]:
    made = NodeHandlers(HollowRuntime())
    yield made
    await made.close()


@pytest.fixture
async def http_port() -> AsyncIterator[int]:
    async def answer(request: web.Request) -> web.Response:
        if request.path == "/slow":
            await asyncio.sleep(60)
        if request.path == "/agent":
            return web.Response(
                status=200 if request.headers["User-Agent"].startswith("kube-probe/") else 400
            )
        return web.Response(status=int(request.path.strip("/")), headers={"Location": "/500"})

    application = web.Application()
    application.router.add_get("/{any:.*}", answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, HOST, 0)
    await site.start()
    yield runner.addresses[0][1]
    await runner.cleanup()


@pytest.fixture
def closed_port() -> int:
    with socket.socket() as found:
        found.bind((HOST, 0))
        return int(found.getsockname()[1])


def container(port: int) -> Container:
    made = Container(name="web")
    made.ports.add(name="http", containerPort=port)
    return made


def http_get(path: str) -> core_v1.ProbeHandler:
    return core_v1.ProbeHandler(httpGet={"path": path, "port": {"type": 1, "strVal": "http"}})


def tcp(port: int) -> core_v1.ProbeHandler:
    return core_v1.ProbeHandler(tcpSocket={"port": {"type": 0, "intVal": port}})


@pytest.mark.parametrize(
    ("path", "ok", "text"),
    [
        ("/200", True, ""),
        ("agent", True, ""),
        ("/302", True, ""),  # not followed
        ("/404", False, "HTTP probe failed with statuscode: 404"),
        ("/503", False, "HTTP probe failed with statuscode: 503"),
    ],
)
async def test_http(handlers, http_port, path, ok, text):
    outcome = await handlers.run(http_get(path), container(http_port), "c1", HOST, 5.0)
    assert outcome.ok == ok
    if not ok:
        assert outcome.text == text


async def test_what_takes_too_long_has_failed(handlers, http_port):
    outcome = await handlers.run(http_get("/slow"), container(http_port), "c1", HOST, 0.2)
    url = f"http://{HOST}:{http_port}/slow"
    text = f'Get "{url}": context deadline exceeded (Client.Timeout exceeded while awaiting headers)'
    assert outcome == Outcome(False, text)


async def test_nobody_there(handlers, closed_port):
    refused = f"dial tcp {HOST}:{closed_port}: connect: connection refused"
    outcome = await handlers.run(http_get("/"), container(closed_port), "c1", HOST, 5.0)
    assert outcome == Outcome(False, f'Get "http://{HOST}:{closed_port}/": {refused}')
    assert await handlers.run(tcp(closed_port), container(1), "c1", HOST, 5.0) == Outcome(False, refused)


@pytest.mark.parametrize("host", ["a..b", "x" * 70 + ".local"])
async def test_a_host_that_can_not_be_is_a_failure_and_no_crash(handlers, host):
    for handler in (
        core_v1.ProbeHandler(httpGet={"host": host, "port": {"type": 0, "intVal": 1}}),
        core_v1.ProbeHandler(tcpSocket={"host": host, "port": {"type": 0, "intVal": 1}}),
    ):
        outcome = await handlers.run(handler, container(1), "c1", HOST, 5.0)
        assert not outcome.ok
        assert outcome.text


async def test_a_port_that_takes_connections_is_well(handlers, http_port):
    assert (await handlers.run(tcp(http_port), container(1), "c1", HOST, 5.0)).ok


async def test_the_standard_health_service(handlers):
    server = grpc.aio.server()
    servicer = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    port = server.add_insecure_port(f"{HOST}:0")
    await server.start()
    probe = core_v1.ProbeHandler(grpc={"port": port, "service": ""})
    assert (await handlers.run(probe, container(1), "c1", HOST, 5.0)).ok
    await servicer.set("", health_pb2.HealthCheckResponse.NOT_SERVING)
    outcome = await handlers.run(probe, container(1), "c1", HOST, 5.0)
    assert outcome == Outcome(False, 'service unhealthy (responded with "NOT_SERVING")')
    await server.stop(None)
    assert not (await handlers.run(probe, container(1), "c1", HOST, 5.0)).ok
