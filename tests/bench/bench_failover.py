"""How long until things go on: `python -m tests.bench.bench_failover [--keep NAME]`.

Brings a cluster of its own up (two nodes, three etcd members, a grace of 15 s and a toleration of 10 s;
the image must be there). First a Service's new port until its rule stands on a node; then each part is
killed (kill -9 of the process, three times, the median is shown), and the time runs from the kill until what
it does is done again. Last a node dies under a Deployment.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from podyard.api import errors
from podyard.api.types import ConfigMap, Node, Pod, Service, apps_v1
from podyard.client.client import Client
from tests.bench.bench_cluster import table
from tests.cluster.live import PROCESSES, Live
from tests.cluster.scenario import deployment, etcd_leader, is_ready, service, staying

GRACE_S, TOLERATION_S = 15, 10
TIMES = 3
DEADLINE_S = 120.0
_PAUSE_S = 0.01
_RETRYABLE = (errors.Unavailable, errors.Timeout, errors.ServerTimeout, errors.InternalError)
# Says when a rule stands, by the clock that containers share with their host.
_UNTIL_RULE = (
    'until nft get element ip podyard service_ips "{ $1 . tcp . $2 }" >/dev/null 2>&1; do sleep 0.01; done; '
    "cut -d' ' -f1 /proc/uptime"
)

Row = tuple[str, str, str]


def uptime_s() -> float:
    """The host's clock, in hundredths of a second."""
    return float(Path("/proc/uptime").read_text().split()[0])


