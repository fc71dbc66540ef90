"""What the plugin says of itself, and what it says where the library is missing or was made for something else."""

from __future__ import annotations

import subprocess
import sys

import attrs
import pytest

from core.config import load
from core.errors import ConfigError, PluginError
from core.registry import registry
from core_horovod import BUILD_COMMAND, HorovodOptions


def run(program: str) -> str:
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_horovod_is_installed_and_describes_itself():
    spec = registry().spec("strategy", "horovod")

    assert spec.distributed
    assert spec.exact
    assert spec.options is HorovodOptions
    assert all(field.metadata["doc"] for field in attrs.fields(HorovodOptions))


def test_declaration_imports_neither_torch_nor_horovod():
    assert run("import sys, core_horovod; print({'torch', 'horovod', 'psutil'} & set(sys.modules))") == "set()\n"


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("compression", "fp8", "none"),
        ("backward_passes_per_step", 2, "trainer.gradient_accumulation_steps"),
        ("fusion_threshold_mb", -1, "fusion_threshold_mb"),
        ("cycle_time_ms", 0, "cycle_time_ms"),
        ("timeout_s", 0, "timeout_s"),
    ],
)
def test_wrong_option_is_refused_under_its_path(option, value, message):
    config = {
        "input_features": [{"name": "a", "type": "number"}],
        "output_features": [{"name": "b", "type": "number"}],
        "backend": {"trainer": {"strategy": {"type": "horovod", option: value}}},
    }
    with pytest.raises(ConfigError) as caught:
        load(config)
    assert f"backend.trainer.strategy.{option}" in caught.value.path
    assert message in str(caught.value)


def test_missing_library_is_explained_with_the_command_that_compiles_it():
    told = run(
        "import sys; sys.modules['horovod'] = None\n"
        "from core.registry import registry\n"
        "from core.errors import PluginError\n"
        "(record,) = [r for r in registry().records if r.name == 'horovod']\n"
        "print(record.status, record.reason)\n"
        "try: registry().implementation('strategy', 'horovod')\n"
        "except PluginError as error: print(error)\n"
    )
    assert "unavailable needs horovod.torch.mpi_lib_v2: " + BUILD_COMMAND in told
    assert told.count(BUILD_COMMAND) == 2


def test_library_compiled_for_another_torch_is_explained():
    pytest.importorskip("horovod.torch", reason=f"Horovod is not compiled: {BUILD_COMMAND}")
    told = run(
        "import torch; torch.__version__ = '2.6.0'\n"
        "from core.registry import registry\n"
        "from core.errors import PluginError\n"
        "try: registry().implementation('strategy', 'horovod')\n"
        "except PluginError as error: print(error)\n"
    )
    assert "cannot be imported" in told
    assert "To compile Horovod for this torch: " + BUILD_COMMAND in told


def test_build_for_the_cpu_is_refused_on_a_gpu_with_the_command_for_one():
    hvd = pytest.importorskip("horovod.torch", reason=f"Horovod is not compiled: {BUILD_COMMAND}")
    if hvd.cuda_built() or hvd.rocm_built():
        pytest.skip("this build is for GPUs")
    import torch

    strategy = registry().implementation("strategy", "horovod")(HorovodOptions(), torch.device("cuda", 0))
    with pytest.raises(PluginError, match="CPU only") as caught:
        strategy.start()
    assert caught.value.hint == f"{BUILD_COMMAND} --gpu"
