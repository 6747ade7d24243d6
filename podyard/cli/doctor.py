"""`podyard doctor`: what `up` checks, alone; and `podyard completion`."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import click
from click.shell_completion import get_completion_class

from podyard.cli import wish
from podyard.cli.cluster import with_engine
from podyard.cli.commands import Scope, pass_scope
from podyard.cluster import preflight
from podyard.cluster.engine import Engine
from podyard.cluster.errors import ClusterError, PreflightError
from podyard.cluster.kubectl import find_kubectl
from podyard.cluster.preflight import HostFacts, Problem
from podyard.cluster.spec import DEFAULT_NODES, IMAGE
from podyard.cluster.wording import counted

_GIB = 1024**3


@dataclass(frozen=True, slots=True)
class _Seen:
    facts: HostFacts
    image_present: bool


@click.command("doctor")
@wish.nodes_option("For how many nodes.", default=DEFAULT_NODES)
@pass_scope
def doctor(scope: Scope, nodes: int) -> None:
    """Check the engine and the host, as `up` does before it begins, and change nothing.

    The exit code is 3 when a cluster cannot be brought up here.

    \b
    podyard doctor
    podyard doctor --nodes 20
    """

    async def look(engine: Engine) -> _Seen:
        return _Seen(await preflight.gather(engine), bool(await engine.image_id(IMAGE)))

    seen = with_engine(look)
    problems = preflight.judge(seen.facts, nodes=nodes, image_present=seen.image_present)
    for line in lines(seen.facts, image_present=seen.image_present):
        click.echo(line)
    try:
        click.echo(f"kubectl: {find_kubectl()}")
    except ClusterError as error:
        problems = [*problems, Problem(str(error), error.hint, fatal=False)]
    for problem in problems:
        word = click.style("error:", fg="red") if problem.fatal else click.style("warning:", fg="yellow")
        click.echo(f"{word} {problem.text}\n{click.style('hint:', fg='cyan')} {problem.remedy}")
    if any(problem.fatal for problem in problems):
        sys.exit(PreflightError.exit_code)
    click.echo(click.style(f"this host can carry a cluster of {counted(nodes, 'node')}", fg="green"))


def lines(facts: HostFacts, *, image_present: bool) -> list[str]:
    """What was seen, a line each."""
    engine = facts.engine
    seen = [
        f"engine {engine.version}, API {engine.api_version}, {engine.os_type}, kernel {engine.kernel}",
        f"{engine.cpus} CPUs, {engine.memory_bytes / _GIB:.1f} GiB of memory",
        f"image {IMAGE}: {'here' if image_present else 'will be built by the first up'}",
    ]
    if facts.free_disk_bytes is not None:
        seen.append(f"{facts.free_disk_bytes / _GIB:.1f} GiB free below {engine.root_directory}")
    if facts.inotify_instances is not None:
        enough_for = counted(facts.inotify_instances // preflight.INOTIFY_INSTANCES_A_NODE, "node")
        seen.append(f"fs.inotify.max_user_instances is {facts.inotify_instances}, enough for {enough_for}")
    return seen


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print what makes a shell complete podyard's commands and options.

    \b
    source <(podyard completion bash)
    podyard completion fish > ~/.config/fish/completions/podyard.fish
    """
    from podyard.cli.commands import podyard

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(podyard, {}, "podyard", "_PODYARD_COMPLETE").source())
