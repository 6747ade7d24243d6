"""The volumes of a pod on the node's disk.

Files of ConfigMaps and Secrets are written as upstream's atomic writer does: a new folder with all
of them, then one rename of the link `..data`, so that a reader sees the old or the new state and
never half of each. Secrets and memory-backed volumes live on tmpfs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from podyard.api import quantity
from podyard.api.types import ConfigMap, Pod, Secret, Volume
from podyard.base import ids

Lookup = Callable[[Any, str, str], Awaitable[Any]]

_DEFAULT_MODE = 0o644
_MOUNT_TIMEOUT_S = 20


class VolumeError(Exception):
    """A volume can't be set up; the text goes into a FailedMount event."""


@dataclass(frozen=True, slots=True)
class File:
    """One file to be written."""

    data: bytes
    mode: int


class Volumes(Protocol):
    """What the kubelet asks; `PodVolumes` on disk, `NoVolumes` where containers are hollow."""

    def known_pods(self) -> list[str]: ...

    async def set_up(self, pod: Pod, lookup: Lookup) -> dict[str, str]: ...

    def tear_down(self, uid: str) -> None: ...


class NoVolumes:
    """Volumes of pods whose containers open no files."""

    def known_pods(self) -> list[str]:
        return []

    async def set_up(self, pod: Pod, lookup: Lookup) -> dict[str, str]:
        return {volume.name: f"/hollow/{volume.name}" for volume in pod.spec.volumes}

    def tear_down(self, uid: str) -> None:
        pass


class PodVolumes:
    """Sets up and tears down.

    Args:
        root: usually /var/lib/kubelet.
    """

    def __init__(self, root: Path) -> None:
        self._pods = root / "pods"

    def pod_directory(self, uid: str) -> Path:
        return self._pods / uid

    def known_pods(self) -> list[str]:
        """Uids of pods that have something on disk."""
        return sorted(os.listdir(self._pods)) if self._pods.is_dir() else []

    async def set_up(self, pod: Pod, lookup: Lookup) -> dict[str, str]:
        """Makes or refreshes all volumes of a pod; answers volume name -> path on the node.

        Raises:
            VolumeError: something is missing or not supported.
        """
        paths: dict[str, str] = {}
        group = pod.spec.securityContext.fsGroup if pod.spec.securityContext.HasField("fsGroup") else None
        for volume in pod.spec.volumes:
            paths[volume.name] = str(await self._set_up(pod, volume, group, lookup))
        return paths

    async def _set_up(self, pod: Pod, volume: Volume, group: int | None, lookup: Lookup) -> Path:
        source = volume.volumeSource
        if source.HasField("emptyDir"):
            return self._empty_dir(pod, volume, group)
        if source.HasField("hostPath"):
            return _host_path(source.hostPath)
        if source.HasField("configMap"):
            config = source.configMap
            name = config.localObjectReference.name
            found = await lookup(ConfigMap, pod.metadata.namespace, name)
            files = _files(
                {**_encoded(found.data), **dict(found.binaryData)} if found is not None else None,
                config,
                f'configmap "{name}" not found',
                volume.name,
            )
            return self._write(pod, volume, "configmap", files, group, memory=False)
        if source.HasField("secret"):
            secret = source.secret
            found = await lookup(Secret, pod.metadata.namespace, secret.secretName)
            data = dict(found.data) if found is not None else None
            files = _files(data, secret, f'secret "{secret.secretName}" not found', volume.name)
            return self._write(pod, volume, "secret", files, group, memory=True)
        kind = next((field.name for field, _ in source.ListFields()), "none")
        raise VolumeError(
            f'MountVolume.SetUp failed for volume "{volume.name}" : volumes of type {kind} are not supported'
        )

    def _directory(self, pod: Pod, plugin: str, name: str) -> Path:
        return self.pod_directory(pod.metadata.uid) / "volumes" / f"kubernetes.io~{plugin}" / name

    def _empty_dir(self, pod: Pod, volume: Volume, group: int | None) -> Path:
        directory = self._directory(pod, "empty-dir", volume.name)
        fresh = not directory.is_dir()
        directory.mkdir(parents=True, exist_ok=True)
        empty = volume.volumeSource.emptyDir
        if empty.medium == "Memory":
            limit = quantity.of(empty.sizeLimit).value if empty.HasField("sizeLimit") else 0
            _mount_tmpfs(directory, limit)
        if fresh or empty.medium == "Memory":
            _own(directory, group, 0o777)
        return directory

    def _write(
        self,
        pod: Pod,
        volume: Volume,
        plugin: str,
        files: Mapping[str, File],
        group: int | None,
        *,
        memory: bool,
    ) -> Path:
        directory = self._directory(pod, plugin, volume.name)
        directory.mkdir(parents=True, exist_ok=True)
        if memory:
            _mount_tmpfs(directory, 0)
        write_atomically(directory, files, group)
        return directory

    def tear_down(self, uid: str) -> None:
        """Unmounts and removes all that a pod has on disk. Nothing there is fine."""
        directory = self.pod_directory(uid)
        for mount in reversed(_mounts_below(directory)):
            subprocess.run(
                ["umount", "-l", mount], check=False, timeout=_MOUNT_TIMEOUT_S, capture_output=True
            )
        shutil.rmtree(directory, ignore_errors=True)


