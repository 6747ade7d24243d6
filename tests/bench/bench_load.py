"""Load on a real cluster's API server by REST and by gRPC: `python -m tests.bench.bench_load`.

    --pods N, --nodes N   how many; default: 1000 and 100

Brings a cluster without nodes up (three etcd members; the image must be there), stops its controller
manager, which would take made-up nodes for dead, and sends the work of `tests.bench.load`: first pods that
no scheduler wants, then as many that are bound to made-up nodes. For each: rates, times as the client saw
them, and CPU of the servers per pod.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import ssl
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from tests.bench import load
from tests.bench.bench_cluster import role_of, sample, table
from tests.cluster.live import Live

ROLES = ("apiserver", "etcd", "scheduler")


def server_cpu_s(live: Live) -> Counter[str]:
    """CPU seconds so far, by role."""
    used: Counter[str] = Counter()
    for name in live.containers():
        if role_of(live, name) not in ROLES:
            continue
        used[role_of(live, name)] += sum(cpu_s for _, cpu_s in sample(live, name).values())
    return used


@asynccontextmanager
async def wires(live: Live) -> AsyncIterator[dict[str, load.Wire]]:
    """Both ways in, as the administrator."""
    files = live.admin_files()
    context = ssl.create_default_context(cafile=files.ca)
    context.load_cert_chain(files.cert, files.key)
    connector = aiohttp.TCPConnector(ssl=context, limit=load.WRITERS + 8)
    timeout = aiohttp.ClientTimeout(total=None)
    url = f"https://127.0.0.1:{live.ports()['rest']}"
    transport = live.transport()
    try:
        async with aiohttp.ClientSession(url, connector=connector, timeout=timeout) as session:
            yield {"REST": load.Rest(session), "gRPC": load.Grpc(live.client(transport))}
    finally:
        await transport.close()


async def measure(live: Live, pods: int, nodes: int) -> None:
    rows: list[tuple[object, ...]] = []
    async with wires(live) as ways:
        await ways["REST"].make_namespace()
        for bound in (False, True):
            for name, wire in ways.items():
                if bound:
                    seconds = await load.timed(load.many(wire.make_node, range(nodes)))
                    rows.append((name, f"{nodes} nodes, three writes each", f"{nodes / seconds:.0f}/s"))
                rows += await _pods(live, name, wire, pods, bound=bound)
                if bound:
                    await load.many(wire.delete_node, range(nodes))
    table(f"{pods} pods, {load.WRITERS} writers, one watcher", ("", "work", "figure"), rows)


async def _pods(
    live: Live, name: str, wire: load.Wire, pods: int, *, bound: bool
) -> list[tuple[object, ...]]:
    before = server_cpu_s(live)
    used: Counter[str] = Counter()

    def note() -> None:
        used.update(server_cpu_s(live))
        used.subtract(before)

    result = await load.run_pods(wire, pods, bound=bound, before_delete=note)
    what = f"pods until {'bound' if bound else 'seen'}"
    cpu = ", ".join(f"{role} {1000 * used[role] / pods:.2f}" for role in ROLES)
    return [
        (name, what, f"{pods / result.wall_s:.0f}/s"),
        (name, f"{what}: creation p50, p99", _pair_ms(result.created_s)),
        (name, f"{what}: from creation p50, p99", _pair_ms(result.reached_s)),
        (name, f"{what}: CPU ms a pod", cpu),
        (name, f"{what}: list of all", f"{1000 * result.list_s:.0f} ms"),
        (name, f"{what}: delete of all", f"{result.delete_s:.2f} s"),
    ]


def _pair_ms(values_s: list[float]) -> str:
    return f"{1000 * load.quantile(values_s, 0.5):.0f}, {1000 * load.quantile(values_s, 0.99):.0f} ms"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=1000)
    parser.add_argument("--nodes", type=int, default=100)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        live = Live(f"load-{os.getpid()}", Path(folder))
        try:
            live.podyard("up", "--nodes", "0")
            live.podyard("component", "stop", "controller-manager-1")
            asyncio.run(measure(live, options.pods, options.nodes))
        finally:
            live.podyard("down")


if __name__ == "__main__":
    main()
