from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from core.config import load, loads
from core.config.sections import Config
from core.errors import ConfigError
from core.features.category import Embedding, OneHot
from core.features.number import NumberInput
from core.model.combiners import Concat, Transformer

TEXT = """\
input_features:
  - {name: Age, type: number}
  - {name: Sex, type: category, encoder: {type: dense, dropout: 0.1}}
output_features:
  - {name: Survived, type: binary}
combiner: {type: concat, num_fc_layers: 3}
trainer:
  epochs: 3
backend:
  type: ray
  processor: {type: pandas, parallelism: 4}
  trainer: {strategy: single, num_workers: 4, resources_per_worker: {CPU: 2, GPU: 1}}
  loader: {fully_executed: false}
"""


def paths(error: pytest.ExceptionInfo[ConfigError]) -> list[str]:
    return [problem.path for problem in error.value.problems]


def test_text_a_file_and_a_mapping_give_the_same_config(tmp_path: Path, minimal) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(json.dumps(minimal), encoding="utf-8-sig")

    configs = [load(minimal), load(file), load(str(file)), load(f"file://{file}"), load(json.dumps(minimal))]

    assert all(config == configs[0] for config in configs)
    assert configs[0].trainer.epochs == 100
    assert configs[0].combiner == Concat()


def test_errors_stand_in_the_order_of_the_file_with_line_and_column(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(
        "trainer:\n  epochs: 0\n  batch_sise: 4\noutput_features: []\ninput_features:\n  - {type: number}\n"
    )

    with pytest.raises(ConfigError) as caught:
        load(file)

    assert paths(caught) == [
        f"{file}:2:3: trainer.epochs",
        f"{file}:3:3: trainer.batch_sise",
        f"{file}:4:1: output_features",
        f"{file}:6:5: input_features.0.name",
    ]
    assert str(caught.value).splitlines()[1:3] == [
        f"{file}:3:3: trainer.batch_sise: unknown key",
        "    did you mean 'batch_size'?",
    ]


def test_two_mistakes_of_different_kinds_are_found_at_once(problems) -> None:
    found = problems(
        input_features=[{"name": "Survived", "type": "number", "encoder": {"type": "dnese"}}],
        trainer={"batch_size": "auto", "checkpoints_per_epoch": 2},
        combiner={"type": "tabnet"},
    )

    assert set(found) == {
        "input_features.Survived.encoder.type",
        "output_features.Survived.name",
        "trainer.batch_size",
        "combiner.type",
    }


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "is empty"),
        ("# nothing\n", "is empty"),
        ("- a\n", "is no config"),
        ("word", "is no config"),
        ("a: [", "not readable as YAML"),
        (b"\xff\xfe\x00", "is not UTF-8"),
    ],
)
def test_a_file_that_holds_no_config(tmp_path: Path, content: str | bytes, reason: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())

    with pytest.raises(ConfigError, match=reason) as caught:
        load(file)

    assert caught.value.path.startswith(str(file))
    assert caught.value.exit_status == 2


def test_places_that_hold_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.yaml: there is no such file"):
        load(tmp_path / "nowhere.yaml")
    with pytest.raises(ConfigError, match="is a folder"):
        load(tmp_path)


def test_items_go_by_their_name_unless_it_is_ambiguous(problems) -> None:
    feature = {"type": "number", "encoder": "dens"}
    names = ["a", "a", "x.y", "b", 3]

    found = problems(input_features=[{"name": name, **feature} for name in names])

    assert {path for path in found if path.endswith("encoder")} == {
        f"input_features.{step}.encoder" for step in ("0", "1", "2", "b", "4")
    }


@pytest.mark.parametrize(
    ("section", "path", "hint"),
    [
        ({"hyperopt": {}}, "hyperopt", ""),
        ({"model_type": "gbm"}, "model_type", ""),
        ({"combiner": "tabnet"}, "combiner", ""),
        ({"trainer": {"optimizer": {"type": "lbfgs"}}}, "trainer.optimizer.type", ""),
        ({"trainer": {"max_batch_size": 8}}, "trainer.max_batch_size", ""),
        ({"preprocessing": {"undersample_majority": 0.5}}, "preprocessing.undersample_majority", ""),
        ({"input_features": [{"name": "a", "type": "image"}]}, "input_features.a.type", ""),
        ({"output_features": [{"name": "a", "type": "set"}]}, "output_features.a.type", ""),
        (
            {"output_features": [{"name": "a", "type": "binary", "calibration": True}]},
            "output_features.a.calibration",
            "",
        ),
    ],
)
def test_what_core_lacks_of_ludwig_is_said_to_be_unsupported(problems, section, path: str, hint: str) -> None:
    assert problems(**section)[path].message == "not supported by core"


@pytest.mark.parametrize(
    ("section", "path", "hint"),
    [
        ({"training": {}}, "training", "it is called 'trainer'"),
        ({"input_features": [{"name": "a", "type": "numerical"}]}, "input_features.a.type", "it is called 'number'"),
        ({"epochs": 3}, "epochs", "it belongs under 'trainer'"),
        (
            {"input_features": [{"name": "a", "type": "category", "embedding_size": 3}]},
            "input_features.a.embedding_size",
            "it belongs under 'encoder'",
        ),
    ],
)
def test_older_places_and_names_are_pointed_to_the_new_ones(problems, section, path: str, hint: str) -> None:
    assert problems(**section)[path].hint == hint


