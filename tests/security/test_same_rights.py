"""The API and the console ask the same table for the same acts: what one refuses to an admin, the other does too."""

from typing import Any

import pytest

from models import MessageIn
from tests.support.api_callers import caller
from tests.support.api_seeds import seed
from tests.support.console_session import sign_in_user
from tests.support.open_gateway import Gateway
from workers import access
from workers.access import Act, Standing

SAID: dict[str, Any] = {"text": "hello"}


@pytest.mark.spec("G2", "G3")
@pytest.mark.parametrize("database_kind", ["sqlite"], indirect=True)  # what is asked for does not depend on it
async def test_who_may_look_and_not_act_is_told_so_at_both_doors(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = await seed(gateway.fleet, "demo", "tide")
    session, task, wiring = (names[f"{what}_id"] for what in ("session", "task", "wiring"))
    api = await caller(gateway, "api", "admin", names["group"])
    ada = await sign_in_user(gateway, "ada", "admin", names["group"])
    # As it is, whoever may look may act: that is for the table to say, and for no door.
    for act in (Act.OPERATE, Act.PRODUCE):
        monkeypatch.setitem(access.NEEDED, act, Standing.OWNER)

    for path in (f"/sessions/{session}", f"/tasks/{task}"):
        assert (await api.ask("GET", f"/v1{path}")).status_code == 200
        assert (await ada.get(path.replace("tasks", "schedules"))).status_code == 200
    assert (await ada.get(f"/wirings/{wiring}")).status_code == 200
    before = len(await gateway.fleet.rows(MessageIn))
    answers = [
        *[await api.ask("POST", f"/v1/sessions/{session}/{act}") for act in ("cancel", "reset", "close", "replays")],
        *[await ada.post(f"/sessions/{session}/{act}") for act in ("cancel", "reset", "close")],
        await ada.post(f"/sessions/{session}/replay", {"key": "k", "all": "on"}),
        await api.ask("POST", f"/v1/sessions/{session}/messages", SAID),
        await ada.post(f"/sessions/{session}/say", SAID | {"key": "k"}),
        await api.ask("POST", f"/v1/tasks/{task}/pause"),
        await ada.post(f"/schedules/{task}/pause"),
        await api.ask("DELETE", f"/v1/wirings/{wiring}"),
    ]
    assert [(answer.status_code, answer.url.path) for answer in answers if answer.status_code != 403] == []
    assert all("ou may look at this" in answer.text for answer in answers)
    assert len(await gateway.fleet.rows(MessageIn)) == before
