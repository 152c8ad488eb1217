"""Removing the folders of workflows that are over: at once of those that reached their goal, whose result lies where it
was handed over; after a while of the others, which somebody may want to look at, or to go on with."""

import asyncio
from pathlib import Path
from typing import Final

from adapters.removal import remove_tree
from models.database import Database
from models.workflows import find_workflow
from workers.workflows.assignment import FOLDER

KEPT_SECONDS: Final = 14 * 86_400.0


async def tidy_workflows(db: Database, root: Path) -> None:
    for name in await asyncio.to_thread(_names, root / FOLDER):
        workflow = await db.read(lambda conn, name=name: find_workflow(conn, name))  # type: ignore[misc]
        if workflow is None or workflow.status == "running" or workflow.ended_at is None:
            continue  # one that is not known may be another fleet's, on a disk that is shared
        age = (workflow.at - workflow.ended_at).total_seconds()
        if workflow.status == "completed" or age > KEPT_SECONDS:
            await asyncio.to_thread(remove_tree, root / FOLDER / name)


def _names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()] if folder.is_dir() else []