class TestOverrides:
    """`--set`"""

    def test_values_are_yaml_and_the_last_one_wins(self) -> None:
        config = loads(
            TEXT,
            overrides=[
                "trainer.epochs=4",
                "trainer.epochs=5",
                "trainer.learning_rate=1e-2",
                "trainer.optimizer={type: sgd, momentum: 0.9}",
                "preprocessing.split.probabilities=[0.5, 0.2, 0.2]",
                "preprocessing.split.probabilities.0=0.6",
                "trainer.gradient_clipping=null",
                "backend.cache_dir=s3://a=b",
            ],
        )

        assert config.trainer.epochs == 5
        assert config.trainer.learning_rate == 0.01
        assert config.trainer.optimizer.momentum == 0.9
        assert config.preprocessing.split.probabilities == (0.6, 0.2, 0.2)
        assert config.backend.cache_dir == "s3://a=b"
        assert config.trainer.gradient_clipping is None

    def test_list_items_go_by_name_or_number(self) -> None:
        config = loads(
            TEXT, overrides=["input_features.Age.preprocessing.normalization=log1p", "input_features.1.column=Gender"]
        )

        assert config.input_features[0].preprocessing.normalization == "log1p"
        assert config.input_features[1].column == "Gender"

    def test_another_type_drops_the_options_of_the_old_one(self) -> None:
        config = loads(TEXT, overrides=["combiner.type=transformer", "input_features.Sex.encoder.type=onehot"])

        assert config.combiner == Transformer()
        assert config.input_features[1].encoder == OneHot()

    def test_the_same_type_keeps_them(self) -> None:
        config = loads(TEXT, overrides=["combiner.type=concat", "input_features.Sex.encoder.embedding_size=5"])

        assert config.combiner == Concat(num_fc_layers=3)
        assert config.input_features[1].encoder == Embedding(dropout=0.1, embedding_size=5)

    def test_a_bare_name_can_be_given_options(self) -> None:
        text = TEXT.replace("{type: concat, num_fc_layers: 3}", "transformer")

        assert loads(text, overrides=["combiner.num_heads=2"]).combiner == Transformer(num_heads=2)

    @pytest.mark.parametrize(
        ("override", "path", "text"),
        [
            ("trainer.epocs=3", "--set trainer.epocs: trainer.epocs", "did you mean 'epochs'?"),
            ("trianer.epochs=3", "--set trianer.epochs: trianer", "did you mean 'trainer'?"),
            ("trainer.epochs=x", "--set trainer.epochs: trainer.epochs", "expected a whole number"),
            ("trainer.epochs.x=1", "--set trainer.epochs.x: trainer.epochs", "is not a section"),
            (
                "input_features.Agee.type=text",
                "--set input_features.Agee.type: input_features.Agee",
                "did you mean 'Age'?",
            ),
            ("input_features.7.type=text", "--set input_features.7.type: input_features.7", "a number below 2"),
            ("trainer.epochs", "--set trainer.epochs", "--set section.key=value"),
            ("trainer..epochs=1", "--set trainer..epochs=1", "--set section.key=value"),
            ("trainer.epochs=[", "--set trainer.epochs:2:1", "not readable as YAML"),
        ],
    )
    def test_a_mistake_names_the_option(self, override: str, path: str, text: str) -> None:
        with pytest.raises(ConfigError) as caught:
            loads(TEXT, overrides=[override])

        assert paths(caught) == [path]
        assert text in str(caught.value)

    def test_a_mistake_does_not_show_what_was_set(self) -> None:
        with pytest.raises(ConfigError) as caught:
            loads(TEXT, overrides=["backend.cache_credentials=[hunter2]"])

        assert "hunter2" not in str(caught.value)


