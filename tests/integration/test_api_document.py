"""The OpenAPI document is true: schemathesis asks whatever it lets one ask, of a real gateway with rows in it."""

import asyncio
import traceback
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.config import SchemathesisConfig
from schemathesis.core.failures import FailureGroup

from tests.support.api_callers import Caller, caller
from tests.support.api_seeds import seed
from tests.support.fleet import MakeFleet
from tests.support.open_gateway import Gateway, gateway_to, registry_with

pytestmark = [
    pytest.mark.spec("G2"),
    pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True),
]
# They go on until somebody hangs up; `test_event_streams.py` reads them.
ENDLESS = "/events"
CONFIG = {
    "generation": {"allow-extra-parameters": False},  # unknown ones in an address are passed over, as is usual
    "checks": {
        # Of the right form, and still no sense: a date that has passed, an agent that is not there.
        "positive_data_acceptance": {"enabled": False},
        "negative_data_rejection": {"expected-statuses": ["4xx"]},
    },
}
PROBLEM = "#/components/schemas/Problem"


@pytest.fixture
async def gateway(make_fleet: MakeFleet, tmp_path: Path, no_programs: None) -> AsyncIterator[Gateway]:
    fleet = await make_fleet(registry_with(tmp_path), token_rate=0.0)
    async with gateway_to(fleet) as gateway:
        yield gateway


async def document(gateway: Gateway) -> dict[str, Any]:
    found: dict[str, Any] = (await gateway.client.get("/openapi.json")).json()
    return found


async def test_every_route_says_all_of_itself(gateway: Gateway) -> None:
    told = await document(gateway)
    tags = {tag["name"] for tag in told["tags"]}
    ids = []
    for path, operations in told["paths"].items():
        for method, operation in operations.items():
            where = f"{method} {path}"
            ids.append(operation["operationId"])
            assert operation.get("description"), where
            assert set(operation["tags"]) <= tags, where
            wrong = {status: answer for status, answer in operation["responses"].items() if not status.startswith("2")}
            assert "default" in wrong, where
            for status, answer in wrong.items():
                assert answer["content"]["application/problem+json"]["schema"]["$ref"] == PROBLEM, (where, status)
            if path.startswith("/v1/"):
                assert {"401", "403", "422", "429", "503"} <= set(wrong), where
                [[scheme, [_scope]]] = [next(iter(one.items())) for one in operation["security"]]
                assert scheme == "token", where
    assert len(ids) == len(set(ids))
    assert {"type", "title", "status", "detail"} == set(told["components"]["schemas"]["Problem"]["properties"])


@pytest.mark.timeout(120)
async def test_what_the_document_allows_is_answered_as_it_says(gateway: Gateway) -> None:
    await ask_everything(gateway, examples=3)


@pytest.mark.long
@pytest.mark.timeout(1200)
async def test_what_the_document_allows_is_answered_as_it_says_for_a_long_time(gateway: Gateway) -> None:
    await ask_everything(gateway, examples=30)


async def ask_everything(gateway: Gateway, examples: int) -> None:
    owner = await caller(gateway, "olga", "owner")
    ids = await seed(gateway.fleet, "ann", "word")
    schema = schemathesis.openapi.from_dict(await document(gateway), config=SchemathesisConfig.from_dict(CONFIG))
    base = f"http://127.0.0.1:{gateway.port}"
    faults = await asyncio.to_thread(_ask, schema, base, owner, ids, examples)
    assert not faults, "\n\n".join(faults)


def _ask(schema: Any, base: str, owner: Caller, ids: dict[str, str], examples: int) -> list[str]:
    faults = []
    for found in schema.get_all_operations():
        operation = found.ok()
        if operation.path.endswith(ENDLESS):
            continue
        for mode, known, count in (
            (GenerationMode.POSITIVE, ids, examples),
            (GenerationMode.POSITIVE, {}, examples // 3),
            (GenerationMode.NEGATIVE, {}, examples),
        ):
            try:
                _ask_one(operation, mode, base, owner, known, count)
            except Unsatisfiable:
                assert mode is GenerationMode.NEGATIVE  # there is nothing to get wrong
            except FailureGroup as error:
                faults.append(f"{operation.label} ({mode.value}): {traceback.format_exception_only(error)}")
    return faults


def _ask_one(operation: Any, mode: Any, base: str, owner: Caller, ids: dict[str, str], examples: int) -> None:
    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def ask(case: Any) -> None:
        for name in case.path_parameters or {}:
            if name in ids:
                case.path_parameters[name] = ids[name]
        headers = {"Authorization": f"Bearer {owner.token}"}
        case.call_and_validate(base_url=base, headers=headers, timeout=30)

    ask()
