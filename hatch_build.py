"""Build hook: generates podyard/api/gen for editable installs, wheels and images alike."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class GenerateMessages(BuildHookInterface):
    """Runs proto/build.py before anything is collected."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        sys.path.insert(0, str(Path(self.root) / "proto"))
        try:
            import build

            build.build()
        finally:
            sys.path.pop(0)
        build_data.setdefault("artifacts", []).append("podyard/api/gen/**")
