"""The subcommands that work on the cluster's containers: build, down, status, list, logs, push."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import click

from podyard.base import clock
from podyard.cli import colours, completing
from podyard.cli.commands import Scope, pass_scope
from podyard.cli.progress import for_this_terminal
from podyard.cluster import adopting, bringup, exporting, health, publishing, pushing
from podyard.cluster.compose import FILES
from podyard.cluster.conditions import RUNNING, cut_now
from podyard.cluster.engine import Engine
from podyard.cluster.errors import ClusterError, NotFoundError, no_cluster
from podyard.cluster.homes import lives_here, require_home
from podyard.cluster.image import ensure_image, remove_superseded
from podyard.cluster.plan import Observed, ObservedContainer
from podyard.cluster.spec import (
    REGISTRY_NAME,
    ClusterSpec,
    HostPorts,
    Publication,
    Role,
)
from podyard.cluster.state import StateDirectory
from podyard.cluster.wording import podyard_on

T = TypeVar("T")

_NEVER_STARTED = "0001-01-01T00:00:00Z"


def with_engine(work: Callable[[Engine], Awaitable[T]]) -> T:
    """Connects, runs `work` to its end, disconnects."""

    async def connected() -> T:
        engine = await Engine.connect()
        try:
            return await work(engine)
        finally:
            await engine.close()

    return asyncio.run(connected())


@click.command("build")
def build() -> None:
    """Build the image where it is missing or the code changed. `up` does so by itself when there is none.

    \b
    podyard build
    """
    progress = for_this_terminal()
    reference = ClusterSpec().image

    async def work(engine: Engine) -> str:
        image_id = await ensure_image(engine, reference, progress, rebuild=True)
        await remove_superseded(engine)
        return image_id

    progress.note(f"image {reference} is {with_engine(work)[:19]}")


@click.command("down")
@click.option(
    "--registry",
    is_flag=True,
    help="Remove the registry too, with all that was pushed, if no cluster is left.",
)
@pass_scope
def down(scope: Scope, registry: bool) -> None:
    """Remove the cluster: containers, volumes, network, certificates. The registry and the image stay.

    What `kubeconfig --merge` has added to your own kubeconfig goes too.

    \b
    podyard down
    podyard --name other down
    podyard down --registry
    """
    progress = for_this_terminal()

    async def work(engine: Engine) -> None:
        if await bringup.down(engine, scope.name, progress):
            progress.note(f"cluster {scope.name} is gone")
        else:
            progress.note(f"there is no cluster {scope.name}")
        if registry:
            await bringup.remove_registry(engine, progress)

    with_engine(work)


@dataclass(frozen=True, slots=True)
class _Row:
    container: ObservedContainer
    ready: str


@dataclass(frozen=True, slots=True)
class _Status:
    rows: list[_Row]
    ports: dict[str, HostPorts]
    published: tuple[Publication, ...]


@click.command("status")
@pass_scope
def status(scope: Scope) -> None:
    """Show each container of the cluster: role, state, address, uptime, and whether it is ready.

    Readiness is what the API server says: of itself and of each node that runs. The exit code is 1 when
    anything that should be ready is not. Below stand the addresses of the API server on this host.
    """

    async def gather(engine: Engine) -> _Status:
        state = StateDirectory(scope.name)
        await require_home(engine, state)
        await adopting.adopt(engine, scope.name)
        observed = await engine.observe(scope.name)
        if not observed.containers:
            raise no_cluster(scope.name)
        ready, healthy = await asyncio.gather(_readiness(scope.name, observed), _health(engine, observed))
        found = await asyncio.gather(
            *(
                engine.inspect(name)
                for name, container in sorted(observed.containers.items())
                if container.role != FILES  # it has done its work
            )
        )
        said = ready | healthy
        rows = [
            _Row(one, ready_word(one, said.get(one.name, ""), cut=cut_now(one, state.cut(one.name))))
            for one in found
            if one is not None
        ]
        placement = state.placement()
        return _Status(rows, placement.ports if placement else {}, state.settings().publish)

    shown = with_engine(gather)
    rows = shown.rows
    now_s = clock.real_now_s()
    colours.print_table(
        ("CONTAINER", "ROLE", "STATE", "READY", "ADDRESS", "UP"),
        [
            (
                row.container.name,
                row.container.role,
                row.container.state,
                row.ready,
                row.container.addresses.get(scope.name) or "-",
                uptime(row.container, now_s),
            )
            for row in rows
        ],
        colouring={"STATE": colours.of_state, "READY": colours.of_readiness},
    )
    for server, ports in sorted(shown.ports.items()):
        click.echo(f"\n{server}: REST {ports.rest_url}, gRPC {ports.grpc_target} (TLS)")
    for each in shown.published:
        click.echo(publishing.describe(scope.name, each))
    if any(row.ready not in {"-", "yes"} for row in rows):
        sys.exit(1)


def ready_word(container: ObservedContainer, said: str, *, cut: bool = False) -> str:
    """What the column READY shows: `yes`, `no: reason`, `unknown`, or `-` where there is nothing to ask.

    Args:
        said: by the API server or the component itself; empty for what nobody is asked about.
        cut: whether it is cut off.
    """
    # A frozen, dead or cut off node is Ready to the API server until its grace is over.
    if container.state != RUNNING:
        return f"no: {container.state}"
    if cut:
        return "no: cut off by partition"
    return said or "-"


async def _health(engine: Engine, observed: Observed) -> dict[str, str]:
    """Container name -> "yes" or why not, for the components that no other way tells of."""
    asked = [
        row
        for row in observed.containers.values()
        if row.role in health.QUESTIONS and row.role != Role.APISERVER and row.state == RUNNING
    ]
    problems = await asyncio.gather(*(health.problem(engine, row.name, row.role) for row in asked))
    return {
        row.name: f"no: {problem}" if problem else "yes" for row, problem in zip(asked, problems, strict=True)
    }


async def _readiness(name: str, observed: Observed) -> dict[str, str]:
    """Container name -> "yes" or why not, for API servers and workers."""
    state = StateDirectory(name)
    placement = state.placement()
    result = {
        row.name: "unknown"
        for row in observed.containers.values()
        if row.role in {Role.APISERVER, Role.WORKER}
    }
    if placement is None:
        return result
    for server, ports in placement.ports.items():
        # One that is frozen would not answer before the deadline.
        if server not in result or observed.containers[server].state != "running":
            continue
        try:
            probe = bringup.probe(state, ports)
            await probe.readyz()
            result[server] = "yes"
            for node in await probe.nodes():
                result[node.name] = "yes" if node.ready else f"no: {node.reason}"
        except ClusterError as error:
            if result[server] != "yes":
                result[server] = f"no: {error}"
    return result


@click.command("list")
def list_clusters() -> None:
    """Show the clusters of this host's engine.

    Where `-` stands for an address, a line on standard error says why.
    """
    rows: list[tuple[str, ...]] = []
    reasons: list[str] = []

    async def gather(engine: Engine) -> None:
        for name, containers in sorted((await engine.clusters()).items()):
            workers = sum(1 for container in containers if container.role == Role.WORKER)
            running = sum(1 for container in containers if container.state == "running")
            state = StateDirectory(name)
            here = await lives_here(engine, state)
            placement = state.placement() if here else None
            server = next(iter(placement.ports.values()), None) if placement else None
            endpoints = (server.rest_url, server.grpc_target) if server else ("-", "-")
            rows.append((name, str(workers), f"{running}/{len(containers)}", *endpoints))
            if server is None:
                reasons.append(f"{name}: {_why_no_address(state, containers, here=here)}")

    with_engine(gather)
    colours.print_table(
        ("NAME", "NODES", "RUNNING", "API SERVER", "GRPC (TLS)"),
        rows,
        colouring={"RUNNING": colours.of_share},
    )
    for reason in reasons:
        click.echo(reason, err=True)


def _why_no_address(state: StateDirectory, containers: Sequence[ObservedContainer], *, here: bool) -> str:
    """Why nothing is known here of the addresses of a cluster that the engine has."""
    command = podyard_on(state.cluster)
    if not here:
        return f"what {state.path} says is of a cluster of this name on another engine"
    if any(container.role == FILES for container in containers):
        return f"it was made by compose; {command} status fetches its addresses"
    if not state.path.exists():
        return (
            f"its state is not in {state.path.parent}, but where XDG_DATA_HOME or HOME led when it was made"
        )
    return f"{state.path} does not say its addresses; {command} up makes that anew"


@click.command("logs")
@click.argument("component", shell_complete=completing.log_sources)
@click.argument("directory", required=False, type=click.Path(file_okay=False, path_type=Path))
@click.option("-f", "--follow", is_flag=True, help="Go on until Ctrl-C.")
@click.option("--tail", type=click.IntRange(min=0), metavar="LINES", help="Only the last lines.")
@pass_scope
def logs(scope: Scope, component: str, directory: Path | None, follow: bool, tail: int | None) -> None:
    """Show what a component's container prints; each line begins with the process that wrote it.

    COMPONENT is a container's name, with or without the cluster's, or the name of a role that has only one.
    `export DIRECTORY` copies all of the cluster's: each container's output, the pods' logs of each node,
    and the main objects as JSON.

    \b
    podyard logs apiserver
    podyard logs worker-1 --follow --tail 20
    podyard logs export ./logs
    """
    if component == "export":
        if directory is None:
            raise click.UsageError("Missing argument 'DIRECTORY': podyard logs export ./logs")
        progress = for_this_terminal()
        with_engine(lambda engine: exporting.export(engine, scope.name, directory, progress))
        progress.note(f"all that {scope.name} has said is in {directory}")
        return
    if directory is not None:
        raise click.UsageError(f"Got unexpected extra argument ({directory})")

    async def find(engine: Engine) -> str:
        observed = await engine.observe(scope.name)
        return resolve_component(scope.name, component, observed)

    name = with_engine(find)

    async def copy(engine: Engine) -> None:
        for chunk in engine.logs(name, follow=follow, tail=tail):
            sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()

    try:
        with_engine(copy)
    except KeyboardInterrupt:
        if not follow:
            raise


def resolve_component(cluster: str, word: str, observed: Observed) -> str:
    """The container that a user means.

    Raises:
        NotFoundError: none, or a role that has several.
    """
    names = sorted(observed.containers)
    if not names:
        raise no_cluster(cluster)
    if word == REGISTRY_NAME and observed.registry is not None:
        return REGISTRY_NAME
    found = observed.meant_by(cluster, word)
    if found is not None:
        return found.name
    of_role = [name for name in names if observed.containers[name].role == word]
    raise NotFoundError(
        f"there is no container {word!r} in the cluster {cluster!r}",
        hint=f"one of: {' '.join(of_role or names)}\nof a pod: {podyard_on(cluster)} kubectl logs {word}",
    )


@click.command("push")
@click.argument("image")
@pass_scope
def push(scope: Scope, image: str) -> None:
    """Put an image of the local engine into the registry that every node of every cluster pulls from first.

    Pods then use it by the same name.

    \b
    docker build -t myapp:1 . && podyard push myapp:1
    podyard kubectl run myapp --image=myapp:1
    """
    progress = for_this_terminal()
    with_engine(lambda engine: pushing.push(engine, image, progress, cluster=scope.name))


def uptime(container: ObservedContainer, now_s: float) -> str:
    """How long a container has been running, as short as kubectl's ages; `-` when it does not."""
    if container.state not in {"running", "paused"} or container.started_at in {"", _NEVER_STARTED}:
        return "-"
    # The engine writes nanoseconds, which datetime does not read.
    started = datetime.fromisoformat(re.sub(r"\.\d+", "", container.started_at))
    seconds = max(int(now_s - started.astimezone(UTC).timestamp()), 0)
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"
