# One controller in a working directory, and steps that do not outlive it.
#
# Snakemake's own lock survives kill -9, so the profiles switch it off (`nolock`). The lock here is
# the kernel's and ends with its holder, however that ends.
import fcntl

from penstock.cli import above, exits
from penstock.errors import LockedError

if exits.EXITS in os.environ:
    # Below `penstock run`, which shows the steps' own progress and the summary.
    for handler in logger.handlers:
        if handler.name == "DefaultStreamHandler":
            handler.setLevel("WARNING")

STATE = os.path.abspath("results/.workflow")


def lock_workdir():
    os.makedirs(STATE, exist_ok=True)
    # Kept open until this process ends; never closed, never passed on.
    controller = os.open(
        f"{STATE}/controller", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
    )
    steps = os.open(f"{STATE}/steps", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(controller, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(controller, 200, 0).decode(errors="replace").strip()
        names = holder.split()
        if not names or all(above.alive(name) for name in names):
            pid = names[-1].partition(".")[0] if names else "unknown"
            exits.leave("snakemake", LockedError.exit_code)
            raise WorkflowError(
                f"another Snakemake (process {pid}) stages from this working directory: wait for it, "
                "or stop it, or use another working directory"
            )
        # `penstock run` above it was killed: it notices by itself and ends.
        logger.info("Waiting for a run to end whose start was killed.")
        fcntl.flock(controller, fcntl.LOCK_EX)
    # Steps of a controller that was killed stop by themselves; until then they hold their dataset.
    fcntl.flock(steps, fcntl.LOCK_EX)
    fcntl.flock(steps, fcntl.LOCK_UN)
    os.close(steps)
    names = [*os.environ.get("PENSTOCK_ABOVE", "").split(), above.name(os.getpid())]
    os.environ["PENSTOCK_ABOVE"] = " ".join(dict.fromkeys(names))
    os.environ["PENSTOCK_WORKFLOW"] = STATE
    os.ftruncate(controller, 0)
    os.pwrite(controller, " ".join(names).encode(), 0)


onstart:
    lock_workdir()
