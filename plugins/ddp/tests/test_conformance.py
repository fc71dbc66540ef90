from __future__ import annotations

from core.testing.strategy import StrategyConformance


class TestDDP(StrategyConformance):
    strategy = "ddp"
