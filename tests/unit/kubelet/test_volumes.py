"""Volumes on disk: what containers find, refreshes, kills in between, what is refused."""

# ruff: noqa: ASYNC240 - tests look at the disk as they go

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from kubelet.volumes import File, PodVolumes, VolumeError, write_atomically
from podyard.api import errors
from podyard.api.types import ConfigMap, Pod, Secret

UID = "u1"


def pod(*volumes: dict, **spec) -> Pod:
    """A pod with volumes, each {"name", "volumeSource"}."""
    return Pod(
        metadata={"name": "web", "namespace": "default", "uid": UID}, spec={"volumes": volumes, **spec}
    )


def volume(name: str = "v", **source) -> dict:
    return {"name": name, "volumeSource": source}


class Objects:
    """What the API has."""

    def __init__(self, *objects) -> None:
        self.objects = {(type(obj), obj.metadata.name): obj for obj in objects}
        self.fails: Exception | None = None

    async def __call__(self, kind, namespace, name):
        assert namespace == "default"
        if self.fails is not None:
            raise self.fails
        return self.objects.get((kind, name))


def config(name: str = "conf", **data: str) -> ConfigMap:
    return ConfigMap(metadata={"name": name}, data=data)


def secret(name: str = "keys", **data: bytes) -> Secret:
    return Secret(metadata={"name": name}, data=data)


CONFIG = {"configMap": {"localObjectReference": {"name": "conf"}}}


@pytest.fixture
def mounts() -> list[tuple[Path, int]]:
    return []


@pytest.fixture
def volumes(tmp_path: Path, mounts: list[tuple[Path, int]]) -> PodVolumes:
    def mount(directory: Path, limit_bytes: int) -> bool:
        if any(directory == known for known, _ in mounts):
            return False
        mounts.append((directory, limit_bytes))
        return True

    return PodVolumes(tmp_path, mount)


def files_in(path: str) -> dict[str, str]:
    return {
        entry.name: entry.read_text()
        for entry in sorted(Path(path).iterdir())
        if not entry.name.startswith("..")
    }


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def test_files_of_a_config_map_follow_it(volumes):
    objects = Objects(config(a="1", b="2"))
    path = (await volumes.set_up(pod(volume(**CONFIG)), objects))["v"]
    assert path.endswith(f"/pods/{UID}/volumes/kubernetes.io~configmap/v")
    assert files_in(path) == {"a": "1", "b": "2"}
    objects.objects[ConfigMap, "conf"] = config(b="3", c="4")
    await volumes.set_up(pod(volume(**CONFIG)), objects)
    assert files_in(path) == {"b": "3", "c": "4"}
    # One state is kept, not all there ever were.
    assert len([name for name in os.listdir(path) if name.startswith("..")]) == 2


async def test_binary_data_items_paths_and_modes(volumes):
    source = {
        "configMap": {
            "localObjectReference": {"name": "conf"},
            "defaultMode": 0o600,
            "items": [{"key": "a", "path": "deep/er/a"}, {"key": "bin", "path": "b", "mode": 0o444}],
        }
    }
    obj = ConfigMap(metadata={"name": "conf"}, data={"a": "1", "unused": "x"}, binaryData={"bin": b"\xff"})
    path = Path((await volumes.set_up(pod(volume(**source)), Objects(obj)))["v"])
    assert (path / "deep/er/a").read_text() == "1"
    assert (path / "b").read_bytes() == b"\xff"
    assert (mode_of(path / "deep/er/a"), mode_of(path / "b")) == (0o600, 0o444)
    assert sorted(name for name in os.listdir(path) if not name.startswith("..")) == ["b", "deep"]


async def test_secrets_live_on_tmpfs(volumes, mounts):
    path = (await volumes.set_up(pod(volume(secret={"secretName": "keys"})), Objects(secret(key=b"s"))))["v"]
    assert mounts == [(Path(path), 0)]
    assert files_in(path) == {"key": "s"}


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (CONFIG, 'configmap "conf" not found'),
        ({"secret": {"secretName": "keys"}}, 'secret "keys" not found'),
        (
            {"configMap": {"localObjectReference": {"name": "there"}, "items": [{"key": "x", "path": "x"}]}},
            "configmap references non-existent config key: x",
        ),
        (
            {"secret": {"secretName": "there", "items": [{"key": "x", "path": "x"}]}},
            "references non-existent secret key: x",
        ),
        (
            {"hostPath": {"path": "/no/such", "type": "Directory"}},
            "hostPath type check failed: /no/such is not a directory",
        ),
        ({"hostPath": {"path": "/etc", "type": "File"}}, "hostPath type check failed: /etc is not a file"),
        ({"nfs": {"server": "s", "path": "/"}}, "volumes of type nfs are not supported"),
    ],
)
async def test_what_is_missing_is_said_in_upstreams_words(volumes, source, text):
    objects = Objects(config("there"), secret("there"))
    with pytest.raises(VolumeError) as caught:
        await volumes.set_up(pod(volume(**source)), objects)
    assert str(caught.value) == f'MountVolume.SetUp failed for volume "v" : {text}'


async def test_what_is_optional_may_be_missing(volumes):
    source = {"configMap": {"localObjectReference": {"name": "conf"}, "optional": True}}
    path = (await volumes.set_up(pod(volume(**source)), Objects()))["v"]
    assert files_in(path) == {}


async def test_a_server_that_is_away_is_a_volume_error(volumes):
    objects = Objects()
    objects.fails = errors.Unavailable("no connection")
    with pytest.raises(VolumeError, match="no connection"):
        await volumes.set_up(pod(volume(**CONFIG)), objects)


