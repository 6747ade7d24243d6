"""The default profile: upstream's plugins in upstream's order, with their weights."""

from __future__ import annotations

from scheduler.framework import Plugin
from scheduler.plugins.affinity import AFFINITY, NAME
from scheduler.plugins.images import IMAGES
from scheduler.plugins.interpod import INTERPOD
from scheduler.plugins.ports import PORTS
from scheduler.plugins.resources import BALANCED, FIT
from scheduler.plugins.spread import SPREAD
from scheduler.plugins.taints import TAINTS, UNSCHEDULABLE

DEFAULT: tuple[Plugin, ...] = (
    UNSCHEDULABLE,
    NAME,
    TAINTS,
    AFFINITY,
    PORTS,
    FIT,
    SPREAD,
    INTERPOD,
    BALANCED,
    IMAGES,
)
