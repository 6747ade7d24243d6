"""`kill -9` of anything at any moment of a pod's life; afterwards everything is as it should be.

A seed (printed; `PODYARD_KILL_SEED` repeats one) pairs victims with moments. While it goes on, a
ledger writes and watches. At the end: every write and watch event is accounted for, every pod that
should run runs and answers from the other node, and once all are deleted no trace is on any node.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import pytest

from podyard.api import errors
from podyard.api.errors import ApiError
from podyard.api.types import Namespace, Pod, ServiceAccount
from podyard.client.client import Client
from podyard.client.informer import Informer, key_of
from tests.cluster.ledger import Ledger
from tests.cluster.live import PROCESSES, Live, docker, eventually_async, leftovers

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PAIRS = 30
CONTAINERS = ("etcd", "apiserver", "scheduler", "controller-manager", "worker")
VICTIMS = (*PROCESSES, *(f"{role} container" for role in CONTAINERS))
MOMENTS = ("before create", "created", "bound", "sandbox", "started", "running", "deleting", "deleted")
# A scheduler's successor waits for its lease: 15 s, and then it starts.
POD_DEADLINE_S = 120.0
SIDE_BY_SIDE = 2


@dataclass(frozen=True)
class Pair:
    number: int
    victim: str
    moment: str
    delay_s: float
    instance: int

    @property
    def pod(self) -> str:
        return f"kill-{self.number}"

    def __str__(self) -> str:
        return f"{self.number}: {self.victim} / {self.moment} + {self.delay_s:.2f} s"


def pairs_of(seed: int) -> list[Pair]:
    """The pairs of a seed: every kind of victim at least twice, every moment at least three times."""
    source = random.Random(seed)
    victims = [*VICTIMS * 2, *source.choices(VICTIMS, k=PAIRS - 2 * len(VICTIMS))]
    moments = [*MOMENTS * 3, *source.choices(MOMENTS, k=PAIRS - 3 * len(MOMENTS))]
    source.shuffle(victims)
    source.shuffle(moments)
    return [
        Pair(number, victim, moment, source.random() * 0.4, source.randrange(1000))
        for number, (victim, moment) in enumerate(zip(victims, moments, strict=True))
    ]


def pod_of(name: str, namespace: str) -> Pod:
    """Serves its own name; has a volume on disk, one in memory and a few lines of log."""
    script = (
        "cp /etc/hostname /www/index.html; echo started; "
        "trap 'echo ending; sleep 0.5; exit 0' TERM; httpd -f -p 8080 -h /www & wait"
    )
    return Pod(
        metadata={"name": name, "namespace": namespace},
        spec={
            "terminationGracePeriodSeconds": 3,
            "containers": [
                {
                    "name": "main",
                    "image": "busybox",
                    "command": ["sh", "-c", script],
                    "resources": {"requests": {"cpu": {"string": "10m"}, "memory": {"string": "8Mi"}}},
                    "volumeMounts": [
                        {"name": "www", "mountPath": "/www"},
                        {"name": "memory", "mountPath": "/memory"},
                    ],
                }
            ],
            "volumes": [
                {"name": "www", "volumeSource": {"emptyDir": {}}},
                {"name": "memory", "volumeSource": {"emptyDir": {"medium": "Memory"}}},
            ],
        },
    )


def is_ready(pod: Pod | None) -> bool:
    return pod is not None and any(
        condition.type == "Ready" and condition.status == "True" for condition in pod.status.conditions
    )


def has_sandbox(pod: Pod) -> bool:
    return any(
        condition.type == "PodReadyToStartContainers" and condition.status == "True"
        for condition in pod.status.conditions
    )


@dataclass
class Chaos:
    """Runs pairs against a cluster."""

    live: Live
    client: Client
    pods: Informer[Pod]
    namespace: str
    etcd: asyncio.Lock = field(default_factory=asyncio.Lock)
    nodes: dict[str, asyncio.Lock] = field(default_factory=dict)
    created: set[str] = field(default_factory=set)
    restarts_allowed: Counter[str] = field(default_factory=Counter)
    started_s: float = field(default_factory=time.monotonic)

    def say(self, text: str) -> None:
        print(f"[{time.monotonic() - self.started_s:6.1f}] {text}", flush=True)

    def pod(self, name: str) -> Pod | None:
        return next((pod for pod in self.pods if key_of(pod) == (self.namespace, name)), None)

    async def until(self, pair: Pair, good: object) -> None:
        """Waits until `good(pod or None)`."""
        assert callable(good)

        async def look() -> str:
            pod = self.pod(pair.pod)
            return "" if good(pod) else f"{pair}: pod is {'gone' if pod is None else pod}"

        await eventually_async(look, lambda text: not text, within_s=POD_DEADLINE_S)

    async def run(self, pair: Pair) -> None:
        """One pod's life with one kill in it."""
        if pair.moment == "before create":
            await self.strike(pair)
        self.created.add(pair.pod)
        await self.retried(lambda: self.client.create(pod_of(pair.pod, self.namespace)))
        moments = {
            "created": lambda pod: pod is not None,
            "bound": lambda pod: pod is not None and pod.spec.nodeName,
            "sandbox": lambda pod: pod is not None and pod.spec.nodeName,
            "started": lambda pod: pod is not None and has_sandbox(pod),
            "running": is_ready,
        }
        if pair.moment in moments:
            await self.until(pair, moments[pair.moment])
            if pair.moment in ("sandbox", "started"):
                await asyncio.sleep(pair.delay_s)
            await self.strike(pair)
        if pair.moment in ("deleting", "deleted"):
            await self.until(pair, is_ready)
            await self.retried(lambda: self.client.delete(Pod, pair.pod, self.namespace))
            if pair.moment == "deleted":
                await self.until(pair, lambda pod: pod is None)
            else:
                await asyncio.sleep(pair.delay_s)
            await self.strike(pair)
            await self.until(pair, lambda pod: pod is None)
        else:
            await self.until(pair, is_ready)
        self.say(f"ended right: {pair}")

    async def retried(self, call: object) -> None:
        """A user's write, repeated until it is known to have happened."""
        assert callable(call)
        deadline_s = time.monotonic() + POD_DEADLINE_S
        while True:
            try:
                await call()
                return
            except (errors.AlreadyExists, errors.NotFound):
                return
            except ApiError:
                assert time.monotonic() < deadline_s
                await asyncio.sleep(0.2)

    async def strike(self, pair: Pair) -> None:
        """Kills the victim; of several instances the one nearest to the pod."""
        role = (
            PROCESSES[pair.victim][0] if pair.victim in PROCESSES else pair.victim.removesuffix(" container")
        )
        name = self.instance(role, pair)
        async with self.etcd if role == "etcd" else self.nodes.setdefault(name, asyncio.Lock()):
            self.say(f"kill in {name}: {pair}")
            self.allow_restarts(pair.victim, name)
            if pair.victim in PROCESSES:
                await asyncio.to_thread(self.live.kill, name, pair.victim)
            else:
                await asyncio.to_thread(docker, "kill", name)
                await asyncio.sleep(pair.delay_s)
                await asyncio.to_thread(docker, "start", name)
            if role == "etcd":
                await self.member_is_back(name)

    def allow_restarts(self, victim: str, node: str) -> None:
        """The end of a node ends its pods. A kubelet or runtime may be killed between a container's
        creation and its start: the next attempt then counts as a restart, as upstream's does."""
        for name in self.created:
            pod = self.pod(name)
            here = pod is None or pod.spec.nodeName in ("", node)
            starting = victim in ("kubelet", "containerd") and not is_ready(pod)
            if here and (victim == "worker container" or starting):
                self.restarts_allowed[name] += 1

    def instance(self, role: str, pair: Pair) -> str:
        if role == "etcd":
            return f"{self.live.name}-etcd-{pair.instance % 3 + 1}"
        if role == "worker":
            pod = self.pod(pair.pod)
            return (pod.spec.nodeName if pod else "") or f"{self.live.name}-worker-{pair.instance % 2 + 1}"
        return f"{self.live.name}-{role}-1"

    async def member_is_back(self, name: str) -> None:
        """One member at a time: two of three down is no cluster."""

        async def look() -> bool:
            script = "curl -s -m 2 http://127.0.0.1:2381/health || true"
            with suppress(AssertionError):
                return '"true"' in await asyncio.to_thread(self.live.shell, name, script)
            return False

        await eventually_async(look, within_s=60, what=f"{name} is healthy")


