"""Termination messages: what a container leaves in a file of its own to say how it ended.

The file is mounted at the container's `terminationMessagePath`. With the policy
`FallbackToLogsOnError` the end of its log stands in for an empty file.

Source: kuberuntime_container.go getTerminationMessage, readLastStringFromContainerLogs.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from kubelet.logs import parse_record, tail_start
from kubelet.podbuild import log_directory, log_path
from kubelet.runtime.base import RuntimeContainer
from podyard.api.types import Container, Pod

_MAX_BYTES = 4096
_MAX_LOG_BYTES = 2048
_MAX_LOG_LINES = 80
_MODE = 0o666  # whoever the container runs as must be able to write


class EndMessages:
    """The files of one node's containers.

    Args:
        root: usually /var/lib/kubelet.
    """

    def __init__(self, root: Path) -> None:
        self._pods = root / "pods"

    async def prepare(self, uid: str, name: str, attempt: int) -> str:
        """Makes the empty file of a container that is about to start; answers its path on the node."""
        path = self._path(uid, name, attempt)
        await asyncio.to_thread(_make_empty, path)
        return str(path)

    async def read(self, pod: Pod, container: Container, ended: RuntimeContainer) -> str:
        """What a container that has ended left to say; "" for nothing."""
        return await asyncio.to_thread(self._read, pod, container, ended)

    def _read(self, pod: Pod, container: Container, ended: RuntimeContainer) -> str:
        path = self._path(pod.metadata.uid, ended.name, ended.attempt)
        try:
            with path.open("rb") as file:
                text = file.read(_MAX_BYTES).decode(errors="replace")
        except OSError:
            text = ""
        if text or ended.exit_code == 0 or container.terminationMessagePolicy != "FallbackToLogsOnError":
            return text
        return _log_tail(Path(log_directory(pod)) / log_path(ended.name, ended.attempt))

    def _path(self, uid: str, name: str, attempt: int) -> Path:
        return self._pods / uid / "containers" / name / str(attempt)


def _make_empty(path: Path) -> None:
    """Makes the file; those of all but the last restart go."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for old in path.parent.iterdir():
        if int(old.name) < int(path.name) - 1:
            old.unlink()
    path.write_bytes(b"")
    path.chmod(_MODE)


def _log_tail(path: Path) -> str:
    """The text of a log's last lines, at most as long as a message from logs may be."""
    try:
        with path.open("rb") as file:
            file.seek(tail_start(path, _MAX_LOG_LINES))
            records = [parse_record(line) for line in file]
    except OSError:
        return ""
    text = b"".join(record.text for record in records if record is not None)
    return text[-_MAX_LOG_BYTES:].decode(errors="replace")
