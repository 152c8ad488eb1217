"""Whatever is logged, by whom and in which form, a secret is not in it."""

import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from adapters.redaction import Redactor
from adapters.redaction_stream import LABEL
from workers.logs import HideSecrets, configure_logs, hide_secrets

SECRET = "vault-9f8e7d6c5b4a"
REDACTOR = Redactor([SECRET])


class Holder:
    def __repr__(self) -> str:
        return f"Holder({SECRET})"


@pytest.fixture(autouse=True)
def _logs_as_before() -> Iterator[None]:
    last_resort = logging.lastResort
    filters = list(last_resort.filters) if last_resort is not None else []
    before = structlog.get_config()
    yield
    structlog.configure(**before)
    if last_resort is not None:
        last_resort.filters[:] = filters


@pytest.mark.parametrize("as_json", [True, False])
@pytest.mark.spec("F9")
def test_our_own_lines(capsys: pytest.CaptureFixture[str], as_json: bool) -> None:
    configure_logs("INFO", as_json=as_json, redactor=REDACTOR)
    log = structlog.get_logger()
    log.info(f"event.{SECRET}", text=SECRET, nested={"a": [SECRET]}, obj=Holder(), objs=[Holder()], n=3)
    try:
        raise ValueError(f"refused: {SECRET}")
    except ValueError as error:
        log.exception("it.failed", error=error)
    written = capsys.readouterr().err
    assert SECRET not in written
    assert written.count(LABEL) >= 7
    assert "Traceback" in written
    if as_json:
        first = json.loads(written.splitlines()[0])
        assert first["nested"] == {"a": [LABEL]}
        assert first["n"] == 3


@pytest.mark.parametrize("as_json", [True, False])
@pytest.mark.spec("F9")
def test_a_chain_of_errors(capsys: pytest.CaptureFixture[str], as_json: bool) -> None:
    configure_logs("INFO", as_json=as_json, redactor=REDACTOR)
    try:
        try:
            raise KeyError(SECRET)
        except KeyError as error:
            error.add_note(SECRET)
            raise RuntimeError("outer") from error
    except RuntimeError:
        structlog.get_logger().exception("it.failed")
    written = capsys.readouterr().err
    assert SECRET not in written
    assert "RuntimeError: outer" in written


@pytest.mark.spec("F9")
def test_lines_of_other_loggers(capsys: pytest.CaptureFixture[str]) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(name)s %(message)s"))
    hide_secrets(handler, REDACTOR)
    hide_secrets(handler, REDACTOR)
    assert sum(isinstance(known, HideSecrets) for known in handler.filters) == 1
    logger = logging.Logger("kombu.connection")
    logger.addHandler(handler)
    logger.info("Connected to %s", "redis://:pw-of-redis@localhost:6379//")
    logger.warning("Task %(name)s got %(args)s", {"name": "agent.wake", "args": [SECRET]})
    logger.error("too few %s %s", SECRET)  # noqa: PLE1206
    try:
        raise OSError(SECRET)
    except OSError:
        logger.exception("broken", stack_info=True)
    handler.stream.flush()
    written = capsys.readouterr().err
    assert "kombu.connection Connected to redis://:[redacted]@localhost:6379//" in written
    assert "Task agent.wake got ['[redacted]']" in written
    assert "OSError: [redacted]" in written
    assert SECRET not in written
    assert "pw-of-redis" not in written


@pytest.mark.spec("F9")
def test_where_nobody_set_up_handlers() -> None:
    configure_logs("WARNING", as_json=False, redactor=REDACTOR)
    configure_logs("WARNING", as_json=False, redactor=REDACTOR)
    assert logging.lastResort is not None
    assert sum(isinstance(known, HideSecrets) for known in logging.lastResort.filters) == 1
