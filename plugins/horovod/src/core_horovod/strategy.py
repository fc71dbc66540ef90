"""Horovod as a strategy: gradients are sent as soon as backward has a bucket of them, and arrive before the update."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from core.errors import PluginError
from core.strategy import MakeOptimizer, Strategy
from core_horovod import BUILD_COMMAND
from core_horovod.buckets import Bucket, buckets
from core_horovod.options import HorovodOptions

try:
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="Framework pytorch installed with version")
        import horovod.torch as hvd
except Exception as error:  # a build for another torch raises an error of Horovod's, or of the linker
    raise ImportError(f"{error}\n    To compile Horovod for this torch: {BUILD_COMMAND}") from error
if not hvd.gloo_built():
    raise ImportError(f"this build of Horovod has no Gloo, by which workers meet. To compile it: {BUILD_COMMAND}")

from core_horovod.objects import broadcast_object
from core_horovod.rendezvous import rendezvous

BUCKET_BYTES = 25 << 20
_WIDER = {torch.bfloat16: torch.float32, torch.uint8: torch.int32, torch.int8: torch.int32, torch.int16: torch.int32}
"""In which Horovod adds up what it cannot add up as it is."""


class Horovod(Strategy):
    """A replica of the model on each worker.

    Horovod's own DistributedOptimizer is not used: it exchanges after a fixed number of backward passes, where the
    last batch of an epoch may have fewer, and gives zeros to parameters that no worker used, which would decay them.
    """

    options: HorovodOptions

    def start(self) -> None:
        launched = "HOROVOD_RANK" in os.environ  # horovodrun has said all there is to know
        if self.device.type == "cuda":
            self._take_device(os.environ["HOROVOD_LOCAL_RANK"] if launched else None)
        with contextlib.ExitStack() as stack:
            variables = {} if launched else stack.enter_context(rendezvous(self.options.timeout_s))
            stack.enter_context(_environment(variables | self._settings()))
            hvd.init()
            self.sum(torch.zeros(1))  # until all have joined
        self.rank, self.world_size = hvd.rank(), hvd.size()

    def _take_device(self, index: str | None) -> None:
        if not (hvd.cuda_built() or hvd.rocm_built()):
            raise PluginError(
                "this build of Horovod exchanges tensors of the CPU only",
                path="backend.trainer.use_gpu",
                found=True,
                expected="false, or a build for GPUs",
                hint=f"{BUILD_COMMAND} --gpu",
            )
        if index is not None:  # horovodrun names it otherwise than other launchers do
            self.device = torch.device("cuda", int(index))
        torch.cuda.set_device(self.device)

    def _settings(self) -> dict[str, str]:
        """The options as Horovod's variables."""
        options = self.options
        settings = {
            "HOROVOD_GLOO_TIMEOUT_SECONDS": str(math.ceil(options.timeout_s)),
            "HOROVOD_LOG_LEVEL": os.environ.get("HOROVOD_LOG_LEVEL", "error"),
        }
        if options.fusion_threshold_mb is not None:
            settings["HOROVOD_FUSION_THRESHOLD"] = str(int(options.fusion_threshold_mb * 2**20))
        if options.cycle_time_ms is not None:
            settings["HOROVOD_CYCLE_TIME"] = str(options.cycle_time_ms)
        return settings

    def stop(self) -> None:
        if hvd.is_initialized():
            hvd.shutdown()

    def prepare(self, model: nn.Module, make_optimizer: MakeOptimizer) -> nn.Module:
        self._equalise((*model.parameters(), *model.buffers()))
        self._compression = getattr(hvd.Compression, self.options.compression)
        self._sent: dict[Bucket, tuple[int, Any]] = {}
        self._sending = False
        limit = self._settings().get("HOROVOD_FUSION_THRESHOLD") or os.environ.get("HOROVOD_FUSION_THRESHOLD")
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._buckets = buckets(trained, int(limit or BUCKET_BYTES)) if self.world_size > 1 else []
        for bucket in self._buckets:
            for parameter in bucket.parameters:
                hook = functools.partial(self._gradient_is_there, bucket)
                parameter.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]
        return super().prepare(model, make_optimizer)

    @contextlib.contextmanager
    def microbatch(self, *, last: bool) -> Iterator[None]:
        self._sending = last
        for bucket in self._buckets:
            bucket.owed = len(bucket.parameters)
        try:
            yield
        finally:
            self._sending = False

    def _gradient_is_there(self, bucket: Bucket, _: nn.Parameter) -> None:
        bucket.owed -= 1
        if self._sending and not bucket.owed:
            self._send(bucket)

    def _send(self, bucket: Bucket) -> None:
        content = bucket.pack()
        content, context = self._compression.compress(content.to(_WIDER.get(content.dtype, content.dtype)))
        self._sent[bucket] = hvd.allreduce_async_(content, name=bucket.name, op=hvd.Sum), context

    def step(self, max_norm: float | None = None) -> Tensor | None:
        if self.world_size > 1:
            self._receive()
        return self.update(max_norm)

    def _receive(self) -> None:
        """Wait for all gradients. A bucket with a parameter that this worker did not use is still to be sent."""
        for bucket in self._buckets:
            if bucket not in self._sent:
                self._send(bucket)
        for bucket in self._buckets:
            handle, context = self._sent.pop(bucket)
            total = self._compression.decompress(self._wait(handle), context)
            bucket.unpack(total.to(bucket.parameters[0].dtype))
        self._equalise(self.module.buffers())  # running statistics follow each worker's own rows

    def _equalise(self, tensors: Iterable[Tensor]) -> None:
        """Give all workers the first one's values."""
        sent = [(tensor.detach(), self._broadcast(tensor, f"core.{index}")) for index, tensor in enumerate(tensors)]
        for tensor, handle in sent:
            tensor.copy_(self._wait(handle).view(tensor.dtype).view(tensor.shape))

    def sum(self, tensor: Tensor) -> Tensor:
        wide = tensor.to(_WIDER.get(tensor.dtype, tensor.dtype)).contiguous()
        return self._wait(hvd.allreduce_async_(wide, name="core.sum", op=hvd.Sum)).to(tensor.dtype)

    def broadcast(self, tensor: Tensor) -> Tensor:
        return self._wait(self._broadcast(tensor, "core.broadcast")).view(tensor.dtype).view(tensor.shape)

    def _broadcast(self, tensor: Tensor, name: str) -> int:
        # As bytes: Horovod knows neither bfloat16 nor every integer.
        content = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
        handle: int = hvd.broadcast_async_(content, root_rank=0, name=name)
        return handle

    def _wait(self, handle: int) -> Tensor:
        """What an exchange gives. Horovod's own way to wait has no end, and takes a processor all the while."""
        start = time.monotonic()
        while not hvd.poll(handle):
            waited = time.monotonic() - start
            if waited > self.options.timeout_s:
                raise TimeoutError(f"a worker took no part in an exchange for {self.options.timeout_s:g} seconds")
            time.sleep(min(waited / 8, 1e-3))  # at first for as short as the system can
        received: Tensor = hvd.synchronize(handle)
        return received

    def load(self, state: dict[str, Any]) -> None:
        super().load(broadcast_object(state, self))


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Variables that are set while Horovod starts, which is when it reads them."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
