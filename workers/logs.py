"""Logs: an event name and facts, for people on a terminal or as JSON for machines."""

import logging
import sys

import structlog


class QuietSweeps(logging.Filter):
    """Celery's and beat's two lines for every sweep would hide everything else."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno > logging.INFO or "sweep" not in record.getMessage()


def configure_logs(level: str, *, as_json: bool) -> None:
    renderer = (
        structlog.processors.JSONRenderer()
        if as_json
        # Plain tracebacks: the values of variables hold what people wrote.
        else structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), pad_event_to=30, exception_formatter=structlog.dev.plain_traceback
        )
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            *([structlog.processors.format_exc_info] if as_json else []),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping().get(level.upper(), 20)),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
