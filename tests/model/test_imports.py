from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("module", ["core.features", "core.model", "core.model.combiners"])
def test_declarations_import_nothing_heavy(module):
    code = f"import sys, {module}; print(*{{'torch', 'pandas', 'pyarrow', 'numpy', 'torchmetrics'}} & set(sys.modules))"

    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert result.stdout.strip() == ""
