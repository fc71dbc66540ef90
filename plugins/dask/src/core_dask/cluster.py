"""A Dask cluster that runs elsewhere."""

from __future__ import annotations

from typing import Any

from core.errors import PluginError

_SECONDS = 10


def connected(address: str) -> Any:
    """A client of the scheduler at `address`.

    Raises:
        PluginError: distributed is not installed, or nothing answers there.
    """
    path = "backend.processor.address"
    try:
        from distributed import Client
    except ImportError:
        raise PluginError(
            "a Dask cluster needs the package distributed", path=path, hint="pip install 'dask[distributed]'"
        ) from None
    try:
        return Client(address, timeout=_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        raise PluginError(
            f"no Dask scheduler answers: {error}",
            path=path,
            found=address,
            hint="start one with: dask scheduler",
        ) from None