async def test_empty_dirs_keep_what_is_in_them_and_their_mode(volumes, mounts):
    subject = pod(
        volume(emptyDir={}), volume("m", emptyDir={"medium": "Memory", "sizeLimit": {"string": "1Mi"}})
    )
    paths = await volumes.set_up(subject, Objects())
    for path in map(Path, paths.values()):
        assert mode_of(path) == 0o777
        (path / "file").write_text("kept")
        path.chmod(0o700)
    assert await volumes.set_up(subject, Objects()) == paths
    for path in map(Path, paths.values()):
        assert mode_of(path) == 0o700
        assert (path / "file").read_text() == "kept"
    assert mounts == [(Path(paths["m"]), 1 << 20)]


async def test_a_group_owns_what_it_must_write(volumes):
    group = os.getgid()
    subject = pod(volume(emptyDir={}), volume("c", **CONFIG), securityContext={"fsGroup": group})
    paths = await volumes.set_up(subject, Objects(config(a="1")))
    assert mode_of(Path(paths["v"])) == 0o2777
    assert Path(paths["c"], "a").stat().st_gid == group
    assert mode_of(Path(paths["c"], "a")) & 0o040


async def test_host_paths_are_made_where_asked(volumes, tmp_path):
    for kind, name in (("DirectoryOrCreate", "folder"), ("FileOrCreate", "file"), ("", "nothing")):
        target = tmp_path / name
        source = {"hostPath": {"path": str(target), "type": kind}}
        assert (await volumes.set_up(pod(volume(**source)), Objects()))["v"] == str(target)
    assert (tmp_path / "folder").is_dir()
    assert (tmp_path / "file").is_file()
    assert not (tmp_path / "nothing").exists()


async def test_sub_paths_are_made_and_may_not_leave_the_volume(volumes, tmp_path):
    path = (await volumes.set_up(pod(volume(emptyDir={})), Objects()))["v"]
    made = await volumes.sub_path(UID, path, "a/b")
    assert Path(made).is_dir()
    assert made == f"{os.path.realpath(path)}/a/b"
    Path(path, "inside").symlink_to("a/b")
    assert await volumes.sub_path(UID, path, "inside") == made
    Path(path, "out").symlink_to(tmp_path)
    with pytest.raises(VolumeError, match="leads out of its volume"):
        await volumes.sub_path(UID, path, "out/secret")
    assert not (tmp_path / "secret").exists()


async def test_a_file_of_a_config_map_is_a_sub_path(volumes):
    path = (await volumes.set_up(pod(volume(**CONFIG)), Objects(config(a="1"))))["v"]
    assert Path(await volumes.sub_path(UID, path, "a")).read_text() == "1"


async def test_the_hosts_file_is_one_file_that_is_rewritten_in_place(volumes):
    path = Path(await volumes.hosts_file(UID, lambda own: "one\n"))
    number = path.stat().st_ino
    assert await volumes.hosts_file(UID, lambda own: f"two\n{own}") == str(path)
    assert path.read_text() == "two\n" + Path("/etc/hosts").read_text()
    assert path.stat().st_ino == number
    await volumes.tear_down(UID)
    assert not path.exists()


async def test_nothing_is_left_of_a_pod(volumes, tmp_path):
    await volumes.set_up(pod(volume(emptyDir={}), volume("c", **CONFIG)), Objects(config(a="1")))
    assert volumes.known_pods() == [UID]
    await volumes.tear_down(UID)
    await volumes.tear_down(UID)
    assert volumes.known_pods() == []
    assert volumes._locks == {}


async def test_the_disk_is_not_touched_on_the_loops_thread(tmp_path):
    threads = set()

    def mount(directory, limit_bytes):
        threads.add(threading.current_thread())
        return True

    await PodVolumes(tmp_path, mount).set_up(pod(volume(emptyDir={"medium": "Memory"})), Objects())
    assert threading.main_thread() not in threads
    assert len(threads) == 1


# Kills between any two steps of the atomic write.

OLD = {"a": File(b"old", 0o644), "gone": File(b"x", 0o644)}
NEW = {"a": File(b"new", 0o644), "b": File(b"more", 0o644)}


class Killed(BaseException):
    pass


@pytest.mark.parametrize("step", range(14))
def test_a_kill_at_any_line_leaves_the_old_or_the_new_state_and_the_next_call_completes_it(
    tmp_path, monkeypatch, step
):
    write_atomically(tmp_path, OLD)
    left = [step]

    def counted(original):
        def call(*arguments, **more):
            if not left[0]:
                raise Killed
            left[0] -= 1
            return original(*arguments, **more)

        return call

    with monkeypatch.context() as patch:
        for name in ("mkdir", "write_bytes", "chmod", "symlink_to", "rename", "unlink"):
            patch.setattr(Path, name, counted(getattr(Path, name)))
        try:
            write_atomically(tmp_path, NEW)
        except Killed:
            pass
    assert (tmp_path / "a").read_bytes() in (b"old", b"new")
    write_atomically(tmp_path, NEW)
    shown = {
        name: (tmp_path / name).read_bytes() for name in os.listdir(tmp_path) if not name.startswith("..")
    }
    assert shown == {"a": b"new", "b": b"more"}
    states = [name for name in os.listdir(tmp_path) if name.startswith("..") and name != "..data"]
    assert states == [os.readlink(tmp_path / "..data")]
    assert write_atomically(tmp_path, NEW) is False
