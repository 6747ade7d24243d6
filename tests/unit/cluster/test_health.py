"""What a component's answer to "are you ready?" is taken for."""

from __future__ import annotations

import asyncio

import pytest

from podyard.cluster import health
from podyard.cluster.errors import ClusterError


@pytest.mark.parametrize(
    ("code", "output", "problem"),
    [
        (0, "ok\n200", ""),
        (0, '{"health":"true","reason":""}\n200', ""),
        (0, '{"health":"false","reason":"RAFT NO LEADER"}\n503', "RAFT NO LEADER"),
        (0, "[+]ping ok\n[-]informers failed: reason withheld\nreadyz check failed\n500", "informers failed"),
        (0, "[-]a failed: reason withheld\n[-]b failed: late\n500", "a failed; b failed: late"),
        (0, "gateway\n502", "its health check answers 502"),
        (0, "[]\n503", "its health check answers 503"),
        (0, "\n404", "its health check answers 404"),
        (7, "curl: (7) Failed to connect\n000", "does not answer its health check"),
        (28, "curl: (28) Operation timed out\n000", "does not answer its health check"),
    ],
)
def test_an_answer(code, output, problem):
    assert health.said(code, output) == problem


@pytest.mark.parametrize("role", list(health.QUESTIONS))
def test_a_container_that_stops_in_the_midst_of_it_is_a_problem(role):
    class Engine:
        async def run_in(self, name: str, argv: list[str]) -> tuple[int, str]:
            assert argv[-1] == health.QUESTIONS[role]
            raise ClusterError(f"{name} is not running", hint="start it")

    assert asyncio.run(health.problem(Engine(), "demo-etcd-1", role)) == "demo-etcd-1 is not running"
