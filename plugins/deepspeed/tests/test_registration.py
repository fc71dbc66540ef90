from __future__ import annotations

import subprocess
import sys

import attrs

from core.registry import registry
from core_deepspeed import DeepSpeedOptions


def test_deepspeed_is_installed_and_describes_itself():
    spec = registry().spec("strategy", "deepspeed")

    assert spec.distributed
    assert spec.options is DeepSpeedOptions
    assert spec.needs == ("deepspeed",)
    assert all(field.metadata["doc"] for field in attrs.fields(DeepSpeedOptions))


def test_reading_a_config_imports_neither_deepspeed_nor_torch():
    program = """
import sys
from core.config.structure import structure
from core_deepspeed import DeepSpeedOptions
section = {"zero_optimization": {"stage": 3}, "flops_profiler": {"enabled": True}}
options, problems = structure(section, DeepSpeedOptions)
assert not problems
assert options.sections()["flops_profiler"] == {"enabled": True}
print([name for name in ("torch", "deepspeed") if name in sys.modules])
"""
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

    assert printed.strip() == "[]"
