"""Exec, attach and port-forward over gRPC, through the real API server and the real kubelet's server."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from podyard.api.types import rpc, rpc_core_v1
from tests.component.apiserver.served import Served
from tests.component.apiserver.stream_world import (
    DEADLINE_S,
    World,
)


class Calls:
    """gRPC's streams."""

    def __init__(self, served: Served) -> None:
        self._served = served

    def open(self, verb: str, answer: type[Any]) -> Any:
        request = getattr(rpc_core_v1, f"Pod{verb}Request")
        return self._served.channel.stream_stream(
            f"/podyard.core.v1.PodService/{verb}",
            request_serializer=request.SerializeToString,
            response_deserializer=answer.FromString,
        )()


def exec_start(*command: str, **options: Any) -> Any:
    start = {"namespace": "default", "name": "web", "options": {"command": command, **options}}
    return rpc_core_v1.PodExecRequest(start=start)


async def answers(call: Any) -> list[Any]:
    async with asyncio.timeout(DEADLINE_S):
        return [answer async for answer in call]


async def test_exec_over_grpc(world: World) -> None:
    call = Calls(world.served).open("Exec", rpc.CommandOutput)
    await call.write(exec_start("exit", "3", stdout=True, stderr=True))
    found = await answers(call)
    assert [answer.WhichOneof("output") for answer in found] == ["stdout", "stderr", "status"]
    assert (found[0].stdout, found[1].stderr) == (b"out\n", b"err\n")
    assert found[2].status.details.causes[0].message == "3"
    call = Calls(world.served).open("Exec", rpc.CommandOutput)
    await call.write(exec_start("cat", stdin=True, stdout=True))
    for _ in range(20):
        await call.write(rpc_core_v1.PodExecRequest(stdin=b"x" * 50_000))
    await call.done_writing()
    found = await answers(call)
    assert b"".join(answer.stdout for answer in found) == b"x" * 1_000_000
    assert found[-1].status.status == "Success"
    await world.quiet()


async def test_attach_and_sizes_over_grpc(world: World) -> None:
    call = Calls(world.served).open("Attach", rpc.CommandOutput)
    start = {"namespace": "default", "name": "web", "options": {"stdin": True, "stdout": True}}
    await call.write(rpc_core_v1.PodAttachRequest(start=start))
    await call.write(rpc_core_v1.PodAttachRequest(stdin=b"hello"))
    await call.done_writing()
    assert (await answers(call))[0].stdout == b"hello"
    call = Calls(world.served).open("Exec", rpc.CommandOutput)
    await call.write(exec_start("sizes", stdout=True, tty=True))
    for size in ({"width": 80, "height": 24}, {"width": 100, "height": 50}):
        await call.write(rpc_core_v1.PodExecRequest(resize=size))
    assert (await answers(call))[0].stdout == b"[(80, 24), (100, 50)]"


async def test_ports_over_grpc(world: World) -> None:
    """Several connections at once, one refused, one closed by the pod: the others go on."""
    call = Calls(world.served).open("PortForward", rpc.ConnectionEvent)
    request = rpc_core_v1.PodPortForwardRequest
    await call.write(request(start={"namespace": "default", "name": "web"}))
    for connection, port in ((1, 7), (2, 81), (3, 9), (4, 7), (5, 0), (1, 7)):
        await call.write(request(open={"connection": connection, "port": port}))
    for connection in (1, 4):
        await call.write(request(data={"connection": connection, "data": b"to %d" % connection}))
    await call.write(request(end=1))
    found: dict[int, list[Any]] = {}
    async with asyncio.timeout(DEADLINE_S):
        while sum(map(len, found.values())) < 7:
            answer = await call.read()
            found.setdefault(answer.connection, []).append(answer)
    assert found[2][0].error == "nobody listens on 81"
    assert found[3][0].closed
    assert found[4][0].data == b"to 4"
    assert found[5][0].error == "port 0 must be > 0 and <= 65535"
    said = {answer.WhichOneof("event"): answer for answer in found[1]}
    assert said["error"].error == "connection 1 is open already"
    assert said["data"].data == b"to 1"
    assert said["closed"].closed
    await call.write(request(data={"connection": 4, "data": b"still"}))
    assert (await call.read()).data == b"still"
    await call.done_writing()
    assert await call.read() is grpc.aio.EOF
    await world.quiet()


@pytest.mark.parametrize(
    ("first", "code", "text"),
    [
        (exec_start("cat", container="x", stdout=True), "INVALID_ARGUMENT", "container x is not valid"),
        (rpc_core_v1.PodExecRequest(stdin=b"x"), "INVALID_ARGUMENT", "must be its start"),
        (
            rpc_core_v1.PodExecRequest(start={"namespace": "default", "name": "none"}),
            "NOT_FOUND",
            'pods "none" not found',
        ),
        (exec_start("cat"), "INTERNAL", "at least 1 of stdin, stdout, stderr"),
    ],
)
async def test_refusals_over_grpc(world: World, first: Any, code: str, text: str) -> None:
    call = Calls(world.served).open("Exec", rpc.CommandOutput)
    await call.write(first)
    with pytest.raises(grpc.aio.AioRpcError, match=text) as refused:
        await answers(call)
    assert refused.value.code().name == code


async def test_create_is_asked_for_over_grpc(world: World) -> None:
    world.authorizer.strict = True
    call = Calls(world.served).open("Exec", rpc.CommandOutput)
    await call.write(exec_start("cat", stdout=True))
    with pytest.raises(grpc.aio.AioRpcError, match='cannot create resource "pods/exec"'):
        await answers(call)


@pytest.mark.parametrize("verb", ["Exec", "PortForward"])
async def test_a_call_that_is_cancelled_leaves_nothing(world: World, verb: str) -> None:
    if verb == "Exec":
        call = Calls(world.served).open("Exec", rpc.CommandOutput)
        await call.write(exec_start("yes", stdin=True, stdout=True))
        await call.read()
    else:
        call = Calls(world.served).open("PortForward", rpc.ConnectionEvent)
        request = rpc_core_v1.PodPortForwardRequest
        await call.write(request(start={"namespace": "default", "name": "web"}))
        await call.write(request(open={"connection": 1, "port": 7}))
        await call.write(request(data={"connection": 1, "data": b"x"}))
        await call.read()
    assert world.node.runtime.open == 1
    call.cancel()
    await world.quiet()
