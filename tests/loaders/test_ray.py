"""The ray loader: the contract, on a cluster."""

from __future__ import annotations

import pytest

pytest.importorskip("ray")

from core.testing.loader import LoaderConformance

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ray_cluster")]


class TestRay(LoaderConformance):
    loader = "ray"
