"""Migrations: bring a database up or down, and check that it fits this release.

The only synchronous database access; it is run by `longshore migrate`, and at start to look at one version number."""

from collections.abc import Callable
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import URL, Connection, create_engine
from sqlalchemy.exc import DBAPIError

from models.database import database_url
from models.errors import DatabaseDownError, SchemaError

_FOLDER = Path(__file__).parent / "migrations"


def head() -> str:
    """The schema version this release is written for."""
    return str(ScriptDirectory(str(_FOLDER)).get_current_head())


def migrate(raw_url: str, revision: str = "head") -> None:
    """Move the database to a revision, up or (given an older one) down."""

    def run(connection: Connection) -> None:
        config = _config()
        config.attributes["connection"] = connection
        going_down = revision == "base" or revision in _older_than(current_revision(connection))
        (command.downgrade if going_down else command.upgrade)(config, revision)

    _with_connection(database_url(raw_url), run)


def check(raw_url: str) -> None:
    """Raise SchemaError if the tables are missing or older than this release.

    A newer schema is accepted: migrations keep the release before them working, so that a fleet can be updated
    process by process."""
    found: list[str | None] = []
    _with_connection(database_url(raw_url), lambda connection: found.append(current_revision(connection)))
    revision = found[0]
    if revision is None:
        raise SchemaError("the database has no tables yet: run `longshore migrate`")
    known = {script.revision for script in ScriptDirectory(str(_FOLDER)).walk_revisions()}
    if revision in known and revision != head():
        raise SchemaError(
            f"the database is at version {revision}, this release needs {head()}: run `longshore migrate`"
        )


def current_revision(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


def _older_than(revision: str | None) -> set[str]:
    if revision is None:
        return set()
    scripts = ScriptDirectory(str(_FOLDER))
    return {script.revision for script in scripts.walk_revisions("base", revision)} - {revision}


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(_FOLDER))
    return config


def _with_connection(url: URL, run: Callable[[Connection], None]) -> None:
    if url.get_backend_name() == "sqlite":
        Path(str(url.database)).parent.mkdir(parents=True, exist_ok=True)
        url = url.set(drivername="sqlite")
    engine = create_engine(url)
    try:
        with engine.connect() as connection:
            run(connection)
            connection.commit()
    except DBAPIError as error:
        reason = str(error.orig).splitlines()[0]
        shown = url.set(query={}).render_as_string()  # a password may also stand in the query
        raise DatabaseDownError(f"the database at {shown} cannot be used: {reason}") from error
    finally:
        engine.dispose()
