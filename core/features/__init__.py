"""Feature types, one module each. To add a type, write its module and register it here."""

from __future__ import annotations

from core.features.base import InputFeature, OutputFeature
from core.features.binary import BinaryInput, BinaryOutput
from core.features.category import CategoryInput, CategoryOutput
from core.features.number import NumberInput, NumberOutput
from core.features.text import TextInput

INPUTS: dict[str, type[InputFeature]] = {
    feature.type: feature for feature in (NumberInput, CategoryInput, BinaryInput, TextInput)
}
OUTPUTS: dict[str, type[OutputFeature]] = {
    feature.type: feature for feature in (NumberOutput, CategoryOutput, BinaryOutput)
}
