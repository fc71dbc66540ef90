"""Configs as others have published them. Every version must accept each as it stands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core.config import load
from core.config.sections import Backend
from core.errors import ConfigError
from core.registry import registry

CASES = Path(__file__).parent / "cases"


@pytest.fixture
def backend(minimal) -> Any:
    """The backend section in a file; or, where plugins it names are not installed, the check that this is said."""

    def read(file: str, **plugins: str) -> Backend:
        usable = {(record.kind, record.name) for record in registry().records if record.status == "ok"}
        missing = [name for kind, name in plugins.items() if (kind, name) not in usable]
        if not missing:
            return load(minimal, backend=str(CASES / file)).backend
        with pytest.raises(ConfigError) as caught:
            load(minimal, backend=str(CASES / file))
        assert len(caught.value.problems) == len(missing)
        for name, problem in zip(missing, caught.value.problems, strict=True):
            assert f"pip install 'core[{name}]'" in problem.hint
        pytest.skip(f"not installed, and said so: {', '.join(missing)}")

    return read


def test_every_case_is_read_by_a_test() -> None:
    source = Path(__file__).read_text()

    assert [file.name for file in CASES.iterdir() if file.name not in source] == []


def test_full(backend) -> None:
    read = backend("backend-1-full.yaml", processor="dask", strategy="ddp")

    assert read.type == "ray"
    assert read.cache_dir == "s3://my_bucket/cache"
    assert read.cache_credentials == "/home/user/.credentials.json"
    assert (read.processor.type, read.trainer.strategy.type, read.loader.type) == ("dask", "ddp", "memory")


def test_modin(backend) -> None:
    assert backend("backend-2-modin.yaml", processor="modin").processor.type == "modin"


def test_resources(backend) -> None:
    trainer = backend("backend-3-resources.yaml", strategy="ddp").trainer

    assert (trainer.use_gpu, trainer.num_workers) == (True, 4)
    assert trainer.resources_per_worker == {"CPU": 2, "GPU": 1}


def test_deepspeed(backend) -> None:
    assert backend("backend-4-deepspeed.yaml", strategy="deepspeed").trainer.strategy.type == "deepspeed"


def test_deepspeed_zero3(backend) -> None:
    trainer = backend("backend-5-deepspeed-zero3.yaml", strategy="deepspeed").trainer

    assert trainer.use_gpu is True
    assert trainer.strategy.type == "deepspeed"


def test_horovod(backend) -> None:
    assert backend("backend-6-horovod.yaml", strategy="horovod").trainer.strategy.type == "horovod"


def test_loader(backend) -> None:
    options = backend("backend-7-loader.yaml").loader.options

    assert (options.fully_executed, options.window_size_bytes) == (False, 500_000_000)


def test_a_config_of_a_ludwig_user() -> None:
    config = load(CASES / "ludwig-config.yaml")

    assert [feature.name for feature in config.input_features] == ["PClass", "Sex", "Age"]
    assert config.input_features[2].preprocessing.missing_value_strategy == "fill_with_mean"
    assert (config.combiner.num_fc_layers, config.combiner.output_size) == (2, 64)
    assert (config.trainer.validation_field, config.trainer.validation_metric) == ("Survived", "roc_auc")
    assert config.backend.type == "local"