async def run_all(chaos: Chaos, pairs: list[Pair]) -> None:
    queue = list(reversed(pairs))

    async def lane() -> None:
        while queue:
            await chaos.run(queue.pop())

    async with asyncio.TaskGroup() as group:
        for _ in range(SIDE_BY_SIDE):
            group.create_task(lane())


async def every_pod_answers(chaos: Chaos) -> None:
    """From the other node, by its present address, with its own name."""
    for name in [pod.metadata.name for pod in chaos.pods]:

        async def look(name: str = name) -> str:
            pod = chaos.pod(name)
            assert pod is not None
            other = next(node for node in chaos.live.workers() if node != pod.spec.nodeName)
            fetch = f"curl -s -m 3 http://{pod.status.podIP}:8080/ || true"
            return await asyncio.to_thread(chaos.live.shell, other, fetch)

        await eventually_async(
            look, lambda text, name=name: text.strip() == name, within_s=60, what=f"{name} answers"
        )


async def nothing_is_left(chaos: Chaos) -> None:
    for node in chaos.live.workers():

        async def look(node: str = node) -> list[str]:
            return await asyncio.to_thread(leftovers, chaos.live, node)

        await eventually_async(look, lambda found: not found, within_s=60, what=f"{node} has")


async def begin(client: Client, namespace: str) -> None:
    await client.create(Namespace(metadata={"name": namespace}))

    async def account() -> bool:
        with suppress(errors.NotFound):
            return bool((await client.get(ServiceAccount, "default", namespace)).metadata.name)
        return False

    await eventually_async(account, what="default service account")


