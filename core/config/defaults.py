"""`defaults`: settings that all features of a type start from."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import attrs

from core.config.introspection import Field, annotation, resolved_fields
from core.config.merge import merge
from core.config.structure import structure
from core.features import INPUTS, OUTPUTS

SECTIONS = ("preprocessing", "encoder", "decoder", "loss")

# A target is never made up because inputs of its type are: filling one is for the feature itself to ask for.
_INPUTS_ONLY = {"missing_value_strategy", "fill_value"}


@functools.cache
def defaults_section() -> type:
    """The class that `defaults` is checked against: feature type → section → the section's keys."""
    names = sorted({*INPUTS, *OUTPUTS})
    return attrs.make_class(
        "Defaults",
        {
            name: attrs.field(factory=dict, type=_of_type(name), metadata={"doc": f"For every {name} feature."})
            for name in names
        },
        frozen=True,
        kw_only=True,
    )


def _of_type(name: str) -> type:
    fields: dict[str, Field] = {}
    for cls in (OUTPUTS.get(name), INPUTS.get(name)):
        fields |= resolved_fields(cls) if cls else {}
    return attrs.make_class(
        f"{name.title()}Defaults",
        {
            key: attrs.field(factory=dict, type=fields[key].type, metadata=dict(fields[key].metadata))
            for key in SECTIONS
            if key in fields
        },
        frozen=True,
        kw_only=True,
    )


def with_defaults(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """`data` with `defaults` under each feature's own settings; as it is where `defaults` itself is wrong."""
    defaults = data.get("defaults")
    if not defaults or structure(defaults, defaults_section())[1]:
        return data
    result = dict(data)
    for key, types in (("input_features", INPUTS), ("output_features", OUTPUTS)):
        if isinstance(data.get(key), (list, tuple)):
            result[key] = [_with_defaults(feature, defaults, types) for feature in data[key]]
    return result


def _with_defaults(feature: Any, defaults: Mapping[str, Any], types: Mapping[str, type]) -> Any:
    if not isinstance(feature, Mapping) or not isinstance(feature.get("type"), str):
        return feature
    cls, given = types.get(feature["type"]), defaults.get(feature["type"])
    if cls is None or not given:
        return feature
    fields = resolved_fields(cls)
    sections = {key: value for key, value in given.items() if key in fields}
    if "preprocessing" in sections:
        known = resolved_fields(
            annotation(fields["preprocessing"])
        )  # inputs and outputs of a type need not have the same
        unfit = _INPUTS_ONLY if types is OUTPUTS else set()
        sections["preprocessing"] = {
            key: value for key, value in sections["preprocessing"].items() if key in known and key not in unfit
        }
    return merge(sections, feature, cls)
