"""`podyard node …` and `podyard component …`: let something happen to one machine."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import click

from podyard.base import clock
from podyard.cli import completing
from podyard.cli.cluster import with_engine
from podyard.cli.commands import Scope, name_option, pass_scope
from podyard.cli.mistyped import SuggestingGroup
from podyard.cli.progress import for_this_terminal
from podyard.cluster import adopting, bringup
from podyard.cluster.conditions import WAYS_BACK, Machine, outlook
from podyard.cluster.engine import Engine
from podyard.cluster.spec import COMPONENTS, NODES
from podyard.cluster.state import StateDirectory
from podyard.cluster.verbs import Verbs
from podyard.cluster.wording import counted

_WAIT_S = 120.0

# verb -> (method, help)
_VERBS: dict[str, tuple[Callable[[Verbs, str], Awaitable[None]], str]] = {
    "kill": (Verbs.kill, "Power loss: every process is gone at once."),
    "stop": (Verbs.stop, "Orderly shutdown."),
    "start": (Verbs.start, "Start it again after kill or stop."),
    "pause": (Verbs.pause, "Freeze every process."),
    "resume": (Verbs.resume, "Thaw what pause froze."),
    "partition": (Verbs.partition, "Cut it off from all other containers of the cluster, both ways."),
    "heal": (Verbs.heal, "Take the cut of partition away."),
}


def _verb(name: str, *, node: bool) -> click.Command:
    method, text = _VERBS[name]
    breaks = name not in WAYS_BACK
    noun, example = ("node", "worker-1") if node else ("component", "scheduler-1")

    def run(scope: Scope, target: str, wait: bool = False) -> None:
        progress = for_this_terminal()

        async def work(engine: Engine) -> None:
            verbs = Verbs(engine, scope.name)
            found = await verbs.find(target, NODES if node else COMPONENTS)
            await adopting.adopt(engine, scope.name)
            settings = StateDirectory(scope.name).settings()
            heard = await verbs.heartbeat(found) if wait and not breaks else ""
            before = await verbs.condition(found.name)
            begun_s = clock.real_monotonic_s()
            with progress.step(f"{name} {found.name}"):
                await method(verbs, found.name)
            after = await verbs.condition(found.name)
            # Before the wait, or it would announce what is past.
            held_back = None if breaks else after.held_back()
            if held_back:
                why, needed = held_back
                progress.note(f"{found.name}: {why}; next: {verbs.command(needed, found.name)}")
            else:
                machine = Machine(node, settings.node_grace_s, settings.toleration_s)
                progress.note(f"{found.name}: {outlook(name, before, after, machine)}")
            if wait:
                word = "NotReady" if breaks else "Ready"
                with progress.step(f"waiting for {found.name} to be {word}"):
                    await verbs.until_ready(found, ready=not breaks, timeout_s=_WAIT_S, after=heard)
                progress.note(f"{found.name}: {word} after {clock.real_monotonic_s() - begun_s:.0f} s")

        with_engine(work)

    run.__doc__ = (
        f"{text}\n\n    NAME is the container's, or what follows the cluster's name. Doing it twice is fine."
        f"\n\n    \b\n    podyard {noun} {name} {example}\n    "
    )
    decorated: Any = pass_scope(run)
    # Of what breaks a component nothing is to be waited for: it is broken at once.
    if node or not breaks:
        until = f"the node is {'NotReady' if breaks else 'Ready'}" if node else "it calls itself ready"
        decorated = click.option("--wait", is_flag=True, help=f"Return when {until}.")(decorated)
    names = completing.nodes if node else completing.components
    decorated = click.argument("target", metavar="NAME", shell_complete=names)(decorated)
    return click.command(name, short_help=text)(decorated)


@click.group("node", cls=SuggestingGroup)
@name_option
def node() -> None:
    """Let something happen to a node, and watch the rest react.

    \b
    podyard node kill worker-1 --wait     power loss
    podyard node start worker-1
    podyard node partition worker-2       a cut cable
    podyard node heal worker-2
    """


@click.group("component", cls=SuggestingGroup)
@name_option
def component() -> None:
    """Let something happen to etcd, the API server, the scheduler or the controller manager.

    \b
    podyard component kill etcd-1
    podyard component pause apiserver-1
    podyard component resume apiserver-1 --wait
    """


for _name in _VERBS:
    node.add_command(_verb(_name, node=True))
    component.add_command(_verb(_name, node=False))


@node.command("add")
@pass_scope
def add(scope: Scope) -> None:
    """Add a node: the same as `up` with one more.

    \b
    podyard node add
    """
    progress = for_this_terminal()

    async def work(engine: Engine) -> None:
        count = await bringup.add_node(engine, scope.name, progress)
        progress.note(f"cluster {scope.name}: {counted(count, 'node')}")

    with_engine(work)


@node.command("remove")
@click.argument("target", metavar="NAME", shell_complete=completing.nodes)
@pass_scope
def remove(scope: Scope, target: str) -> None:
    """Take the last node out: its object, container and volumes. Undoes `add`.

    \b
    podyard node remove worker-3
    """
    progress = for_this_terminal()

    async def work(engine: Engine) -> None:
        verbs = Verbs(engine, scope.name)
        found = await verbs.find(target, NODES)
        with progress.step(f"removing {found.name}"):
            await verbs.remove_node(found.name)

    with_engine(work)