class TestBackend:
    """`--backend`"""

    @pytest.mark.parametrize(
        "option",
        [
            {"trainer": {"num_workers": 2}},
            "trainer: {num_workers: 2}",
            '{"trainer": {"num_workers": 2}}',
            "backend: {trainer: {num_workers: 2}}",
        ],
    )
    def test_it_is_merged_key_by_key(self, option) -> None:
        backend = loads(TEXT, backend=option).backend

        assert backend.trainer.num_workers == 2
        assert backend.type == "ray"
        assert backend.trainer.resources_per_worker == {"CPU": 2.0, "GPU": 1.0}
        assert backend.processor.options.parallelism == 4
        assert backend.loader.options.fully_executed is False

    def test_a_name_changes_the_type_alone(self) -> None:
        assert loads(TEXT, backend="local").backend == loads(TEXT.replace("type: ray", "type: local")).backend

    @pytest.mark.parametrize("content", ["type: local\n", "backend: {type: local}\n", "backend: local\n"])
    def test_it_may_be_a_file(self, tmp_path: Path, content: str) -> None:
        file = tmp_path / "laptop.yaml"
        file.write_text(content)

        assert loads(TEXT, backend=str(file)).backend.type == "local"

    def test_common_options_outlive_a_change_of_plugin_and_its_own_do_not(self) -> None:
        strategy = loads(
            TEXT, backend={"trainer": {"strategy": "ddp"}}, overrides=["backend.trainer.strategy.bucket_cap_mb=5"]
        )
        assert strategy.backend.trainer.strategy.options.bucket_cap_mb == 5

        text = TEXT.replace("strategy: single", "strategy: {type: ddp, bucket_cap_mb: 5}")
        assert loads(text, backend={"trainer": {"strategy": "single"}}).backend.trainer.strategy.type == "single"
        assert (
            loads(
                text, backend={"trainer": {"strategy": {"type": "ddp"}}}
            ).backend.trainer.strategy.options.bucket_cap_mb
            == 5
        )
        assert loads(TEXT, backend={"processor": "pandas"}).backend.processor.options.parallelism == 4

    def test_a_bare_name_in_the_config_will_do(self, minimal) -> None:
        assert load(minimal | {"backend": "local"}).backend.type == "local"
        assert load(minimal | {"backend": "local"}, backend={"cache_dir": "/x"}).backend.type == "local"

    @pytest.mark.parametrize(
        ("option", "path", "text"),
        [
            ("rey", "--backend: backend.type", "did you mean 'ray'?"),
            ({"trainer": {"num_wrkers": 2}}, "backend: backend.trainer.num_wrkers", "did you mean 'num_workers'?"),
            ("trainer: {use_gpu: maybe}", "--backend:1:11: backend.trainer.use_gpu", "expected true, false or null"),
            ("nowhere.yaml", "nowhere.yaml", "no such file"),
            ("[local]", "--backend", "is no backend"),
            ("{type: ", "--backend:2:1", "not readable"),
        ],
    )
    def test_a_mistake_names_the_option(self, option, path: str, text: str) -> None:
        with pytest.raises(ConfigError) as caught:
            loads(TEXT, backend=option)

        assert paths(caught) == [path]
        assert text in str(caught.value)


class TestDefaults:
    """`defaults`"""

    def test_they_go_under_the_settings_of_each_feature(self, minimal) -> None:
        features = [
            {"name": "a", "type": "number"},
            {"name": "b", "type": "number", "preprocessing": {"fill_value": 3}},
            {"name": "c", "type": "number", "preprocessing": {"normalization": None}, "encoder": {"type": "dense"}},
            {"name": "d", "type": "number", "encoder": "passthrough"},
            {"name": "e", "type": "text"},
        ]
        defaults = {
            "number": {"preprocessing": {"normalization": "log1p"}, "encoder": {"type": "dense", "num_layers": 2}}
        }

        config = load(minimal | {"input_features": features, "defaults": defaults})
        alone = load(minimal | {"input_features": features})

        a, b, c, d, e = config.input_features
        assert isinstance(a, NumberInput)
        assert (a.preprocessing.normalization, a.encoder.num_layers) == ("log1p", 2)
        assert (b.preprocessing.normalization, b.preprocessing.fill_value) == ("log1p", 3.0)
        assert (c.preprocessing.normalization, c.encoder.num_layers) == (None, 2)
        assert d.encoder == alone.input_features[3].encoder
        assert e == alone.input_features[4]

    def test_targets_are_not_filled_because_inputs_are(self, minimal) -> None:
        outputs = [{"name": "y", "type": "number", "loss": {"weight": 2}}]
        defaults = {
            "number": {"preprocessing": {"missing_value_strategy": "fill_with_mean"}, "loss": "mean_absolute_error"}
        }

        config = load(minimal | {"output_features": outputs, "defaults": defaults})

        assert config.input_features[0].preprocessing.missing_value_strategy == "fill_with_mean"
        assert config.output_features[0].preprocessing.missing_value_strategy == "drop_row"
        assert type(config.output_features[0].loss).__name__ == "MeanAbsoluteError"
        assert config.output_features[0].loss.weight == 2

    def test_their_mistakes_have_their_own_paths_and_are_reported_once(self, problems) -> None:
        found = problems(
            defaults={
                "number": {"preprocessing": {"normalization": "zscor"}, "encodr": {}},
                "nmber": {},
                "category": {"decoder": {"num_fc_layers": -1}},
            }
        )

        assert set(found) == {
            "defaults.number.preprocessing.normalization",
            "defaults.number.encodr",
            "defaults.nmber",
            "defaults.category.decoder.num_fc_layers",
        }


def test_reading_a_config_imports_nothing_heavy() -> None:
    script = (
        f"import sys, core.config; core.config.loads({TEXT!r});"
        "print([name for name in ('torch', 'numpy', 'pandas', 'pyarrow') if name in sys.modules])"
    )

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


def test_the_package_offers_what_it_names() -> None:
    import core.config

    assert core.config.Config is Config
    with pytest.raises(AttributeError, match="nothing"):
        core.config.nothing  # noqa: B018
