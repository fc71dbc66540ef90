"""A Ray Train backend that gives workers the variables every launcher gives; their strategy joins the group by itself.

Ray Train's controller imports this module to start workers, and torch would take it seconds.
"""

from __future__ import annotations

import os
from typing import Any

import ray
from ray.train.backend import Backend, BackendConfig

from core.backends.group import free_port, variables


class Rendezvous(BackendConfig):  # type: ignore[misc]
    """The choice of this backend; it has no settings."""

    @property
    def backend_cls(self) -> type[Backend]:
        return _Rendezvous


class _Rendezvous(Backend):  # type: ignore[misc]
    share_cuda_visible_devices = True  # a worker takes the device of its LOCAL_RANK

    def on_start(self, worker_group: Any, backend_config: BackendConfig) -> None:
        host, port = worker_group.execute_single(0, _address)
        places = worker_group.execute(_node)
        several = len(set(places)) > 1
        for rank, node in enumerate(places):
            told = variables(
                rank,
                len(places),
                port,
                host=host,
                local_rank=places[:rank].count(node),
                local_size=places.count(node),
            )
            worker_group.execute_single(rank, _set_environment, told, several)


def _address() -> tuple[str, int]:
    return ray.util.get_node_ip_address(), free_port("")


def _node() -> str:
    return str(ray.get_runtime_context().get_node_id())


def _set_environment(told: dict[str, str], several_nodes: bool) -> None:
    os.environ.update(told)
    if several_nodes and (interface := _interface(ray.util.get_node_ip_address())):
        # By itself gloo takes the address that the host's name resolves to, which is often the loopback's.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)


def _interface(address: str) -> str | None:
    """The network interface that has an address."""
    import psutil

    for name, addresses in psutil.net_if_addrs().items():
        if any(entry.address == address for entry in addresses):
            return str(name)
    return None
