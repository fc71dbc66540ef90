"""Where each worker of a group is, in Horovod's terms."""

from __future__ import annotations

from collections.abc import Sequence

import attrs


@attrs.frozen(kw_only=True)
class Slot:
    """A worker's place.

    Attributes:
        local_rank, local_size: among the workers of its host.
        cross_rank, cross_size: among the workers with its local rank, one on each host that has so many.
    """

    hostname: str
    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int

    def variables(self) -> dict[str, str]:
        """What tells Horovod in this worker's environment."""
        return {f"HOROVOD_{key.upper()}": str(value) for key, value in attrs.asdict(self).items()}


def slots(hosts: Sequence[str]) -> list[Slot]:
    """The slot of each rank, given the host of each rank."""
    ranks: dict[str, list[int]] = {}
    for rank, host in enumerate(hosts):
        ranks.setdefault(host, []).append(rank)
    found = []
    for rank, host in enumerate(hosts):
        local_rank = ranks[host].index(rank)
        peers = [other for other in ranks if len(ranks[other]) > local_rank]
        found.append(
            Slot(
                hostname=host,
                rank=rank,
                size=len(hosts),
                local_rank=local_rank,
                local_size=len(ranks[host]),
                cross_rank=peers.index(host),
                cross_size=len(peers),
            )
        )
    return found
