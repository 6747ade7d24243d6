"""What `up` says when it waits in vain: who has ended, and what to do next."""

from __future__ import annotations

import pytest

from podyard.base import clock
from podyard.cluster import bringup
from podyard.cluster.errors import NotReadyError
from podyard.cluster.plan import ObservedContainer
from podyard.cluster.rest import Unreachable
from tests.unit.cluster.notes import Notes

SERVER, NODE = "demo-apiserver-1", "demo-worker-1"


class Engine:
    """Has containers in these states, which have said something or not."""

    def __init__(self, states: dict[str, str], said: list[str]) -> None:
        self._states = states
        self._said = said

    async def inspect(self, name: str) -> ObservedContainer | None:
        state = self._states.get(name)
        return None if state is None else ObservedContainer(name, "", state, "", "")

    async def last_lines(self, name: str, count: int) -> list[str]:
        return self._said if name in self._states else []


async def in_vain(
    states: dict[str, str], *said: str, needed: list[str] | None = None, left_s: float = 60
) -> NotReadyError:
    async def ask() -> None:
        raise Unreachable("the API server does not answer yet")

    with pytest.raises(NotReadyError) as told:
        await bringup._poll(
            Engine(states, list(said)),  # type: ignore[arg-type]
            ask,
            needed or [SERVER],
            clock.real_monotonic_s() + left_s,
            command="podyard --name demo",
        )
    return told.value


async def test_a_container_that_is_gone_is_told_without_what_it_did_not_answer() -> None:
    told = await in_vain({})
    assert str(told) == f"{SERVER} is gone: it was removed while `up` waited for it"
    assert "podyard --name demo up makes it anew" in told.hint


async def test_one_that_has_exited_is_told_with_what_it_said_last() -> None:
    told = await in_vain({SERVER: "exited"}, "it cannot bind", "it ends")
    assert str(told).splitlines() == [
        f"{SERVER} has exited while `up` waited for it",
        "it cannot bind",
        "it ends",
    ]
    assert told.hint == f"see: podyard --name demo logs {SERVER}; podyard --name demo up starts it again"


@pytest.mark.parametrize("states", [{}, {SERVER: "exited"}, {SERVER: "running"}])
async def test_no_line_is_empty_where_nothing_was_said(states: dict[str, str]) -> None:
    assert all(str(await in_vain(states, left_s=0)).splitlines())


async def test_nodes_are_not_waited_for_without_an_api_server() -> None:
    told = await in_vain({NODE: "running"}, needed=[SERVER, NODE])
    assert str(told) == f"{SERVER} is gone: it was removed while `up` waited for {NODE}"


async def test_what_runs_is_told_when_time_is_up_with_the_last_complaint() -> None:
    told = await in_vain({SERVER: "running"}, "it waits for etcd", left_s=0)
    assert str(told) == f"{SERVER} is not ready: the API server does not answer yet\nit waits for etcd"
    assert told.hint == f"see: podyard --name demo logs {SERVER}; podyard --name demo up goes on from here"


@pytest.mark.parametrize(
    ("clusters", "said", "removed"),
    [
        ([], "removing the registry", ["container podyard-registry", "volume podyard-registry"]),
        (["lab"], "the registry stays, as 1 cluster (lab) can pull from it", []),
        (["lab", "one"], "the registry stays, as 2 clusters (lab, one) can pull from it", []),
    ],
)
async def test_the_registry_goes_with_the_last_cluster(clusters, said, removed) -> None:
    did: list[str] = []

    class Host:
        async def clusters(self) -> dict[str, list[ObservedContainer]]:
            return {name: [] for name in clusters}

        async def remove_container(self, name: str) -> None:
            did.append(f"container {name}")

        async def remove_volume(self, name: str) -> None:
            did.append(f"volume {name}")

    told = Notes()
    await bringup.remove_registry(Host(), told)  # type: ignore[arg-type]
    assert ([*told.steps, *told.notes], did) == ([said], removed)
