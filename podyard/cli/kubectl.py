"""`podyard kubectl` and `podyard kubeconfig`: the real kubectl, and what points it at the cluster."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress
from itertools import takewhile

import click
from click.shell_completion import CompletionItem

from podyard.cli import completing
from podyard.cli.cluster import with_engine
from podyard.cli.commands import Scope, pass_scope
from podyard.cluster import adopting, userconfig
from podyard.cluster.errors import ClusterError, NotFoundError
from podyard.cluster.kubectl import find_kubectl
from podyard.cluster.state import StateDirectory
from podyard.cluster.wording import podyard_on


class _Verbatim(click.Command):
    """A command whose arguments are another program's, but for `--name` in front of them.

    click itself would take the first `--` away.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # For a completion the name may not be there yet.
        begun = ctx.resilient_parsing and args == ["--name"]
        name, rest = (None, args) if begun else leading_name(args)
        if name is not None:
            ctx.obj = Scope(name)
        ctx.params["arguments"] = tuple(rest)
        return []

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        # click asks here for what begins like an option.
        return completing.kubectl_words(ctx, self.params[0], incomplete)


def leading_name(arguments: Sequence[str]) -> tuple[str | None, Sequence[str]]:
    """The cluster that `--name` at the very beginning chooses, if any, and kubectl's own words.

    Raises:
        click.UsageError: `--name` without a name.
    """
    first, equals, value = (arguments[0] if arguments else "").partition("=")
    if first != "--name":
        return None, arguments
    if equals:
        return value, arguments[1:]
    if len(arguments) < 2:
        raise click.UsageError("Option '--name' requires an argument.")
    return arguments[1], arguments[2:]


def asks_a_cluster(arguments: Sequence[str]) -> bool:
    """False for what kubectl answers by itself: help, its own version, completion, its options."""
    own = list(takewhile(lambda word: word != "--", arguments))
    if not own or own[0] in {"help", "completion", "options"} or not {"-h", "--help"}.isdisjoint(own):
        return False
    return not (own[0] == "version" and not {"--client", "--client=true"}.isdisjoint(own))


@click.command("kubectl", cls=_Verbatim, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, shell_complete=completing.kubectl_words)
@click.pass_obj
def kubectl(scope: Scope, arguments: tuple[str, ...]) -> None:
    """Run the real kubectl on this cluster; everything after the word, but a leading --name, is its.

    \b
    podyard kubectl get nodes -o wide
    podyard kubectl --name other apply -f pod.yaml
    """
    binary = find_kubectl()
    environment = {**os.environ, "KUBECONFIG": kubeconfig_for(scope.name, arguments)}
    sys.stdout.flush()
    # Replaces this process, so that signals, the terminal and the exit code are kubectl's own.
    os.execve(binary, ["kubectl", *arguments], environment)


def kubeconfig_for(name: str, arguments: Sequence[str]) -> str:
    """The file that points kubectl at the cluster; an empty one where there is none and none is asked.

    Raises:
        NotFoundError: there is no cluster, and the words ask one.
    """
    if not asks_a_cluster(arguments) and not StateDirectory(name).kubeconfig.exists():
        return os.devnull
    return str(_existing(name).kubeconfig)


@click.command("kubeconfig")
@click.option(
    "--merge",
    is_flag=True,
    help="Add it to ~/.kube/config (or the first file that KUBECONFIG names) and make its context the "
    "current one, until `down` takes it out.",
)
@pass_scope
def kubeconfig(scope: Scope, merge: bool) -> None:
    """Print the administrator's kubeconfig, certificates embedded.

    \b
    podyard kubeconfig > cluster.yaml
    podyard kubeconfig --merge && kubectl get nodes
    """
    state = _existing(scope.name)
    if not merge:
        click.echo(state.kubeconfig.read_text(encoding="utf-8"), nl=False)
        return
    done = userconfig.merge(state)
    click.echo(f"{done.path}: the context {done.context} is the current one now", err=True)
    if done.before not in {"", done.context}:
        back = shlex.join(["kubectl", "config", "use-context", done.before])
        click.echo(f"before it was {done.before}, to which this goes back: {back}", err=True)


def _existing(name: str) -> StateDirectory:
    state = StateDirectory(name)
    if not adopting.is_known(name):
        with suppress(ClusterError):  # no engine, no cluster: what is here decides
            with_engine(lambda engine: adopting.adopt(engine, name))
    if not state.kubeconfig.exists():
        raise NotFoundError(f"there is no cluster {name!r} on this host", hint=f"{podyard_on(name)} up")
    return state
