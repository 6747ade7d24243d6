"""What a compose cluster needs beside its compose file: its containers' files, and the host's state.

Runs once in a container, before the others. `podyard.cluster.adopting` fetches what it left for the host.
"""

from __future__ import annotations

import os
from pathlib import Path

from podyard.cluster.compose import FILES_DIRECTORY, REGISTRY_PORT_ON_HOST, STATE_DIRECTORY
from podyard.cluster.roles import CONFIG_DIRECTORY, Container, containers, registry
from podyard.cluster.spec import ClusterSpec, Placement
from podyard.cluster.state import StateDirectory


def write_files(
    spec: ClusterSpec, placement: Placement, *, now_s: float, root: Path = Path("/")
) -> list[str]:
    """Makes each container's volume hold its files and no others; answers the containers' names.

    Keys that are there are kept, so that it may run at each start.

    Args:
        now_s: real time.
        root: where the volumes' folders are.
    """
    os.environ["XDG_DATA_HOME"] = str(root / STATE_DIRECTORY.lstrip("/"))
    state = StateDirectory(spec.name)
    state.save_placement(spec, placement)
    material = state.material(spec, placement, now_s=now_s)
    state.write_kubeconfig(spec, placement, material)
    made = [*containers(spec, placement, material), registry(host_port=REGISTRY_PORT_ON_HOST)]
    for container in made:
        _write(container, root / FILES_DIRECTORY.lstrip("/") / container.name)
    return [container.name for container in made]


def _write(container: Container, directory: Path) -> None:
    wanted = {directory / Path(file.path).relative_to(CONFIG_DIRECTORY): file for file in container.files}
    for target, file in wanted.items():
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700 if target.parent.name == "pki" else 0o755)
        partial = target.with_name(target.name + ".new")
        partial.touch(mode=file.mode)
        partial.write_bytes(file.content)
        partial.replace(target)
    # What a former file of the cluster said must not go on: a certificate that is left is trusted.
    for path in sorted(directory.rglob("*"), reverse=True):
        if path.is_dir():
            if not any(path.iterdir()):
                path.rmdir()
        elif path not in wanted:
            path.unlink()
