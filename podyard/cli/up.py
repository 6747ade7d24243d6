"""`podyard up`."""

from __future__ import annotations

from dataclasses import replace

import click

from podyard.cli import wish
from podyard.cli.cluster import with_engine
from podyard.cli.commands import Scope, pass_scope
from podyard.cli.progress import for_this_terminal
from podyard.cluster import bringup, publishing
from podyard.cluster.settings import Settings
from podyard.cluster.spec import DEFAULT_NODES, MIN_NODE_GRACE_S, ClusterSpec
from podyard.cluster.state import StateDirectory
from podyard.cluster.wording import counted, podyard_on


def _told(
    settings: Settings,
    *,
    toleration_s: int | None,
    node_grace_s: float | None,
    publish: tuple[str, ...],
) -> Settings:
    """The settings with what the options say."""
    if toleration_s is not None:
        settings = replace(settings, toleration_s=toleration_s)
    if node_grace_s is not None:
        settings = replace(settings, node_grace_s=node_grace_s)
    if publish:
        settings = replace(settings, publish=publishing.parse(publish))
    return settings


@click.command("up", epilog="\b\nA file for --config:\n\n\b\n" + wish.EXAMPLE)
@wish.config_option
@wish.nodes_option(f"How many nodes; default: as many as there are, else {DEFAULT_NODES}.")
@click.option(
    "--publish",
    multiple=True,
    metavar=publishing.FORM,
    help="A port of a node (the first) that the host publishes, on 127.0.0.1 unless an address is given; "
    "may be repeated. Default: as it is. Those given are all there are then; `none` takes all away.",
)
@click.option(
    "--build", is_flag=True, help="Build the image anew when the code changed, and replace the containers."
)
@click.option(
    "--toleration-seconds",
    "toleration_s",
    type=click.IntRange(min=0),
    help="How long new pods stay on a lost node; default: as it is, else 300.",
)
@click.option(
    "--node-grace-seconds",
    "node_grace_s",
    type=click.FloatRange(min=MIN_NODE_GRACE_S),
    help="How long a node may be silent before it is NotReady; default: as it is, else 50.",
)
@click.option(
    "--wait/--no-wait", default=True, help="Whether to wait until the API server and all nodes are ready."
)
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=1),
    default=bringup.READY_DEADLINE_S,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait.",
)
@pass_scope
def up(
    scope: Scope,
    config: str | None,
    nodes: int | None,
    publish: tuple[str, ...],
    build: bool,
    toleration_s: int | None,
    node_grace_s: float | None,
    wait: bool,
    timeout_s: float,
) -> None:
    """Bring the cluster up: make what is missing, start what stands still, touch nothing else.

    The first time it builds the image. It may be called again at any time: to grow the cluster, after a
    restart of the host, or after Ctrl-C. What it was told before, by options or a file, still holds.

    \b
    podyard up
    podyard up --nodes 3 --publish 8080:30080
    podyard --name other up
    podyard up --config lab.yaml
    """
    file = None if config is None else wish.read_file(config)
    name = wish.named_by(scope, file, str(config))
    settings = _told(
        wish.settled(StateDirectory(name).settings(), file),
        toleration_s=toleration_s,
        node_grace_s=node_grace_s,
        publish=publish,
    )
    request = bringup.UpRequest(
        settings.applied(ClusterSpec(name=name)),
        nodes=nodes if nodes is not None or file is None else file.nodes,
        rebuild=build,
        wait=wait,
        ready_deadline_s=timeout_s,
    )
    progress = for_this_terminal()
    result = with_engine(lambda engine: bringup.up(engine, request, progress))
    for each in result.spec.publish:
        progress.note(publishing.describe(name, each))
    reached = f"cluster {name}: {counted(result.spec.nodes, 'node')}"
    if result.steps:
        progress.note(f"{reached}. Next: {podyard_on(name)} kubectl get nodes")
    else:
        progress.note(f"{reached}, nothing to do")
