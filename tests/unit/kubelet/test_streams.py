"""What a kubelet makes of a request for a stream: options, ports, which container, texts of refusals."""

from __future__ import annotations

from typing import Any

import pytest

from kubelet.runtime.base import (
    EXITED,
    RUNNING,
    ObservedPod,
    RuntimeContainer,
    RuntimeFailure,
    Sandbox,
    StreamOptions,
)
from kubelet.runtime.hollow import HollowRuntime
from kubelet.streams import (
    StreamRefused,
    StreamRequest,
    options_of,
    ports_of,
    refusal_of,
    stream_url,
)
from podyard.api.types import Pod

POD = Pod(
    metadata={"name": "web", "namespace": "default", "uid": "u1"},
    spec={
        "initContainers": [{"name": "first"}],
        "containers": [{"name": "main"}, {"name": "term", "tty": True}],
    },
)


class Runtime:
    """Answers what it was asked."""

    async def exec_url(self, container_id: str, command: Any, options: StreamOptions) -> str:
        return f"exec {container_id} {command} {options}"

    async def attach_url(self, container_id: str, options: StreamOptions) -> str:
        return f"attach {container_id} {options}"

    async def forward_url(self, sandbox_id: str, ports: Any) -> str:
        return f"forward {sandbox_id} {ports}"


def observed(*containers: tuple[str, int, str], ready: bool = True) -> ObservedPod:
    """The newest first, as runtimes are seen."""
    made = tuple(
        RuntimeContainer(f"{name}-{attempt}", "s1", "u1", name, attempt, state, 0.0)
        for name, attempt, state in containers
    )
    return ObservedPod(
        "u1", sandboxes=(Sandbox("s1", "u1", "web", "default", 0, ready, 0.0),), containers=made
    )


def request(action: str, container: str = "main", uid: str = "", **query: str) -> StreamRequest:
    return StreamRequest(action, "default", "web", container, uid, list(query.items()))


async def url(asked: StreamRequest, seen: ObservedPod, runtime: Any = None) -> str:
    return await stream_url(runtime or Runtime(), POD, seen, asked)


@pytest.mark.parametrize(
    ("query", "options"),
    [
        ({"input": "1", "output": "1", "error": "1"}, StreamOptions(True, True, True, False)),
        ({"output": "1", "error": "1", "tty": "1"}, StreamOptions(False, True, False, True)),
        ({"output": "1", "input": "true"}, StreamOptions(False, True, False, False)),
    ],
)
def test_options_are_ones(query, options):
    assert options_of(request("exec", **query)) == options


@pytest.mark.parametrize("query", [{}, {"tty": "1"}, {"error": "1", "tty": "1"}])
def test_no_stream_at_all_is_refused(query):
    with pytest.raises(
        StreamRefused, match="you must specify at least 1 of stdin, stdout, stderr"
    ) as refused:
        options_of(request("exec", **query))
    assert refused.value.status == 400


def test_ports_are_parted_by_commas():
    assert ports_of(StreamRequest("portForward", "d", "w", query=[("port", "80,81"), ("port", "9")])) == [
        80,
        81,
        9,
    ]
    assert ports_of(request("portForward")) == []
    for text in ("0", "65536", "x", "", "-1", "8 0"):
        with pytest.raises(StreamRefused) as refused:
            ports_of(request("portForward", port=text))
        assert refused.value.status == 400


async def test_the_newest_container_is_meant():
    seen = observed(("main", 1, RUNNING), ("main", 0, EXITED))
    assert (await url(request("exec", command="id", output="1"), seen)).startswith("exec main-1 ['id']")


@pytest.mark.parametrize("seen", [observed(), observed(("main", 0, EXITED))])
@pytest.mark.parametrize(
    ("action", "text"),
    [("exec", 'container not found ("main")'), ("attach", "container main not found in pod web_default")],
)
async def test_what_does_not_run_is_not_found(action, text, seen):
    with pytest.raises(StreamRefused) as refused:
        await url(request(action, output="1"), seen)
    assert (refused.value.status, refused.value.text) == (500, text)


async def test_attach_takes_the_terminal_of_the_container_whatever_is_asked():
    seen = observed(("main", 0, RUNNING), ("term", 0, RUNNING))
    query = {"input": "1", "output": "1", "error": "1"}
    assert await url(request("attach", **query), seen) == f"attach main-0 {StreamOptions(True, True, True)}"
    wanted = StreamOptions(True, True, False, True)
    assert await url(request("attach", "term", **query), seen) == f"attach term-0 {wanted}"
    asked = request("attach", tty="1", **query)
    assert await url(asked, seen) == f"attach main-0 {StreamOptions(True, True, False)}"


async def test_ports_need_a_sandbox_that_is_ready():
    assert await url(request("portForward", ""), observed()) == "forward s1 []"
    with pytest.raises(StreamRefused, match=r'pod not found \("web_default"\)'):
        await url(request("portForward", ""), observed(ready=False))


async def test_another_pod_of_the_name_is_not_meant():
    assert await url(request("portForward", "", uid="u1"), observed())
    with pytest.raises(StreamRefused, match="pod not found") as refused:
        await url(request("portForward", "", uid="u0"), observed())
    assert refused.value.status == 404


@pytest.mark.parametrize(
    ("code", "status", "text"),
    [
        ("NOT_FOUND", 404, "rpc error: code = NotFound desc = gone"),
        ("RESOURCE_EXHAUSTED", 429, "rpc error: code = ResourceExhausted desc = gone"),
        ("UNKNOWN", 500, "rpc error: code = Unknown desc = gone"),
    ],
)
def test_a_runtimes_failure_is_told_as_upstream_does(code, status, text):
    refused = refusal_of(RuntimeFailure("gone", code))
    assert (refused.status, refused.text) == (status, text)


@pytest.mark.parametrize("action", ["exec", "attach", "portForward"])
async def test_a_hollow_node_says_that_it_runs_nothing(action):
    seen = observed(("main", 0, RUNNING))
    runtime = HollowRuntime()
    with pytest.raises(RuntimeFailure):
        await url(request(action, output="1"), seen, runtime)
