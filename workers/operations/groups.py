"""Agents: to make one, and to change how one runs. Its next turn goes by it."""

import re
from dataclasses import replace
from typing import Any, Final

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from models.audit import note
from models.base import new_id
from models.groups import AgentGroup
from models.upsert import insert_ignoring
from workers.house import House
from workers.operations.agents import agent_named
from workers.operations.group_settings import DEFAULT, Changes, GroupSettings, GroupSettingsError

_FOLDER: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,99}")


def check_folder(folder: str) -> str:
    if not _FOLDER.fullmatch(folder):
        raise GroupSettingsError(f"{folder!r} cannot be a folder: use small letters, digits, - and _")
    return folder


async def add_group(house: House, by: str, folder: str, changes: Changes) -> GroupSettings:
    """GroupSettingsError: a setting cannot be what was asked for; `kind` is `busy` if the folder is taken."""
    check_folder(folder)
    # Its provider is checked even if none is named: the default one may not be installed, or may want options.
    asked = replace(changes, provider=changes.provider or DEFAULT)
    made = asked.applied(GroupSettings(folder), house.registry, house.settings.default_provider)
    group_id = new_id()

    async def work(conn: AsyncConnection) -> bool:
        if not await insert_ignoring(conn, AgentGroup, id=group_id, folder=folder, **made.columns()):
            return False
        await note(conn, by, "group.add", folder, agent_group_id=group_id, **_told(changes))
        return True

    if not await house.db.transact(work):
        text = f"there is already an agent {folder!r}; change it with: longshore groups set {folder}"
        raise GroupSettingsError(text, kind="busy")
    return made


async def update_group(house: House, by: str, handle: str, changes: Changes) -> tuple[GroupSettings, GroupSettings]:
    """Returns how it was and how it is. `handle`: folder or id."""

    async def work(conn: AsyncConnection) -> tuple[GroupSettings, GroupSettings]:
        found = await agent_named(conn, handle)
        # Under the row's lock (SQLite: the writer's), so that two changes at once are both kept.
        locked = select(AgentGroup.__table__).where(AgentGroup.id == found.id).with_for_update()
        before = GroupSettings.of_row((await conn.execute(locked)).one())
        after = changes.applied(before, house.registry, house.settings.default_provider)
        await conn.execute(update(AgentGroup).where(AgentGroup.id == found.id).values(**after.columns()))
        await note(conn, by, "group.update", found.folder, agent_group_id=found.id, **_told(changes))
        return before, after

    return await house.db.transact(work)


def _told(changes: Changes) -> dict[str, Any]:
    """For the audit log: of options and policies only what they are called."""
    plain = {name: getattr(changes, name) for name in ("name", "provider", "model")}
    fallbacks = list(changes.fallbacks) if changes.fallbacks is not None else None
    options, policy = sorted(changes.options) or None, None if changes.policy is None else sorted(changes.policy)
    return plain | {
        "fallbacks": fallbacks,
        "budget": dict(changes.budget) or None,
        "options": options,
        "policy": policy,
    }
