"""`podyard compose`: the same cluster as a compose file, and what runs inside it once."""

from __future__ import annotations

import click

from podyard.base import clock
from podyard.cli.commands import Scope, pass_scope
from podyard.cluster.compose import DEFAULT_PLACEMENT, placement_of, render
from podyard.cluster.composefiles import write_files
from podyard.cluster.spec import ClusterSpec

_nodes = click.option(
    "--nodes", type=click.IntRange(min=0), default=2, show_default=True, help="How many nodes."
)
_subnet = click.option(
    "--subnet", default=DEFAULT_PLACEMENT.subnet, show_default=True, help="The cluster's network, a /22."
)


@click.command("compose")
@_nodes
@_subnet
@pass_scope
def compose(scope: Scope, nodes: int, subnet: str) -> None:
    """Print a compose file of a cluster like `up`'s, for compose 1.29 or later.

    The same image, names and labels, so the verbs, `status`, `logs` and `kubectl` work on it. `podyard build`
    makes the image.

    \b
    podyard --name lab compose --nodes 3 > lab.yaml
    docker-compose -p lab -f lab.yaml up -d
    podyard --name lab kubectl get nodes
    """
    spec = ClusterSpec(name=scope.name, nodes=nodes)
    click.echo(render(spec, placement_of(spec, subnet)), nl=False)


@click.command("compose-files", hidden=True)
@_nodes
@_subnet
@pass_scope
def compose_files(scope: Scope, nodes: int, subnet: str) -> None:
    """Write the files of a compose cluster's containers into their volumes; runs inside one of them."""
    spec = ClusterSpec(name=scope.name, nodes=nodes)
    for name in write_files(spec, placement_of(spec, subnet), now_s=clock.real_now_s()):
        click.echo(name)
