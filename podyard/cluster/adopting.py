"""The host's state of a cluster that compose has made: fetched when a command first asks for it."""

from __future__ import annotations

import tarfile
import tempfile

from podyard.cluster.compose import FILES, STATE_DIRECTORY
from podyard.cluster.engine import Engine
from podyard.cluster.state import StateDirectory, data_directory

# Beside what was fetched: the container that it came from.
_ADOPTED = "adopted-from"


def is_known(cluster: str) -> bool:
    """Whether the host has a cluster's state for good: what was adopted may have been made anew since."""
    state = StateDirectory(cluster)
    return state.kubeconfig.exists() and not (state.path / _ADOPTED).exists()


async def adopt(engine: Engine, cluster: str) -> None:
    """Fetches the host's state of a cluster that compose has made; of any other nothing is to be done."""
    if is_known(cluster):
        return
    source = await engine.container_id(f"{cluster}-{FILES}")
    state = StateDirectory(cluster)
    mark = state.path / _ADOPTED
    if not source or (mark.exists() and mark.read_text(encoding="ascii") == source):
        return
    with tempfile.TemporaryFile() as archive:
        if not await engine.copy_out(f"{cluster}-{FILES}", f"{STATE_DIRECTORY}/podyard/{cluster}", archive):
            return  # it has not run yet
        archive.seek(0)
        state.remove()
        data_directory().mkdir(parents=True, exist_ok=True, mode=0o700)
        with tarfile.open(fileobj=archive) as tar:
            tar.extractall(data_directory(), filter="data")
    state.path.chmod(0o700)
    mark.write_text(source, encoding="ascii")
