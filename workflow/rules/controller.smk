# One controller in a working directory; its steps end with it. What is locked and why stands in
# penstock.cli.controller.
from pathlib import Path

from penstock.cli import controller, exit_files

if exit_files.below_run():
    # `penstock run` shows the steps' own progress, their errors and the summary.
    for handler in logger.handlers:
        if handler.name == "DefaultStreamHandler":
            handler.setLevel("WARNING")
            handler.addFilter(exit_files.is_news)


def take_control():
    try:
        controller.take(Path("results/.workflow").absolute(), logger.warning)
    except PenstockError as error:
        logger.error(f"penstock: {error}")
        sys.exit(1)


onstart:
    take_control()
