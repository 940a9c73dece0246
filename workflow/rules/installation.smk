# Every rule runs `python -m penstock` by the Python that runs Snakemake: these files bring none.
import sys

# Of these files; a test compares it with the package's.
VERSION = "1.0.0"

try:
    from penstock.workflow import installation
    from penstock.core.errors import PenstockError

    installation.check_workflow(VERSION, str(workflow.current_basedir))
except ImportError as error:
    raise WorkflowError(
        f"the Python of this snakemake has no penstock [{sys.executable}]: {error}\n"
        f"  call the `snakemake` that lies beside `penstock`, or install penstock {VERSION} there: "
        f"{sys.executable} -m pip install WHEEL"
    ) from None
except PenstockError as error:
    raise WorkflowError(str(error)) from None
