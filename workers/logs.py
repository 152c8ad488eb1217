"""Logs: an event name and facts, for people on a terminal or as JSON for machines. No secret is written, whoever logs
it: our own lines pass a processor before they are rendered, those of Celery, kombu and the rest a filter."""

import io
import logging
import sys
from typing import Any, TextIO

import structlog
from structlog.typing import EventDict, ExcInfo, WrappedLogger

from adapters.redaction import Redactor, process_redactor

_FORMATTER = logging.Formatter()


class QuietSweeps(logging.Filter):
    """Celery's and beat's two lines for every sweep would hide everything else."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno > logging.INFO or "sweep" not in record.getMessage()


class HideSecrets(logging.Filter):
    """Belongs on every handler: broker addresses, arguments of tasks and tracebacks come from loggers of others."""

    def __init__(self, redactor: Redactor | None = None) -> None:
        super().__init__()
        self._redactor = redactor or process_redactor()

    def filter(self, record: logging.LogRecord) -> bool:
        try:
            said = record.getMessage()
        except Exception:  # noqa: BLE001  a line whose arguments do not fit its text is somebody's mistake, not ours
            said = f"{record.msg} {record.args!r}"
        record.msg, record.args = self._redactor.text(said), None
        if record.exc_info and record.exc_info[0] is not None and not record.exc_text:
            record.exc_text = _FORMATTER.formatException(record.exc_info)
        if record.exc_text:  # formatters take this text as it is, and do not look at the error again
            record.exc_text = self._redactor.text(record.exc_text)
        if record.stack_info:
            record.stack_info = self._redactor.text(record.stack_info)
        return True


def configure_logs(level: str, *, as_json: bool, redactor: Redactor | None = None) -> None:
    """For the whole process. Without a `redactor`, the one that knows this process's environment."""
    redactor = redactor or process_redactor()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            *([structlog.processors.format_exc_info] if as_json else []),
            SecretsHidden(redactor),
            structlog.processors.JSONRenderer() if as_json else _console(redactor),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping().get(level.upper(), 20)),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    # Where nobody has set up handlers (the command line), warnings of libraries go here.
    if logging.lastResort is not None:
        hide_secrets(logging.lastResort, redactor)


def hide_secrets(handler: logging.Handler, redactor: Redactor | None = None) -> None:
    """Once, however often logs are configured."""
    for known in [known for known in handler.filters if isinstance(known, HideSecrets)]:
        handler.removeFilter(known)
    handler.addFilter(HideSecrets(redactor))


class SecretsHidden:
    """The last processor before the renderer. A renderer writes an object as its `repr`, so that is looked at too."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor

    def __call__(self, _logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        return {self._redactor.text(str(key)): self._shown(key, value) for key, value in event.items()}

    def _shown(self, key: str, value: Any) -> Any:
        if isinstance(value, str | int | float | None) or key == "exc_info":
            return self._redactor.text(value) if isinstance(value, str) else value
        if isinstance(value, dict | list | tuple):
            hidden = self._redactor.value(value)
            written = repr(hidden)
            return hidden if (shown := self._redactor.text(written)) == written else shown
        written = repr(value)
        return value if (shown := self._redactor.text(written)) == written else shown


def _console(redactor: Redactor) -> structlog.dev.ConsoleRenderer:
    def traceback(out: TextIO, error: ExcInfo) -> None:
        # Plain tracebacks: the values of variables hold what people wrote.
        whole = io.StringIO()
        structlog.dev.plain_traceback(whole, error)
        out.write(redactor.text(whole.getvalue()))

    return structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), pad_event_to=30, exception_formatter=traceback)