@pytest.fixture
def seed() -> int:
    found = int(os.environ.get("PODYARD_KILL_SEED") or random.SystemRandom().randrange(10**6))
    print(f"\nPODYARD_KILL_SEED={found}", flush=True)
    return found


@pytest.fixture
def namespace(live: Live, seed: int) -> Iterator[str]:
    """The name of a namespace. Gone even when the test fails: others would find its pods on the nodes."""
    name = f"kill-{seed}-{os.getpid()}"
    yield name
    live.podyard("up")
    live.kubectl("delete", "namespace", name, "--ignore-not-found", "--timeout=80s")


async def test_anything_may_be_killed_at_any_moment(live: Live, seed: int, namespace: str) -> None:
    transports = [live.transport() for _ in range(3)]
    chaos_client, writer, watcher = (live.client(transport) for transport in transports)
    pods = Informer(chaos_client, Pod, namespace=namespace)
    await begin(chaos_client, namespace)
    ledger = Ledger(writer, watcher, namespace)
    await ledger.start()
    chaos = Chaos(live, chaos_client, pods, namespace)
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        watches = [group.create_task(pods.run()), group.create_task(ledger.watch_for_ever())]
        writes = group.create_task(ledger.write_for_ever(stop))
        await run_all(chaos, pairs_of(seed))
        stop.set()
        await writes
        await ledger.catch_up()
        chaos.say(
            f"{len(ledger.written)} writes, {ledger.unknown_outcomes} of them looked up; "
            f"{len(ledger.seen)} events, {ledger.resumes} resumes"
        )
        assert ledger.problems() == []
        # Nothing is killed any more: all that should run does, now and from now on.
        await eventually_async(all_ready(chaos), what="all pods ready", within_s=POD_DEADLINE_S)
        await every_pod_answers(chaos)
        restarts = {pod.metadata.name: pod.status.containerStatuses[0].restartCount for pod in pods}
        chaos.say(f"{len(pods)} pods run, restarts {restarts}")
        assert {name: count for name, count in restarts.items() if count > chaos.restarts_allowed[name]} == {}
        await chaos.retried(lambda: chaos_client.delete(Namespace, namespace))
        gone = namespace_gone(chaos_client, namespace)
        await eventually_async(gone, within_s=POD_DEADLINE_S, what="namespace gone")
        await nothing_is_left(chaos)
        chaos.say("no leftovers")
        for task in watches:
            task.cancel()
    for transport in transports:
        await transport.close()


def all_ready(chaos: Chaos):  # type: ignore[no-untyped-def]
    async def look() -> bool:
        return all(is_ready(pod) for pod in chaos.pods)

    return look


def namespace_gone(client: Client, namespace: str):  # type: ignore[no-untyped-def]
    async def look() -> bool:
        try:
            await client.get(Namespace, namespace)
        except errors.NotFound:
            return True
        except ApiError:
            pass
        return False

    return look
