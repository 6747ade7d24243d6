"""Which engine a cluster lives on: the host keeps its state by the cluster's name alone.

A command in a shell that names another engine would act on the state of a cluster that it cannot see.
"""

from __future__ import annotations

from podyard.cluster.engine import Engine
from podyard.cluster.errors import ClusterError
from podyard.cluster.state import Home, StateDirectory


async def lives_here(engine: Engine, state: StateDirectory) -> bool:
    """Whether the host's state of a cluster is of one on this engine, as far as that was written down."""
    kept = state.engine()
    return kept is None or kept.id == await engine.identity()


async def require_home(engine: Engine, state: StateDirectory) -> Home:
    """The engine as the cluster's home.

    Raises:
        ClusterError: the cluster lives on another one.
    """
    here, kept = Home(await engine.identity(), engine.host), state.engine()
    if kept is not None and kept.id != here.id:
        raise ClusterError(
            f"the cluster {state.cluster!r} lives on another engine (id {kept.id}, reached at {kept.host}) "
            f"than this one (id {here.id}, reached at {here.host})",
            hint=f"set DOCKER_HOST or the docker context as when it was made, or choose another --name. "
            f"If it is the same engine with a new id, take the lines of `engine` out of "
            f"{state.path / 'cluster.yaml'}; if that engine is gone, remove {state.path}",
        )
    return here
