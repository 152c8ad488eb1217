"""Migrations: bring a database up or down, and check that it fits this release.

The only synchronous database access; it is run by `longshore migrate`, and at start to look at one version number.
Revisions are numbers, in the names of the files: Alembic is loaded only to migrate."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from sqlalchemy import URL, Connection, create_engine, inspect, text
from sqlalchemy.exc import DBAPIError

from models.database import database_url, shown
from models.errors import DatabaseDownError, SchemaError

T = TypeVar("T")

_FOLDER = Path(__file__).parent / "migrations"


def revisions() -> list[str]:
    """All revisions this release knows, the oldest first: `v0001_spine.py` is 0001."""
    return sorted(path.name[1:5] for path in (_FOLDER / "versions").glob("v[0-9][0-9][0-9][0-9]_*.py"))


def head() -> str:
    """The schema version this release is written for."""
    return revisions()[-1]


def migrate(raw_url: str, revision: str = "head") -> None:
    """Move the database to a revision, up or (given an older one) down."""
    if revision not in ("head", "base", *revisions()):
        raise SchemaError(f"there is no revision {revision!r}; there are: base, {', '.join(revisions())}, head")

    def run(connection: Connection) -> None:
        from alembic import command
        from alembic.config import Config

        config = Config()
        config.set_main_option("script_location", str(_FOLDER))
        config.attributes["connection"] = connection
        current = _current(connection) or ""
        going_down = revision == "base" or (revision != "head" and revision < current)
        (command.downgrade if going_down else command.upgrade)(config, revision)

    _with_connection(database_url(raw_url), run)


def check(raw_url: str) -> None:
    """Raise SchemaError if the tables are missing or older than this release.

    A newer schema is accepted: migrations keep the release before them working, so that a fleet can be updated
    process by process."""
    url = database_url(raw_url)
    if _is_missing(url):
        # Not asked, which would make an empty one wherever somebody happens to be.
        raise SchemaError(
            f"there is no database at {shown(url)}: run this where `longshore up` was run, or set DATABASE_URL; "
            "`longshore migrate` makes a new one"
        )
    revision = _with_connection(url, _current)
    if revision is None:
        raise SchemaError("the database has no tables yet: run `longshore migrate`")
    if revision < head():
        raise SchemaError(
            f"the database is at version {revision}, this release needs {head()}: run `longshore migrate`"
        )


def _is_missing(url: URL) -> bool:
    in_file = url.get_backend_name() == "sqlite" and url.database not in (None, "", ":memory:")
    return in_file and not Path(str(url.database)).exists()


def _current(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one_or_none()


def _with_connection(url: URL, run: Callable[[Connection], T]) -> T:
    if url.get_backend_name() == "sqlite":
        Path(str(url.database)).parent.mkdir(parents=True, exist_ok=True)
        url = url.set(drivername="sqlite")
    engine = create_engine(url, hide_parameters=True)
    try:
        with engine.connect() as connection:
            result = run(connection)
            connection.commit()
            return result
    except DBAPIError as error:
        reason = str(error.orig).splitlines()[0]
        raise DatabaseDownError(f"the database at {shown(url)} cannot be used: {reason}") from error
    finally:
        engine.dispose()
