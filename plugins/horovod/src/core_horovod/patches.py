"""What is mended in Horovod's source before it is compiled. No release of Horovod will do it any more."""

from __future__ import annotations

from pathlib import Path

import attrs


@attrs.frozen
class Edit:
    """`old`, which is in `file` once, becomes `new`."""

    file: str
    old: str
    new: str

    def apply(self, source: Path) -> None:
        """Raises ValueError where the file is another than this edit was made for."""
        path = source / self.file
        text = path.read_text()
        if text.count(self.old) != 1:
            raise ValueError(f"{path} is not the file that is to be mended")
        path.write_text(text.replace(self.old, self.new))


# The second group that Horovod makes at its start, of the same workers, asks for the interface to which this machine's
# name leads instead of HOROVOD_GLOO_IFACE, and ends in a segmentation fault where the name leads nowhere.
INTERFACE = (
    Edit(
        "horovod/common/gloo/gloo_context.cc",
        "gloo_iface_;\n  device_attr.ai_family = AF_UNSPEC;\n  auto dev = CreateDevice(device_attr);\n\n  global_ctx",
        "global_context.gloo_iface_;\n  device_attr.ai_family = AF_UNSPEC;\n  auto dev = CreateDevice(device_attr);\n\n"
        "  global_ctx",
    ),
)

# A tensor waits for the end of the millisecond that the thread which sends it sleeps, some quarter of a small model's
# step. Here it wakes the thread, which need not look so often by itself: each look is an exchange with all workers.
WAKING = (
    Edit(
        "horovod/common/operations.cc",
        "state.parameter_manager.SetCycleTimeMs(1);",
        "state.parameter_manager.SetCycleTimeMs(5);",
    ),
    Edit(
        "horovod/common/operations.cc",
        "    std::this_thread::sleep_for(sleep_duration);\n  }\n  state.last_cycle_start",
        "    state.process_set_table.Get(0).tensor_queue.WaitForMessage(sleep_duration);\n  }\n"
        "  state.last_cycle_start",
    ),
    Edit(
        "horovod/common/tensor_queue.h",
        "#include <iostream>\n",
        "#include <chrono>\n#include <condition_variable>\n#include <iostream>\n",
    ),
    Edit(
        "horovod/common/tensor_queue.h",
        "protected:\n",
        """  void WaitForMessage(std::chrono::steady_clock::duration limit) {
    std::unique_lock<std::mutex> guard(mutex_);
    arrived_.wait_for(guard, limit, [this] { return !message_queue_.empty(); });
  }

protected:
  std::condition_variable arrived_;

""",
    ),
    Edit(
        "horovod/common/tensor_queue.cc",
        "  message_queue_.push(std::move(message));\n  return Status::OK();\n",
        "  message_queue_.push(std::move(message));\n  arrived_.notify_one();\n  return Status::OK();\n",
    ),
    Edit(
        "horovod/common/tensor_queue.cc",
        "    message_queue_.push(std::move(messages[i]));\n  }\n  return Status::OK();\n",
        "    message_queue_.push(std::move(messages[i]));\n  }\n  arrived_.notify_one();\n  return Status::OK();\n",
    ),
)

PATCHES = (*INTERFACE, *WAKING)
