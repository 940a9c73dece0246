"""penstock: staged dataset ingest for GPU clusters, whole or not at all."""

import os
import sys

__version__ = "1.0.0"


def _hide_old_numpy() -> None:
    """Make `import numpy` fail in this process where a NumPy before 2.0 would be imported: pyarrow refuses to
    load beside it, and loads without any. penstock needs none; Debian 12 has 1.24 for the interpreter that an
    installation by `pip install --user` runs on. 20 us."""
    if "numpy" in sys.modules:
        return
    specs = (finder.find_spec("numpy", None) for finder in sys.meta_path)
    origin = next((spec.origin for spec in specs if spec is not None), None)
    packages = os.path.dirname(os.path.dirname(origin)) if origin else None
    if packages and any(name.startswith("numpy-1.") for name in os.listdir(packages)):
        sys.modules["numpy"] = None  # type: ignore[assignment]


_hide_old_numpy()
