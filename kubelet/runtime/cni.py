"""The CNI configuration of a node's pods: a point-to-point link each, addresses from the node's range."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

NAME = "10-podyard.conflist"
# Outside /run: entries must survive a restart of the node, until the dead sandboxes are removed.
ADDRESS_DIRECTORY = "/var/lib/cni/networks"
NETWORK = "podyard"


def network_config(cidr: str, mtu: int) -> dict[str, Any]:
    """The configuration list for a pod range such as 10.244.1.0/24."""
    return {
        "cniVersion": "1.0.0",
        "name": NETWORK,
        "plugins": [
            {
                "type": "ptp",
                "mtu": mtu,
                # The proxy owns masquerading.
                "ipMasq": False,
                "ipam": {
                    "type": "host-local",
                    "dataDir": ADDRESS_DIRECTORY,
                    "ranges": [[{"subnet": cidr}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
        ],
    }


def write_network_config(directory: Path, cidr: str, mtu: int) -> bool:
    """Writes the configuration whole or not at all; answers whether anything changed."""
    text = json.dumps(network_config(cidr, mtu), indent=2) + "\n"
    target = directory / NAME
    if target.exists() and target.read_text() == text:
        return False
    directory.mkdir(parents=True, exist_ok=True)
    scratch = directory / f".{NAME}.new"
    scratch.write_text(text)
    scratch.rename(target)
    return True
