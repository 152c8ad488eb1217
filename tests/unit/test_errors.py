"""Celery moves errors between processes: every class of ours survives a pickle round trip with all it carries."""

import copy
import importlib
import inspect
import pickle
import pkgutil
from datetime import UTC, datetime
from types import ModuleType

import pytest

import adapters
import models
import scheduler
import workers
from adapters import errors
from adapters.contracts import ParkedError
from adapters.errors import DeliveryError, ErrorClass, GitError, ProviderError
from adapters.providers.cli.json_rpc import RpcError
from adapters.tools.mcp_pins import _UnpinnedError
from workers.budget import Limit, _OverBudget
from workers.loop import Stop, StoppedError

# How the classes with more than a message are made; the others take one text.
SPECIAL: dict[str, BaseException] = {
    "RpcError": RpcError(-32601, "no such method", {"method": "x"}),
    "ProviderError": ProviderError("no tokens left", ErrorClass.QUOTA, 7.5),
    "DeliveryError": DeliveryError("no", retryable=True, retry_after=3.0, may_have_arrived=True),
    "GitError": GitError("locked", retryable=True),
    "StoppedError": StoppedError(Stop.SHUTDOWN),
    "ParkedError": ParkedError("which colour?", 300.0),
    "_UnpinnedError": _UnpinnedError("no version", "write one"),
    "_OverBudget": _OverBudget(Limit("", 5.0), datetime(2026, 1, 31, tzinfo=UTC)),
}


def _classes(*packages: ModuleType) -> dict[str, type[BaseException]]:
    """Every exception class that is defined in these packages, by name."""
    found: dict[str, type[BaseException]] = {}
    for package in packages:
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            # The app and Alembic's environment do things when they are imported.
            if info.name == "workers.app" or ".migrations" in info.name:
                continue
            for name, value in vars(importlib.import_module(info.name)).items():
                if inspect.isclass(value) and issubclass(value, BaseException) and value.__module__ == info.name:
                    found[name] = value
    return found


CLASSES = _classes(adapters, models, workers, scheduler)


def _carried(error: BaseException) -> tuple[type[BaseException], str, tuple[object, ...], dict[str, object]]:
    return type(error), str(error), error.args, vars(error)


def test_the_search_finds_the_classes_we_know_of() -> None:
    assert {"AdapterError", "ConformanceError", "LeaseLostError", "RefusedError", "SettingsError"} <= set(CLASSES)
    assert set(SPECIAL) <= set(CLASSES)
    assert len(CLASSES) >= 20


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_every_error_survives_pickle_with_its_attributes(name: str, protocol: int) -> None:
    error = SPECIAL.get(name) or CLASSES[name]("what went wrong")
    assert _carried(pickle.loads(pickle.dumps(error, protocol))) == _carried(error)


@pytest.mark.parametrize("name", CLASSES)
def test_every_error_can_be_copied_and_says_something(name: str) -> None:
    error = SPECIAL.get(name) or CLASSES[name]("what went wrong")
    assert _carried(copy.copy(error)) == _carried(error)
    assert str(error)
    assert CLASSES[name].__doc__


def test_a_provider_error_reads_as_its_message_alone() -> None:
    assert str(ProviderError("no tokens left", ErrorClass.QUOTA, 7.5)) == "no tokens left"


@pytest.mark.spec("M9")
def test_only_what_can_pass_is_tried_again() -> None:
    assert {error_class for error_class in ErrorClass if error_class.can_pass} == {
        ErrorClass.TRANSPORT,
        ErrorClass.RATE_LIMIT,
        ErrorClass.PROVIDER_HANG,
        ErrorClass.TOOL,
        ErrorClass.INTERNAL,
        ErrorClass.WORKER_LOST,
    }


def test_the_tree_drawn_in_errors_is_the_tree_there_is() -> None:
    drawn = str(errors.__doc__)
    defined = [name for name, value in vars(errors).items() if inspect.isclass(value) and name.endswith("Error")]
    assert [name for name in defined if name not in drawn] == []
