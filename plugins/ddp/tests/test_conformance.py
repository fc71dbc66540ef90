from __future__ import annotations

from typing import ClassVar

from core.testing.strategy import StrategyConformance


class TestDDP(StrategyConformance):
    strategy = "ddp"


class TestUnusedParameters(StrategyConformance):
    strategy = "ddp"
    options: ClassVar = {"find_unused_parameters": True, "gradient_as_bucket_view": True, "bucket_cap_mb": 1}
    world_sizes = (2, 3)
    unused_parameters = True


class TestStaticGraph(StrategyConformance):
    strategy = "ddp"
    options: ClassVar = {"static_graph": True}
    world_sizes = (2,)
