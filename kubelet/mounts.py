"""Mounts by system call: a program started for each would cost a pod's start more than all the rest of it.

Source: mount(2), umount2(2). The C library's functions release the interpreter while they run.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
from pathlib import Path

_LIBC = ctypes.CDLL(None, use_errno=True)
_MNT_DETACH = 2
# mountinfo writes blanks and the like as \040 (proc_pid_mountinfo(5)).
_ESCAPE = re.compile(r"\\([0-7]{3})")
_NOT_MOUNTED = (errno.EINVAL, errno.ENOENT)


def mount_tmpfs(directory: Path, limit_bytes: int = 0) -> bool:
    """Mounts a file system in memory; answers False where one is mounted already.

    Args:
        limit_bytes: its size; 0 leaves the kernel's half of the memory.

    Raises:
        OSError: it cannot be mounted.
    """
    if os.path.ismount(directory):
        return False
    options = f"size={limit_bytes}" if limit_bytes else "mode=0755"
    if _LIBC.mount(b"tmpfs", os.fsencode(directory), b"tmpfs", 0, options.encode()) != 0:
        raise _error(directory)
    return True


def detach(path: str | Path) -> None:
    """Unmounts lazily: a process that lingers keeps its files, the name is free at once.

    Nothing mounted there is fine.

    Raises:
        OSError: not allowed.
    """
    if _LIBC.umount2(os.fsencode(path), _MNT_DETACH) != 0 and ctypes.get_errno() not in _NOT_MOUNTED:
        raise _error(path)


def below(directory: Path) -> list[str]:
    """Mount points below a folder, in the order of their names: the outer before the inner."""
    prefix = f"{directory}/"
    lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    points = (_ESCAPE.sub(lambda found: chr(int(found[1], 8)), line.split()[4]) for line in lines)
    return sorted(point for point in points if point.startswith(prefix))


def _error(path: str | Path) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number), str(path))
