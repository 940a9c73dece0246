# One controller in a working directory; its steps end with it. What is locked and why stands in
# penstock.workflow.controller.
if controller.below_run():
    # `penstock run` shows the steps' own progress, their errors and the summary.
    for handler in logger.handlers:
        if handler.name == "DefaultStreamHandler":
            handler.setLevel("WARNING")
            handler.addFilter(controller.is_news)


@functools.cache
def take_control():
    """Before the first command of a rule. Not in `onstart:`, which Snakemake obeys of no module."""
    if looked_at() or workflow.dryrun or not workflow.is_main_process:
        return
    try:
        controller.take(
            (RESULTS / ".workflow").absolute(), logger.warning, alone=MODULE is None
        )
    except PenstockError as error:
        if controller.below_run():  # which has it from `controller.take`
            sys.exit(1)
        stop(error)