async def until(done: Callable[[], Awaitable[bool]]) -> None:
    """Asks again and again; an API that does not answer is asked again, too."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            try:
                if await done():
                    return
            except _RETRYABLE:
                pass
            await asyncio.sleep(_PAUSE_S)


class Bench:
    """Measures one cluster; see the module."""

    def __init__(self, live: Live, client: Client) -> None:
        self._live = live
        self._client = client
        self._numbers = itertools.count()

    async def service_to_rule(self) -> Row:
        """From the request that changes a Service to the rule on the first node."""
        node = self._live.workers()[0]
        address = (await self._client.get(Service, "web", "default")).spec.clusterIP
        times_s = []
        for port in range(8000, 8000 + 10):
            command = ("docker", "exec", node, "sh", "-c", _UNTIL_RULE, "sh", address, str(port))
            waiting = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
            # The node's question must be under way first.
            await asyncio.sleep(0.5)
            started_s = uptime_s()
            ports = [{"name": "changed", "port": port, "targetPort": 80}]
            await self._client.patch(Service, "web", "default", body={"spec": {"ports": ports}})
            async with asyncio.timeout(DEADLINE_S):
                said, _ = await waiting.communicate()
            times_s.append(float(said) - started_s)
        return (
            "a Service's new port",
            "its rule on a node, median of 10",
            f"{statistics.median(times_s):.2f} s",
        )

    async def kill(self, process: str, again: str, done: Callable[[], Awaitable[bool]]) -> Row:
        """Kills a process and waits until its work is done again."""
        times_s = []
        for _ in range(TIMES):
            role = PROCESSES[process][0]
            short = etcd_leader(self._live) if process == "etcd" else f"{role}-1"
            started_s = time.monotonic()
            assert self._live.kill(self._live.container(short), process)
            await until(done)
            times_s.append(time.monotonic() - started_s)
            await self._settle()
        name = "etcd's leader" if process == "etcd" else process
        return (f"{name}, kill -9", again, f"{statistics.median(times_s):.2f} s")

    async def _settle(self) -> None:
        """All is well again before the next blow."""
        await asyncio.to_thread(self._live.podyard, "up")

    async def write(self) -> bool:
        """One write."""
        name = f"failover-{next(self._numbers)}"
        await self._client.create(ConfigMap(metadata={"name": name, "namespace": "default"}))
        return True

    async def read(self) -> bool:
        await self._client.get(Service, "kubernetes", "default")
        return True

    def bound(self) -> Callable[[], Awaitable[bool]]:
        """Whether a pod that was made after the call has a node."""
        name: str = ""

        async def done() -> bool:
            nonlocal name
            if not name:
                wanted = f"failover-{next(self._numbers)}"
                container = {"name": "main", "image": "busybox", "command": ["true"]}
                spec = {"restartPolicy": "Never", "containers": [container]}
                await self._client.create(Pod(metadata={"name": wanted, "namespace": "default"}, spec=spec))
                name = wanted
            if (await self._client.get(Pod, name, "default")).spec.nodeName:
                name = ""
                return True
            return False

        return done

    def scaled(self) -> Callable[[], Awaitable[bool]]:
        """Whether a Deployment that was changed after the call has its pods."""
        wanted = 0

        async def done() -> bool:
            nonlocal wanted
            if not wanted:
                found = await self._client.get(apps_v1.Deployment, "web", "default")
                replicas = 4 if found.spec.replicas == 3 else 3
                await self._client.patch(
                    apps_v1.Deployment, "web", "default", body={"spec": {"replicas": replicas}}
                )
                wanted = replicas
            if (await self._client.get(apps_v1.Deployment, "web", "default")).status.replicas == wanted:
                wanted = 0
                return True
            return False

        return done

    async def node(self) -> list[Row]:
        """A node dies under a Deployment."""
        victim = self._live.workers()[1]
        started_s = time.monotonic()
        await asyncio.to_thread(self._live.podyard, "node", "kill", victim)

        async def not_ready() -> bool:
            conditions = (await self._client.get(Node, victim)).status.conditions
            return any(c.type == "Ready" and c.status != "True" for c in conditions)

        await until(not_ready)
        noticed_s = time.monotonic() - started_s

        def replaced() -> bool:
            pods = staying(self._live.get("pods", "-l", "app=web")["items"])
            elsewhere = [pod for pod in pods if is_ready(pod) and pod["spec"].get("nodeName") != victim]
            wanted: int = self._live.get("deployment", "web")["spec"]["replicas"]
            return len(elsewhere) == wanted

        async def all_replaced() -> bool:
            return await asyncio.to_thread(replaced)

        await until(all_replaced)
        replaced_s = time.monotonic() - started_s
        await asyncio.to_thread(self._live.podyard, "node", "start", victim, "--wait")
        given = f"grace {GRACE_S} s, toleration {TOLERATION_S} s"
        return [
            (f"a node, killed; {given}", "NotReady", f"{noticed_s:.1f} s"),
            (f"a node, killed; {given}", "its pods replaced and ready elsewhere", f"{replaced_s:.1f} s"),
        ]


async def measure(live: Live) -> None:
    await asyncio.to_thread(live.apply, deployment("web"), service("web"))
    await asyncio.to_thread(live.kubectl, "rollout", "status", "deployment/web", "--timeout=80s")
    transport = live.transport()
    try:
        bench = Bench(live, live.client(transport))
        rows = [
            await bench.service_to_rule(),
            await bench.kill("apiserver", "it answers a read", bench.read),
            await bench.kill("etcd", "the API takes a write", bench.write),
            await bench.kill("scheduler", "a new pod has a node", bench.bound()),
            await bench.kill("controller-manager", "a scaled Deployment has its pods", bench.scaled()),
            *await bench.node(),
        ]
    finally:
        await transport.close()
    table("from the blow until it goes on", ("what", "until", "seconds"), list(rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", metavar="NAME", help="measure this cluster, which is up already")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.keep:
            base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
            asyncio.run(measure(Live(options.keep, Path(base))))
            return
        live = Live(f"failover-{os.getpid()}", Path(folder))
        times = ("--node-grace-seconds", str(GRACE_S), "--toleration-seconds", str(TOLERATION_S))
        try:
            live.podyard("up", *times)
            asyncio.run(measure(live))
        finally:
            live.podyard("down")


if __name__ == "__main__":
    main()
