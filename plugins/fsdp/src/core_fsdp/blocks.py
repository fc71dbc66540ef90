"""Which modules of a network are sharded, gathered and given back as one."""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Iterator

from torch import nn

from core.errors import ConfigError
from core_fsdp.options import FSDPOptions

# These read the parameters of the modules inside them, whose own forward never runs.
_WHOLE = (nn.MultiheadAttention, nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)


def blocks(network: nn.Module, options: FSDPOptions) -> list[nn.Module]:
    """The blocks inside `network`, inner ones first.

    Raises:
        ConfigError: a class is named of which the network has no module.
    """
    if options.transformer_layer_cls_to_wrap is not None:
        chosen = _of_classes(network, options.transformer_layer_cls_to_wrap)
    elif options.min_num_params is not None:
        chosen = []
        _of_size(network, options.min_num_params, chosen)
    else:
        chosen = list(_outermost(network))
    shared = _shared_parameters(network)
    return [module for module in chosen if module is not network and _can_be_a_block(module, shared)]


def _of_classes(network: nn.Module, names: list[str]) -> list[nn.Module]:
    candidates = list(_callable_alone(network))
    known = {type(module).__name__ for module in candidates}
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            raise ConfigError(
                "the network has no module of this class",
                path="backend.trainer.strategy.transformer_layer_cls_to_wrap",
                found=name,
                expected="classes such as " + ", ".join(sorted(known)),
                hint=f"did you mean {near[0]!r}?" if near else "",
            )
    return [module for module in reversed(candidates) if type(module).__name__ in names]


def _callable_alone(module: nn.Module) -> Iterator[nn.Module]:
    """`module` and what is inside it, outer ones first, but for what is only read."""
    if _has_forward(module):
        yield module
    if not isinstance(module, _WHOLE):
        for child in module.children():
            yield from _callable_alone(child)


def _of_size(module: nn.Module, least: int, chosen: list[nn.Module]) -> int:
    """Add to `chosen` the blocks inside `module`, and itself; returns the parameters that are in none of them."""
    inner = sum(_of_size(child, least, chosen) for child in module.children()) if not isinstance(module, _WHOLE) else 0
    own = sum(parameter.numel() for parameter in module.parameters(recurse=isinstance(module, _WHOLE)))
    if inner + own < least or not _has_forward(module):
        return inner + own
    chosen.append(module)
    return 0


def _outermost(module: nn.Module) -> Iterator[nn.Module]:
    """The modules that `module` calls: its children, and those in its lists and dictionaries."""
    for child in module.children():
        if _has_forward(child):
            yield child
        else:
            yield from _outermost(child)


def _has_forward(module: nn.Module) -> bool:
    return type(module).forward is not nn.Module.forward


def _shared_parameters(network: nn.Module) -> dict[nn.Parameter, set[nn.Module]]:
    """The modules that hold a parameter, for each that has several names."""
    holders: dict[nn.Parameter, set[nn.Module]] = defaultdict(set)
    for module in network.modules():
        for parameter in module.parameters(recurse=False):
            holders[parameter].add(module)
    return {parameter: modules for parameter, modules in holders.items() if len(modules) > 1}


def _can_be_a_block(module: nn.Module, shared: dict[nn.Parameter, set[nn.Module]]) -> bool:
    """Something to shard, called as a module, and no parameter that is also held outside."""
    inside = set(module.modules())
    parameters = set(module.parameters())
    return bool(parameters) and _has_forward(module) and all(shared.get(p, inside) <= inside for p in parameters)