def write_atomically(directory: Path, files: Mapping[str, File], group: int | None = None) -> bool:
    """Makes `directory` hold just these files; answers whether anything changed."""
    link = directory / "..data"
    if link.is_symlink() and _same(link, files):
        return False
    fresh = directory / f"..{ids.hex_id(12)}"
    fresh.mkdir(mode=0o755)
    for name, file in files.items():
        target = fresh / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.data)
        target.chmod(file.mode)
        if group is not None:
            os.chown(target, -1, group)
            target.chmod(file.mode | 0o040)
    old = os.readlink(link) if link.is_symlink() else None
    swap = directory / "..data_tmp"
    swap.unlink(missing_ok=True)
    swap.symlink_to(fresh.name)
    swap.rename(link)
    tops = {name.partition("/")[0] for name in files}
    for top in tops:
        visible = directory / top
        if not visible.is_symlink():
            visible.symlink_to(f"..data/{top}")
    for entry in directory.iterdir():
        if entry.is_symlink() and not entry.name.startswith("..") and entry.name not in tops:
            entry.unlink()
    if old is not None:
        shutil.rmtree(directory / old, ignore_errors=True)
    return True


def _same(link: Path, files: Mapping[str, File]) -> bool:
    present = {str(path.relative_to(link)) for path in link.rglob("*") if path.is_file()}
    if present != set(files):
        return False
    return all((link / name).read_bytes() == file.data for name, file in files.items())


def _files(data: Mapping[str, bytes] | None, source: Any, missing: str, volume: str) -> dict[str, File]:
    """Which files a ConfigMap or Secret volume has; `items` choose and rename."""
    failed = f'MountVolume.SetUp failed for volume "{volume}" : '
    if data is None:
        if source.optional:
            return {}
        raise VolumeError(failed + missing)
    default = source.defaultMode if source.HasField("defaultMode") else _DEFAULT_MODE
    if not source.items:
        return {key: File(value, default) for key, value in data.items()}
    chosen = {}
    for item in source.items:
        if item.key not in data:
            if source.optional:
                continue
            raise VolumeError(f"{failed}references non-existent config key: {item.key}")
        chosen[item.path] = File(data[item.key], item.mode if item.HasField("mode") else default)
    return chosen


def _encoded(data: Mapping[str, str]) -> dict[str, bytes]:
    return {key: value.encode() for key, value in data.items()}


def _host_path(source: Any) -> Path:
    path = Path(source.path)
    kind = source.type
    if kind == "DirectoryOrCreate":
        path.mkdir(parents=True, exist_ok=True)
    elif kind == "FileOrCreate":
        path.touch(exist_ok=True)
    elif (kind == "Directory" and not path.is_dir()) or (kind == "File" and not path.is_file()):
        raise VolumeError(f"hostPath type check failed: {path} is not a {kind.lower()}")
    return path


def _own(directory: Path, group: int | None, mode: int) -> None:
    directory.chmod(mode)
    if group is not None:
        os.chown(directory, -1, group)
        directory.chmod(0o2775)


def _mount_tmpfs(directory: Path, limit_bytes: int) -> None:
    if os.path.ismount(directory):
        return
    options = f"size={limit_bytes}" if limit_bytes else "mode=0755"
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(directory)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_MOUNT_TIMEOUT_S)
    if done.returncode:
        raise VolumeError(f"mount of {directory} failed: {done.stderr.strip()}")


def _mounts_below(directory: Path) -> list[str]:
    prefix = f"{directory}/"
    lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    return sorted(point for point in (line.split()[4] for line in lines) if point.startswith(prefix))
