"""What Celery tells of a task that carries more than ids: nothing. Flower, `celery inspect` and the worker's log show
arguments to whoever may look at the fleet, who need not be whoever may read what people write to agents."""

from typing import Any, Final

from celery.worker.request import Request

HIDDEN: Final = "(a message; see: longshore sessions)"


class DiscreetRequest(Request):  # type: ignore[misc]  # Celery has no types
    """A producer's own description of the arguments is not shown either: Celery makes it of the arguments."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._argsrepr, self._kwargsrepr = "()", HIDDEN

    def info(self, safe: bool = False) -> dict[str, Any]:
        shown: dict[str, Any] = super().info(safe=True)
        return shown
