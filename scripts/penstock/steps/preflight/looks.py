"""The errors of one preflight, collected: one run names all problems."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import InterruptedRunError, PenstockError, PreflightError

if TYPE_CHECKING:
    from penstock.state.context import Context


class Looks:
    """Collects the errors of single checks (`with looks:`), so that one run reports all of them."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._errors: list[PenstockError] = []

    def __enter__(self) -> None:
        self._context.stop.check()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> bool:
        if not isinstance(error, PenstockError) or isinstance(error, InterruptedRunError):
            return False
        self._errors.append(error)
        return True

    def judge(self) -> None:
        """Raises the error, or one error that names all of them; nothing where there is none."""
        errors = list({str(error): error for error in self._errors}.values())
        if not errors:
            return
        if len(errors) == 1:
            raise errors[0]
        told = PreflightError(
            f"{len(errors)} things stop the run", why="\n" + "\n".join(f"- {error}" for error in errors)
        )
        codes = {error.exit_code for error in errors}
        if len(codes) == 1:
            told.exit_code = codes.pop()
        raise told
