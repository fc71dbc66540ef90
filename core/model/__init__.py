"""Encoders → combiner → decoders."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from core.config.sections import Config
    from core.features.base import Metadata
    from core.model.network import ECD


def build(config: Config, metadata: dict[str, Metadata]) -> ECD:
    """The network that a config describes, its weights drawn from torch's global generator.

    Raises:
        ConfigError: a setting does not fit the data that `metadata` tells of, such as the number of class weights.
    """
    from core.model.network import ECD

    return ECD(config.input_features, config.output_features, config.combiner, metadata)
