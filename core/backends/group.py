"""What every launcher tells a worker of its group, and its strategy joins by. Imports nothing heavy."""

from __future__ import annotations

import socket

LOOPBACK = "127.0.0.1"


def variables(
    rank: int,
    size: int,
    port: int,
    *,
    host: str = LOOPBACK,
    local_rank: int | None = None,
    local_size: int | None = None,
) -> dict[str, str]:
    """The environment of worker `rank` of `size`, who meet at `host` and `port`.

    Args:
        local_rank, local_size: among the workers of its node; by default all are on one.
    """
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": str(rank if local_rank is None else local_rank),
        "LOCAL_WORLD_SIZE": str(size if local_size is None else local_size),
        "MASTER_ADDR": host,
        "MASTER_PORT": str(port),
    }


def free_port(host: str = LOOPBACK) -> int:
    """A port that nobody listens at; an empty host means every address of this machine."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port
