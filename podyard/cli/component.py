"""`podyard run ROLE`: one component in the foreground, as its supervisor starts it."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from typing import Any

import click

from podyard.base import config as configuration
from podyard.base import log
from podyard.base import run as lifecycle
from podyard.cluster.errors import ClusterError
from podyard.cluster.flags import FLAGS

ROLES = {
    "apiserver": "apiserver.main",
    "scheduler": "scheduler.main",
    "controller-manager": "controller_manager.main",
    "kubelet": "kubelet.main",
    "proxy": "proxy.main",
}


def _settable() -> str:
    """Names of the flags that a cluster file may set, a line each component."""
    lines = [f"{component}: {', '.join(flags)}" for component, flags in FLAGS.items()]
    return "\b\nFlags that `podyard up --config` takes:\n" + "\n".join(f"  {line}" for line in lines)


@click.command("run", hidden=True, epilog=_settable())
@click.argument("role", type=click.Choice(list(ROLES)))
@click.option(
    "--config",
    "file",
    type=click.Path(dir_okay=False),
    default="/etc/podyard/config.yaml",
    show_default=True,
    help="YAML file with the component's configuration; unknown keys are errors.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    envvar="PODYARD_LOG_LEVEL",
    help="How much it says; default: what its configuration says, else info.",
)
def run(role: str, file: str, log_level: str | None) -> None:
    """Run one component until SIGTERM, as each container does; `podyard kubectl run` runs a pod.

    Its configuration is the file, then the environment (PODYARD_ROLE_KEY, such as PODYARD_SCHEDULER_NAME).

    \b
    podyard run scheduler --config /etc/podyard/config.yaml
    """
    module = _component(role)
    prefix = f"PODYARD_{role.upper().replace('-', '_')}"
    try:
        settings = configuration.load(module.Config, file, environment=os.environ, environment_prefix=prefix)
    except configuration.ConfigError as error:
        raise click.UsageError(str(error)) from error
    log.configure(role, log_level or str(getattr(settings, "log_level", "info")))
    log.get_logger(role).info("starting", config=configuration.redacted(settings))
    sys.exit(lifecycle.run(lambda stop: module.main(settings, stop), component=role))


def _component(role: str) -> Any:
    name = ROLES[role]
    if importlib.util.find_spec(name) is None:
        raise ClusterError(
            f"the {role} is not part of this installation (no module {name})",
            hint="install podyard again",
        )
    return importlib.import_module(name)
