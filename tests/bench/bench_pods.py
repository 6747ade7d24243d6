"""How fast pods come: from `up` to an answer by Service name, and thirty at once against bare CRI calls.

    python -m tests.bench.bench_pods [--keep NAME]

Brings a cluster of its own up (two nodes, three etcd members; the image must be there), or measures one
that is up (then without the first figure). Thirty pods are created at once, and the time until the
last one is seen Running is set against the time that CRI calls alone, made inside the same nodes for as
many pods, take in the same run. A figure over its limit makes the exit code 1.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from podyard.api.types import Pod
from podyard.client.client import Client
from tests.bench.bench_cluster import measure_up, sample, table
from tests.cluster.live import Live
from tests.cluster.scenario import client_pod, service

HERE = Path(__file__).resolve().parent
PODS = 30
ROUNDS = 3
ANSWER_S = 15.0
# The last pod Running, as a multiple of what CRI calls alone take.
RATIO = 1.6
_STOP, _CONTINUE = 19, 18  # signals


def web_pod() -> dict[str, object]:
    container = {"name": "nginx", "image": "nginx"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "labels": {"app": "web"}},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [container]},
    }


def measure_answer(live: Live) -> tuple[float, float]:
    """Brings a cluster up; seconds until `up` returned and until a pod got an answer by a Service's name."""
    begun_s = time.monotonic()
    up_s = measure_up(live)
    live.apply(web_pod(), service("web"), client_pod("client", "web"))
    while "begun" not in live.kubectl("logs", "client", code=None):
        assert time.monotonic() < begun_s + 120, "no answer"
        time.sleep(0.05)
    answer_s = time.monotonic() - begun_s
    live.kubectl("delete", "pod,service", "web", "client", "--ignore-not-found", code=None)
    return up_s, answer_s


async def burst(client: Client) -> tuple[float, Counter[str]]:
    """Seconds until the last of many pods was seen Running, and how many each node got; then deletes them."""
    listed = await client.list(Pod, "default")
    assert not listed.items, "the cluster must be empty"
    begun_s = time.monotonic()
    await asyncio.gather(*(client.create(busybox(f"burst-{number}")) for number in range(PODS)))
    running: set[str] = set()
    nodes: Counter[str] = Counter()
    took_s = 0.0
    gone: set[str] = set()
    async for batch in client.watch(Pod, "default", resource_version=listed.resource_version):
        for event in batch.events:
            name = event.object.metadata.name
            if event.type == "DELETED":
                gone.add(name)
            elif event.object.status.phase == "Running" and name not in running:
                running.add(name)
                nodes[event.object.spec.nodeName] += 1
        if len(running) == PODS and not took_s:
            took_s = time.monotonic() - begun_s
            await asyncio.gather(*(client.delete(Pod, name, "default") for name in running))
        if len(gone) == PODS:
            break
    return took_s, nodes


def cpu_s(live: Live) -> Counter[str]:
    """CPU seconds so far of each kind of process, all containers together."""
    found: Counter[str] = Counter()
    for name in live.containers():
        for (_, process), (_, seconds) in sample(live, name).items():
            found[process] += seconds
    return found


def busybox(name: str) -> Pod:
    container = {"name": "main", "image": "busybox", "imagePullPolicy": "IfNotPresent"}
    container["command"] = ["sleep", "3600"]
    spec = {"terminationGracePeriodSeconds": 0, "containers": [container]}
    return Pod(metadata={"name": name, "namespace": "default"}, spec=spec)


@contextmanager
def kubelets_stopped(live: Live) -> Iterator[None]:
    """While they stand still they cannot take the bare pods for leftovers."""
    for node in live.workers():
        live.kill(node, "kubelet", _STOP)
    try:
        yield
    finally:
        for node in live.workers():
            live.kill(node, "kubelet", _CONTINUE)


def bare(live: Live, nodes: Counter[str]) -> float:
    """Seconds until the last of as many pods runs, by CRI calls alone on all nodes at once."""
    script = (HERE / "bare_cri.py").read_bytes()
    command = ("docker", "exec", "-i")
    with kubelets_stopped(live):
        running = []
        for node, count in nodes.items():
            argv = [*command, node, "/opt/podyard/venv/bin/python", "-", str(count)]
            process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            running.append((process, script))
        for process, text in running:
            assert process.stdin is not None
            process.stdin.write(text)
            process.stdin.close()
        took_s = []
        for process, _ in running:
            assert process.stdout is not None
            took_s.append(float(process.stdout.read()))
            assert process.wait(60) == 0
    return max(took_s)


async def measure_burst(live: Live) -> float:
    """Prints each round; answers the ratio of the medians."""
    transport = live.transport()
    rows: list[tuple[object, ...]] = []
    ours, alone = [], []
    spent: Counter[str] = Counter()
    try:
        client = live.client(transport)
        await burst(client)  # pulls the image on every node
        for number in range(ROUNDS):
            before = cpu_s(live)
            took_s, nodes = await burst(client)
            spent.update(cpu_s(live) - before)
            ours.append(took_s)
            alone.append(await asyncio.to_thread(bare, live, nodes))
            spread = "/".join(str(count) for count in nodes.values())
            rows.append(
                (number + 1, spread, f"{took_s:.2f}", f"{alone[-1]:.2f}", f"{took_s / alone[-1]:.2f}")
            )
    finally:
        await transport.close()
    header = ("round", "on nodes", "last Running s", "CRI alone s", "ratio")
    table(f"{PODS} pods at once", header, rows)
    costs = [(process, f"{seconds * 1000 / PODS / ROUNDS:.0f}") for process, seconds in spent.most_common()]
    table("CPU of a pod's whole life", ("process", "ms"), costs)
    ratio = statistics.median(ours) / statistics.median(alone)
    print(f"\n  ratio of the medians: {ratio:.2f} (limit {RATIO:g})")
    return ratio


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--keep", metavar="NAME", help="measure this cluster, which is up already")
    options = parser.parse_args()
    over = []
    with tempfile.TemporaryDirectory() as folder:
        base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
        live = Live(options.keep or f"pods-{os.getpid()}", Path(base if options.keep else folder))
        try:
            if not options.keep:
                up_s, answer_s = measure_answer(live)
                print(f"up returned after {up_s:.1f} s, an answer by a Service's name after {answer_s:.1f} s")
                if answer_s > ANSWER_S:
                    over.append(f"answer: {answer_s:.1f} s of {ANSWER_S:g}")
            ratio = asyncio.run(measure_burst(live))
            if ratio > RATIO:
                over.append(f"{PODS} pods: {ratio:.2f} of {RATIO:g}")
        finally:
            if not options.keep:
                live.podyard("down")
    print("\n" + json.dumps({"over_limits": over}))
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
