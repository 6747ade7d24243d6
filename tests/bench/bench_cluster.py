"""What an idle cluster costs and how fast it starts: `bench_cluster.py [--quick] [--keep NAME]`.

Brings a cluster of its own up (the image must be there), lets it idle, and prints as tables: the
time of `up`, memory of all processes of each container (PSS: shared pages are split among their
users), CPU of each process over an idle minute, and the time from a pod's creation to Ready. The
limits are those of docs/status.md; a figure over its limit makes the exit code 1.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY))

from podyard.api.types import Pod  # noqa: E402
from podyard.client.client import Client  # noqa: E402
from tests.cluster.live import Live, aligned, process_name  # noqa: E402

IDLE_S = 300.0
WINDOW_S = 60.0
PODS = 10
# role -> MB of PSS that its container may use.
MEMORY_MB = {"apiserver": 150, "scheduler": 80, "controller-manager": 80, "worker": 250}
# Of one core, all our Python processes together.
CPU_PERCENT = 10.0
UP_S = 10.0

# pid, PSS in kB, CPU ticks, command line of every process in the container but this shell's.
SAMPLE = r"""
exec 2>/dev/null  # processes end while they are looked at
for p in /proc/[0-9]*; do
  [ "${p#/proc/}" = $$ ] && continue
  line=$(tr '\0\n' '  ' < $p/cmdline 2>/dev/null); [ -n "$line" ] || continue
  case "$line" in "sh -c"*) continue;; esac
  pss=$(sed -n 's/^Pss: *\([0-9]*\) kB/\1/p' $p/smaps_rollup 2>/dev/null)
  ticks=$(sed 's/.*) //' $p/stat | cut -d' ' -f12,13); [ -n "$ticks" ] || continue
  echo "${p#/proc/}|${pss:-0}|$ticks|$line"
done
"""


def role_of(live: Live, name: str) -> str:
    return name.removeprefix(f"{live.name}-").rpartition("-")[0]


def sample(live: Live, name: str) -> dict[tuple[int, str], tuple[float, float]]:
    """(pid, process) -> (PSS in MB, CPU seconds so far)."""
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    found = {}
    for row in live.shell(name, SAMPLE).splitlines():
        pid, pss, ticks, line = row.split("|", 3)
        user, system = ticks.split()
        found[int(pid), process_name(line)] = (int(pss) / 1024, (int(user) + int(system)) * tick_s)
    return found


def table(title: str, header: tuple[str, ...], rows: list[tuple[object, ...]]) -> None:
    print(f"\n{title}")
    for line in aligned([header, *rows]):
        print(f"  {line}")


def measure_up(live: Live) -> float:
    started_s = time.monotonic()
    live.podyard("up")
    return time.monotonic() - started_s


def measure_idle(live: Live, idle_s: float, window_s: float) -> list[str]:
    """Prints memory and CPU; answers what is over its limit."""
    time.sleep(idle_s)
    names = live.containers()
    before = {name: sample(live, name) for name in names}
    started_s = time.monotonic()
    time.sleep(window_s)
    after = {name: sample(live, name) for name in names}
    passed_s = time.monotonic() - started_s
    rows: list[tuple[object, ...]] = []
    over = []
    ours_percent = 0.0
    for name in names:
        limit_mb = MEMORY_MB.get(role_of(live, name))
        total_mb = sum(pss for pss, _ in after[name].values())
        for (pid, process), (pss_mb, cpu_s) in sorted(after[name].items(), key=lambda item: -item[1][0]):
            percent = 100 * (cpu_s - before[name].get((pid, process), (0, cpu_s))[1]) / passed_s
            if process not in ("etcd", "containerd"):
                ours_percent += percent
            rows.append((name, process, f"{pss_mb:.1f}", f"{percent:.2f}", ""))
        rows.append((name, "all", f"{total_mb:.1f}", "", "" if limit_mb is None else f"<= {limit_mb}"))
        if limit_mb is not None and total_mb > limit_mb:
            over.append(f"{name}: {total_mb:.0f} MB of {limit_mb}")
    header = ("container", "process", "PSS MB", "CPU % of a core", "limit MB")
    table(f"idle for {idle_s:.0f} s, CPU over {passed_s:.0f} s", header, rows)
    print(f"\n  our processes together: {ours_percent:.1f} % of a core (limit {CPU_PERCENT:g} %)")
    if ours_percent > CPU_PERCENT:
        over.append(f"CPU: {ours_percent:.1f} % of {CPU_PERCENT:g} %")
    return over


async def ready_at(client: Client, name: str, version: str) -> tuple[float, float]:
    """When the pod was seen with a node and ready, by the monotonic clock."""
    bound_s = 0.0
    async for batch in client.watch(
        Pod, "default", resource_version=version, field_selector=f"metadata.name={name}"
    ):
        for event in batch.events:
            if event.object.spec.nodeName and not bound_s:
                bound_s = time.monotonic()
            for condition in event.object.status.conditions:
                if condition.type == "Ready" and condition.status == "True":
                    return bound_s, time.monotonic()
    raise RuntimeError("the watch ended")


async def measure_pods(live: Live, count: int) -> None:
    """Starts pods one after the other, images present from the second on."""
    transport = live.transport()
    client = live.client(transport)
    rows: list[tuple[object, ...]] = []
    times_s = []
    try:
        for number in range(count):
            name = f"bench-{number}"
            container = {"name": "web", "image": "nginx", "imagePullPolicy": "IfNotPresent"}
            spec = {"terminationGracePeriodSeconds": 1, "containers": [container]}
            started_s = time.monotonic()
            made = await client.create(Pod(metadata={"name": name, "namespace": "default"}, spec=spec))
            bound_s, end_s = await ready_at(client, name, made.metadata.resourceVersion)
            times_s.append(end_s - started_s)
            kind = "pulled" if number == 0 else ""
            rows.append((name, f"{bound_s - started_s:.3f}", f"{end_s - started_s:.3f}", kind))
            await client.delete(Pod, name, "default")
    finally:
        await transport.close()
    table("a pod from its creation, seconds", ("pod", "bound", "ready", ""), rows)
    print(f"\n  median {statistics.median(times_s):.3f} s, worst {max(times_s):.3f} s")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="idle for seconds, not minutes")
    parser.add_argument("--keep", metavar="NAME", help="measure this cluster, which is up already")
    options = parser.parse_args()
    idle_s, window_s = (5.0, 20.0) if options.quick else (IDLE_S, WINDOW_S)
    over = []
    with tempfile.TemporaryDirectory() as folder:
        if options.keep:
            base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
            live = Live(options.keep, Path(base))
        else:
            live = Live(f"bench-{os.getpid()}", Path(folder))
        try:
            if not options.keep:
                up_s = measure_up(live)
                print(f"up with images present: {up_s:.1f} s (limit {UP_S:g} s)")
                if up_s > UP_S:
                    over.append(f"up: {up_s:.1f} s of {UP_S:g}")
            over += measure_idle(live, idle_s, window_s)
            asyncio.run(measure_pods(live, PODS))
        finally:
            if not options.keep:
                live.podyard("down")
    print("\n" + json.dumps({"over_limits": over}))
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
