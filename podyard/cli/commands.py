"""The command tree, and how failures become messages and exit codes."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from podyard.cli import colours, completing
from podyard.cli.main import EPILOG, load_command
from podyard.cli.mistyped import SuggestingGroup, meant_for_kubectl
from podyard.cluster.errors import ClusterError
from podyard.cluster.spec import DEFAULT_NAME, require_name
from podyard.cluster.version import VERSION

INTERRUPTED_EXIT = 130
_RIGHTS_HINT = "see that this user may read and write there, and that the file system is not read-only"
_FILES_HINTS = {
    errno.EACCES: _RIGHTS_HINT,
    errno.EPERM: _RIGHTS_HINT,
    errno.EROFS: _RIGHTS_HINT,
    errno.ENOSPC: "make room on that disk; what was begun goes on from there",
    errno.EDQUOT: "make room on that disk; what was begun goes on from there",
    errno.ENOENT: "see that the name is right, and that the folder exists",
}
_FILE_HINT = "see what is there"


@dataclass(frozen=True, slots=True)
class Scope:
    """What is true of every command: which cluster it means, and whether the user named it."""

    name: str
    named: bool = True

    def __post_init__(self) -> None:
        # Before anything is looked up by it: the host keeps a cluster's state in a folder of this name.
        require_name(self.name)


def _choose(context: click.Context, _: click.Parameter, name: str | None) -> None:
    if name is not None:
        context.obj = Scope(name)


def name_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Lets `--name` stand after the command's word too, where it wins; the scope takes it in.

    A group's subcommands inherit the group's.
    """
    option = click.option(
        "--name",
        expose_value=False,
        callback=_choose,
        shell_complete=completing.clusters,
        help="Which cluster, as before the command.",
    )
    return option(command)


def pass_scope(command: Callable[..., Any]) -> Callable[..., Any]:
    """A command whose first argument is the `Scope`, and which has `--name`."""
    return name_option(click.pass_obj(command))


# Short texts stand here so that `--help` imports no subcommand. What has none is for podyard itself: what
# containers run.
_COMMANDS = {
    "up": ("podyard.cli.up:up", "Bring the cluster up, grow it, or repair it."),
    "build": ("podyard.cli.cluster:build", "Build the image, where it is missing or the code changed."),
    "down": ("podyard.cli.cluster:down", "Remove the cluster with all its data."),
    "status": ("podyard.cli.cluster:status", "Show each container and whether it is ready."),
    "list": ("podyard.cli.cluster:list_clusters", "Show the clusters of this host."),
    "node": ("podyard.cli.machines:node", "Kill, stop, freeze, cut off, add or remove a node."),
    "component": ("podyard.cli.machines:component", "The same for etcd, apiserver, scheduler, controllers."),
    "logs": ("podyard.cli.cluster:logs", "Show what a component prints."),
    "push": ("podyard.cli.cluster:push", "Put an image of the local engine where the nodes pull from."),
    "kubectl": ("podyard.cli.kubectl:kubectl", "Run the real kubectl on this cluster."),
    "kubeconfig": ("podyard.cli.kubectl:kubeconfig", "Print the kubeconfig, or merge it into your own."),
    "doctor": ("podyard.cli.doctor:doctor", "Check whether this host can carry a cluster."),
    "completion": ("podyard.cli.doctor:completion", "Print what makes the shell complete podyard's words."),
    "compose": ("podyard.cli.compose:compose", "Print a compose file of the same cluster."),
    "run": ("podyard.cli.component:run", ""),
    "compose-files": ("podyard.cli.compose:compose_files", ""),
    "init": ("", ""),
}


class LazyGroup(SuggestingGroup):
    """Knows its commands' names and imports each when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        target, _ = _COMMANDS.get(cmd_name, ("", ""))
        if not target:
            return None
        command = load_command(target)
        assert isinstance(command, click.Command)
        return command

    def shown_commands(self, ctx: click.Context) -> list[str]:
        return [name for name, (_, text) in _COMMANDS.items() if text]

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        # click itself would import every subcommand for its text.
        words = [
            CompletionItem(name, help=_COMMANDS[name][1])
            for name in self.shown_commands(ctx)
            if name.startswith(incomplete)
        ]
        return words + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, _COMMANDS[name][1]) for name in self.shown_commands(ctx)])


@click.group(cls=LazyGroup, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--name",
    default=DEFAULT_NAME,
    show_default=True,
    envvar="PODYARD_NAME",
    show_envvar=True,
    shell_complete=completing.clusters,
    help="Which cluster; may stand after the command too.",
)
@click.version_option(VERSION, prog_name="podyard")
@click.pass_context
def podyard(context: click.Context, name: str) -> None:
    """A Kubernetes-compatible multi-node cluster in containers; stop any part and watch the rest.

    \b
    podyard up                                   a cluster with two nodes
    podyard kubectl run web --image=nginx        a pod
    podyard kubectl get pods -o wide --watch
    podyard --name other up --nodes 3            another cluster beside it
    podyard down
    """
    context.color = colours.allowed(os.environ)
    named = context.get_parameter_source("name") is not ParameterSource.DEFAULT
    context.obj = Scope(name, named)


def run() -> int:
    """Runs the command line; every expected failure is a message on standard error and an exit code."""
    try:
        result = podyard.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        if isinstance(error, click.UsageError):
            command = meant_for_kubectl(error, sys.argv[1:], _COMMANDS)
            _hint(f"that is kubectl's: {command}" if command else "")
        return error.exit_code
    except ClusterError as error:
        return _fail(str(error), error.hint, error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        return _fail("interrupted", "podyard up goes on from where it was", INTERRUPTED_EXIT)
    except BrokenPipeError:
        # The reader, such as `head`, has seen enough.
        sys.stderr.close()
        return 0
    except OSError as error:
        # One without a file's name is no matter of the user's files but ours.
        if error.filename is None:
            raise
        return _fail(
            f"{error.filename}: {error.strerror}",
            _FILES_HINTS.get(error.errno or 0, _FILE_HINT),
            ClusterError.exit_code,
        )
    return result if isinstance(result, int) else 0


def _fail(message: str, hint: str, code: int) -> int:
    # The context, which knew about colours, has ended.
    color = colours.allowed(os.environ)
    click.echo(f"{click.style('error:', fg='red', bold=True)} {message}", err=True, color=color)
    _hint(hint)
    return code


def _hint(text: str) -> None:
    for line in text.splitlines():
        click.echo(f"{click.style('hint:', fg='cyan')} {line}", err=True, color=colours.allowed(os.environ))
