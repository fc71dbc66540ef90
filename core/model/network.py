"""The assembled network: an encoder for each input, a combiner, a decoder for each output."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

import torch
from torch import Tensor, nn

from core.features.base import InputFeature, Metadata, OutputFeature
from core.model.combiners import Combiner
from core.model.modules import Scalar, softly_limited


class ECD(nn.Module):
    """Encoders, combiner, decoders.

    State-dict keys: ``encoders.feature_<input>.…``, ``combiner.…``, ``decoders.feature_<output>.…``.
    """

    def __init__(
        self,
        inputs: Sequence[InputFeature],
        outputs: Sequence[OutputFeature],
        combiner: Combiner,
        metadata: dict[str, Metadata],
    ) -> None:
        super().__init__()
        self.encoders = nn.ModuleDict()
        self._limited: list[str] = []
        self._plain: list[str] = []
        self._vectors: list[tuple[str, str]] = []
        sizes = []
        owners = {feature.name: feature for feature in inputs}
        for feature in inputs:
            owner = owners[feature.tied or feature.name]
            key = module_key(owner.name)
            if key not in self.encoders:
                self.encoders[key] = owner.build_encoder(metadata[owner.name])
            encoder = self.encoders[key]
            if isinstance(encoder, Scalar):
                (self._limited if encoder.limited else self._plain).append(feature.name)
            else:
                self._vectors.append((feature.name, key))
                sizes.append(_size(encoder))
        self.combiner = combiner.build(len(self._limited) + len(self._plain), sizes)
        self.decoders = nn.ModuleDict()
        self._outputs = {feature.name: module_key(feature.name) for feature in outputs}
        for output in outputs:
            self.decoders[self._outputs[output.name]] = output.build_decoder(
                metadata[output.name], _size(self.combiner)
            )

    def forward(self, columns: dict[str, Tensor]) -> dict[str, Tensor]:
        """Batch columns by input name → raw outputs by output name, (rows,) or (rows, classes).

        A batch of no rows gives outputs of no rows that still depend on every parameter, so that a worker without
        rows takes part in the reduction of gradients.
        """
        names = [*self._limited, *self._plain, *(name for name, _ in self._vectors)]
        if len(columns[names[0]]):
            return self._forward(columns)
        one = {name: columns[name].new_zeros(1, *columns[name].shape[1:]) for name in names}
        return {name: output[:0] for name, output in self._forward(one).items()}

    def _forward(self, columns: dict[str, Tensor]) -> dict[str, Tensor]:
        scalars = []
        if self._limited:
            scalars.append(softly_limited(_stacked(columns, self._limited)))
        if self._plain:
            scalars.append(_stacked(columns, self._plain))
        vectors = [self.encoders[key](columns[name]) for name, key in self._vectors]
        combined = self.combiner(torch.cat(scalars, 1) if scalars else None, vectors)
        return {name: self.decoders[key](combined) for name, key in self._outputs.items()}


def _stacked(columns: dict[str, Tensor], names: list[str]) -> Tensor:
    return torch.stack([columns[name] for name in names], 1).float()


def module_key(name: str) -> str:
    """A module's name for a feature's: without dots, unlike any attribute of a module, and another for each name."""
    return "feature_" + quote(name, safe=" ").replace(".", "%2E")


def _size(module: nn.Module) -> int:
    return int(module.output_size)  # type: ignore[arg-type]  # to torch, any attribute may be a tensor or a module
