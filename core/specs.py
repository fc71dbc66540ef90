"""What a plugin tells core about itself, before anything heavy is imported."""

from __future__ import annotations

import attrs


@attrs.frozen(kw_only=True)
class ProcessorOptions:
    """The keys of `backend.processor` that every processor has."""

    parallelism: int | None = attrs.field(
        default=None,
        validator=attrs.validators.optional(attrs.validators.ge(1)),
        metadata={"doc": "Number of partitions; null lets the engine decide."},
    )


@attrs.frozen(kw_only=True)
class StrategyOptions:
    """The keys of `backend.trainer.strategy`; a strategy adds its own."""


@attrs.frozen(kw_only=True)
class GroupOptions(StrategyOptions):
    """The keys of a strategy whose workers exchange tensors."""

    timeout_s: float = attrs.field(
        default=600.0,
        validator=attrs.validators.gt(0),
        metadata={"doc": "Seconds a worker waits for the others in one exchange; then the attempt has failed."},
    )


@attrs.frozen(kw_only=True)
class LoaderOptions:
    """The keys of `backend.loader` that every loader has."""

    fully_executed: bool = attrs.field(
        default=True,
        metadata={"doc": "Bring all processed data into memory before training; false streams it, memory bounded."},
    )
    window_size_bytes: int | None = attrs.field(
        default=None,
        validator=attrs.validators.optional(attrs.validators.ge(1)),
        metadata={"doc": "Shuffle within windows of about this many bytes; null shuffles the whole set."},
    )


@attrs.frozen(kw_only=True)
class Spec:
    """One thing a plugin provides.

    Attributes:
        name: the word a config uses.
        summary: one line for `core list-plugins`.
        implementation: ``"package.module:Class"``, imported only when a run uses it.
        options: attrs class of the plugin's config section, derived from the base of its kind.
        needs: modules that must be importable for the implementation to work.
        remedy: the command that brings them; where it is empty, the distribution's metadata tells.
    """

    name: str
    summary: str
    implementation: str
    options: type
    needs: tuple[str, ...] = ()
    remedy: str = ""


@attrs.frozen(kw_only=True)
class ProcessorSpec(Spec):
    """A dataframe engine (implements `core.processor.Processor`)."""

    options: type[ProcessorOptions] = ProcessorOptions


@attrs.frozen(kw_only=True)
class StrategySpec(Spec):
    """A way to spread one training run over workers (implements `core.strategy.Strategy`)."""

    options: type[StrategyOptions] = StrategyOptions
    distributed: bool = True
    """Whether it needs the rendezvous variables (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT) of a worker group."""
    exact: bool = False
    """Whether `trainer.exact` may be on: every worker holds all of `Strategy.module`, in float32; `Strategy.sum` adds
    without rounding to fewer bits; and `Strategy.update` alone, without `backward`, applies what is in ``.grad``."""


@attrs.frozen(kw_only=True)
class LoaderSpec(Spec):
    """A source of tensor batches (implements `core.loader.Loader`)."""

    options: type[LoaderOptions] = LoaderOptions
