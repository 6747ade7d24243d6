"""What the scenario's tests share: its objects, and a record of all that its pods went through."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from podyard.api import errors
from podyard.api.types import Pod
from podyard.client.client import Client
from tests.cluster.live import Live, eventually
from tests.cluster.support import Cluster

REPLICAS = 3
# maxSurge 25 % of 3, rounded up; maxUnavailable 25 % of 3, rounded down, is none.
MOST = REPLICAS + 1
_RETRYABLE = (errors.Unavailable, errors.Timeout, errors.ServerTimeout, errors.InternalError)


def deployment(name: str, *, careful: bool = False) -> dict[str, Any]:
    """A Deployment of nginx; a careful one has a readiness probe and serves on for 6 s when it ends.

    So long may it take on a busy machine until every node knows that a pod ends.
    """
    container: dict[str, Any] = {"name": "nginx", "image": "nginx"}
    if careful:
        container["readinessProbe"] = {
            "httpGet": {"path": "/", "port": 80},
            "periodSeconds": 1,
            "timeoutSeconds": 5,
        }
        container["lifecycle"] = {"preStop": {"sleep": {"seconds": 6}}}
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": REPLICAS,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def service(name: str, port: int = 80, **spec: Any) -> dict[str, Any]:
    """A Service of the pods with the label app=NAME."""
    ports = [{"port": 80, "targetPort": port}]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": {"app": name}, "ports": ports, **spec},
    }


def client_pod(name: str, target: str) -> dict[str, Any]:
    """A pod that asks a Service every 20 ms by its name; its log has a line for each request."""
    ask = f"wget -q -T 2 -O /dev/null http://{target}/"
    script = (
        f"until {ask}; do sleep 0.1; done 2>/dev/null; echo begun; n=0; while :; do n=$((n+1)); "
        f'if {ask}; then echo "$n ok"; else echo "$n lost $(date +%T)"; fi; usleep 20000; done'
    )
    container = {"name": "client", "image": "busybox", "command": ["sh", "-c", script]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [container]},
    }


def pods(cluster: Cluster, app: str, namespace: str = "default") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = cluster.get("pods", "-l", f"app={app}", "-n", namespace)["items"]
    return found


def staying(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Pods that are not on their way out."""
    return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]


def is_ready(pod: dict[str, Any]) -> bool:
    conditions = pod["status"].get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def etcd_leader(live: Live) -> str:
    """The member that leads now, by its container's name behind the cluster's."""
    ask = "curl -s http://127.0.0.1:2381/metrics | grep -c '^etcd_server_is_leader 1' || true"

    def leaders() -> list[str]:
        members = [f"etcd-{number}" for number in (1, 2, 3)]
        return [member for member in members if live.shell(live.container(member), ask).strip() == "1"]

    # None leads in an election.
    (found,) = eventually(leaders, lambda seen: len(seen) == 1, what="one leader")
    return found


class History:
    """Every state that the pods of one app were stored in, in order, nothing left out.

    The watch resumes where it broke off, so it may be asked for what happened while nobody answered.
    """

    def __init__(self, live: Live, namespace: str, app: str) -> None:
        self._live = live
        self._namespace = namespace
        self._app = app
        self._loop = asyncio.new_event_loop()
        self._begun = threading.Event()
        self.states: list[tuple[str, Pod]] = []

    @contextmanager
    def recorded(self) -> Iterator[History]:
        """Records while the block runs."""
        recording = self._loop.create_task(self._record())
        thread = threading.Thread(target=self._run, args=(recording,), name="history", daemon=True)
        thread.start()
        assert self._begun.wait(30), "the watch did not begin"
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(recording.cancel)
            thread.join(30)
        assert not thread.is_alive()

    def _run(self, recording: asyncio.Task[None]) -> None:
        with suppress(asyncio.CancelledError):
            self._loop.run_until_complete(recording)
        self._loop.close()

    async def _record(self) -> None:
        transport = self._live.transport()
        try:
            await self._watch(self._live.client(transport))
        finally:
            await transport.close()

    async def _watch(self, client: Client) -> None:
        listed = await client.list(Pod, self._namespace)
        for pod in listed.items:
            self._note("ADDED", pod)
        progress = listed.resource_version
        self._begun.set()
        while True:
            try:
                async for batch in client.watch(Pod, self._namespace, resource_version=progress):
                    for event in batch.events:
                        if event.type != "BOOKMARK":
                            self._note(event.type, event.object)
                    progress = batch.resource_version or progress
            except _RETRYABLE:
                pass
            await asyncio.sleep(0.1)

    def _note(self, type_: str, pod: Pod) -> None:
        if pod.metadata.labels.get("app") == self._app:
            self.states.append((type_, pod))

    def of(self, name: str) -> list[Pod]:
        """The states of one pod."""
        return [pod for _, pod in self.states if pod.metadata.name == name]

    def bounds(self) -> tuple[int, int]:
        """The most pods that were meant to stay, and the fewest that were ready, at any time."""
        present: dict[str, Pod] = {}
        most, fewest = 0, REPLICAS
        settled = False
        for type_, pod in self.states:
            if type_ == "DELETED":
                present.pop(pod.metadata.uid, None)
            else:
                present[pod.metadata.uid] = pod
            stay = [p for p in present.values() if not p.metadata.HasField("deletionTimestamp")]
            ready = sum(
                any(c.type == "Ready" and c.status == "True" for c in p.status.conditions) for p in stay
            )
            most = max(most, len(stay))
            # What was listed at the begin comes pod by pod.
            settled = settled or ready >= REPLICAS
            fewest = min(fewest, ready) if settled else fewest
        return most, fewest
