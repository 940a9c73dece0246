# Every rule runs `python -m penstock` by the Python that runs Snakemake: these files bring none.
import importlib
import sys

# Of these files; a test compares it with the package's.
VERSION = "1.0.0"

try:
    INSTALLED = importlib.import_module("penstock").__version__
except ImportError:
    INSTALLED = None
if INSTALLED != VERSION:
    raise WorkflowError(
        f"this workflow is of penstock {VERSION}, and the Python that runs Snakemake has "
        f"{f'penstock {INSTALLED}' if INSTALLED else 'no penstock'} [{sys.executable}]\n"
        f"  get a checkout of penstock {VERSION}, and install it there: {sys.executable} -m pip install CHECKOUT"
    )
