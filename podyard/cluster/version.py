"""The version of this distribution, which is also the image's tag."""

from __future__ import annotations

from importlib import metadata

try:
    VERSION = metadata.version("podyard")
except metadata.PackageNotFoundError:
    # Inside the image the code is laid over, not installed; nothing there asks for the tag.
    VERSION = "dev"
