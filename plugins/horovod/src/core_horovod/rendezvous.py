"""How workers find each other without horovodrun: through the store that RANK, WORLD_SIZE and MASTER_ADDR name.

The first worker runs Horovod's rendezvous server and tells the others its address. No worker logs in to another, and
the network interface is the one that leads to the others, so nothing is probed.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Iterator

import psutil
from horovod.runner.http.http_server import RendezvousServer

from core.errors import TrainingError
from core.strategy import group_store
from core_horovod.slots import slots


@contextlib.contextmanager
def rendezvous(timeout_s: float) -> Iterator[dict[str, str]]:
    """The variables with which Horovod joins the group; every worker must have joined when the block is left."""
    store, rank, size = group_store(timeout_s), int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    master = socket.gethostbyname(os.environ["MASTER_ADDR"])
    store.set(f"horovod/{rank}", json.dumps([socket.gethostname(), _address_towards(master), _own_address()]))
    workers = [json.loads(store.get(f"horovod/{other}")) for other in range(size)]
    # Machines of one name, as containers may be, differ in their address, and those of one loopback in their name.
    hosts = [f"{name}-{towards}" for name, towards, _ in workers]
    _check_names(workers, several=len(set(hosts)) > 1)
    address = _reachable(workers, rank)
    places = slots(hosts)
    with contextlib.ExitStack() as stack:
        if rank == 0:
            server = RendezvousServer()
            port = server.start()
            server.init(places)
            stack.callback(_stop, server)
            store.set("horovod/server", json.dumps([address, port]))
        server_address, server_port = json.loads(store.get("horovod/server"))
        yield {
            **places[rank].variables(),
            "HOROVOD_CONTROLLER": "gloo",
            "HOROVOD_CPU_OPERATIONS": "gloo",
            "HOROVOD_GLOO_IFACE": os.environ.get("HOROVOD_GLOO_IFACE") or _interface(address),
            "HOROVOD_GLOO_RENDEZVOUS_ADDR": server_address,
            "HOROVOD_GLOO_RENDEZVOUS_PORT": str(server_port),
        }


def _address_towards(host: str) -> str:
    """This machine's address on the way to another. Nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 1))
        address: str = probe.getsockname()[0]
        return address


def _own_address() -> str:
    """Where this machine's name leads, or nothing."""
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return ""


def _check_names(workers: list[list[str]], *, several: bool) -> None:
    """Horovod looks its machine up by name, whatever interface it is told, and crashes where there is no such name."""
    for name, _, address in workers:
        if not address or (several and address.startswith("127.")):
            raise TrainingError(
                "Horovod looks up each machine by its own name",
                found=f"{name}: {address or 'unknown'}",
                expected="an address that the other machines reach" if several else "any address",
                hint=f"Give {name} an address in its /etc/hosts, or in DNS.",
            )


def _reachable(workers: list[list[str]], rank: int) -> str:
    """An address of this machine under which all workers reach it."""
    address = workers[rank][1]
    elsewhere = [worker[1] for worker in workers if worker != workers[rank]]
    # A machine may know its own name, which is everyone's MASTER_ADDR, by its loopback.
    return _address_towards(elsewhere[0]) if elsewhere and address.startswith("127.") else address


def _interface(address: str) -> str:
    for name, addresses in psutil.net_if_addrs().items():
        if any(entry.address == address for entry in addresses):
            return str(name)
    raise RuntimeError(f"no network interface has the address {address}; name one in HOROVOD_GLOO_IFACE")


def _stop(server: RendezvousServer) -> None:
    server.stop()
    server._httpd.server_close()  # which its own `stop` leaves open
