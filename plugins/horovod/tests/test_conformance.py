"""What every strategy must do."""

from __future__ import annotations

import pytest

from core.testing.strategy import StrategyConformance

pytest.importorskip("horovod.torch", reason="Horovod is not compiled: python -m core_horovod.build")


class TestHorovod(StrategyConformance):
    strategy = "horovod"
    unused_parameters = True
