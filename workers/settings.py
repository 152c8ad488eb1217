"""The operator's settings, from the environment, checked once at start.

Nothing deep inside reads the environment: what a part needs it is handed. Drivers read their own secrets."""

import json
from pathlib import Path
from typing import Any, Literal

from pydantic import AliasChoices, Field, ValidationError, field_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, SettingsConfigDict

EMBEDDED_FILE = "embedded.json"
# Platforms repeat a message for days when they got no answer: that it was heard before is known by its row.
LEAST_KEEP_DAYS = 7
MOST_KEEP_DAYS = 36_500


class SettingsError(Exception):
    """The environment does not make a usable configuration."""


class Settings(BaseSettings):
    """Ours begin with LONGSHORE_; the few shared names (DATABASE_URL …) do not."""

    model_config = SettingsConfigDict(
        env_prefix="LONGSHORE_", extra="ignore", populate_by_name=True, frozen=True, env_ignore_empty=True
    )

    home: Path = Path(".longshore")
    database_url: str = Field("", validation_alias=AliasChoices("DATABASE_URL", "database_url"))
    redis_url: str = Field("", validation_alias=AliasChoices("REDIS_URL", "redis_url"))
    broker_url: str = Field("", validation_alias=AliasChoices("BROKER_URL", "broker_url"))
    default_provider: str = Field("anthropic", validation_alias=AliasChoices("DEFAULT_PROVIDER", "default_provider"))
    default_model: str | None = Field(None, validation_alias=AliasChoices("DEFAULT_MODEL", "default_model"))
    workspace_root: Path = Field(
        Path(".longshore/workspaces"), validation_alias=AliasChoices("WORKSPACE_ROOT", "workspace_root")
    )

    # Seconds.
    lease_seconds: float = Field(30.0, gt=0, description="a worker that says nothing for so long has lost its sessions")
    sweep_seconds: float = Field(1.0, gt=0, description="how often beat rings the sweep")
    repeat_seconds: float = Field(5.0, gt=0, description="a wake older than this counts as lost")
    retry_base_seconds: float = Field(5.0, gt=0, description="wait before the second try; doubles")
    max_tries: int = Field(5, ge=1)
    failover_seconds: float = Field(
        30.0, ge=0, description="a provider that asks for more patience is not waited for if the agent has another"
    )
    limit_seconds: float = Field(
        3600.0, ge=0, description="how long a turn waits for rate limits and outages before that uses up its tries"
    )
    delivery_seconds: float = Field(60.0, gt=0, description="a sending that takes longer is in doubt")
    doubtful_delivery: Literal["unknown", "resend"] = Field(
        "unknown", description="a message that may have arrived, if the platform cannot tell: `resend` may say it twice"
    )
    turn_seconds: float = Field(3600.0, gt=0, description="a turn that takes longer is stopped and tried again")
    silent_seconds: float = Field(600.0, gt=0, description="a provider that says nothing for so long hangs")
    grace_seconds: float = Field(20.0, ge=0, description="on SIGTERM, how long running turns may go on")
    approval_seconds: float = Field(86_400.0, gt=0, description="how long a risky call waits for somebody's approval")
    sandbox: Literal["bubblewrap", "docker", "none"] = Field(
        "bubblewrap", description="where agents' programs run; `none`: unconfined, as the worker itself"
    )
    sandbox_image: str = Field("debian:stable-slim", description="for the sandbox `docker`")
    sandbox_uid: int = Field(65534, ge=1, description="who agents' programs run as when the worker runs as root")
    private_hosts: str = Field("", description="host or host:port, comma-separated, that agents may ask though private")
    pool: str = Field("workers.pool:TaskPool", description="Celery's pool; `-P threads` and `-P solo` work as well")
    database_pool: int = Field(8, ge=2, description="connections per process")
    database_prepare: bool = Field(True, description="prepared statements; off for a PgBouncer before 1.24")
    keep_days: int = Field(
        0, ge=0, le=MOST_KEEP_DAYS, description="finished rows older than this are removed; 0: none, else at least 7"
    )
    keep_refused_days: int = Field(
        30, ge=0, le=MOST_KEEP_DAYS, description="the same for input that was refused; 0: it stays"
    )
    archive: Path | None = Field(None, description="a folder where rows are kept before they are removed")
    public_url: str = Field("", description="where people reach the gateway, e.g. https://agents.example")
    hosts: str = Field("", description="other names, comma-separated, by which the gateway may be called")
    origins: str = Field(
        "", description="origins, comma-separated, whose pages may use the API, e.g. https://app.example"
    )
    token_rate: float = Field(2000.0, ge=0, description="requests a second with one token; 0: no limit")
    address_rate: float = Field(200.0, ge=0, description="the same from one address without a known token")
    log_level: str = "INFO"
    log_json: bool = False

    @field_validator("keep_days")
    @classmethod
    def _long_enough(cls, days: int) -> int:
        if 0 < days < LEAST_KEEP_DAYS:
            why = "too few days: give at least {least}, or 0 to keep everything"
            raise PydanticCustomError("keep_days", why, {"least": LEAST_KEEP_DAYS})
        return days

    @property
    def alive_seconds(self) -> float:
        """A process that has not said for so long that it lives is taken for dead. Workers say it three times within a
        lease; a beat says it only when its sweep is run, so a short lease does not count."""
        return max(30.0, self.lease_seconds)

    @property
    def broker(self) -> str:
        return self.broker_url or self.redis_url


def load_settings(**overrides: Any) -> Settings:
    """Settings from the environment; what it leaves out comes from a `longshore up` that runs in this folder."""
    try:
        settings = Settings(**overrides)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        variable = name if name.isupper() else f"LONGSHORE_{name.upper()}"
        raise SettingsError(f"{variable}: {first['msg']}") from None
    running = _embedded(settings.home)
    defaults = {
        "database_url": settings.database_url
        or running.get("database_url")
        or f"sqlite:///{settings.home}/longshore.db",
        "redis_url": settings.redis_url or _if_redis(settings.broker_url) or running.get("redis_url", ""),
    }
    for name in ("default_provider", "public_url"):
        if name not in settings.model_fields_set and name in running:
            defaults[name] = running[name]
    complete = settings.model_copy(update=defaults | overrides)
    if complete.redis_url and not _if_redis(complete.redis_url):
        raise SettingsError("REDIS_URL is not a Redis address. Write redis://:password@host:6379/0")
    return complete


def _if_redis(broker_url: str) -> str:
    """Events need a Redis; the broker's will do, if it is one."""
    return broker_url if broker_url.startswith(("redis://", "rediss://", "unix://")) else ""


def require_broker(settings: Settings) -> None:
    if not settings.redis_url:
        raise SettingsError("REDIS_URL is not set, and no `longshore up` runs in this folder: set it, or run `make up`")


def _embedded(home: Path) -> dict[str, str]:
    """Where the embedded services of a running `longshore up` listen (the file is readable by its owner only)."""
    try:
        loaded = json.loads((home / EMBEDDED_FILE).read_text())
    except (OSError, ValueError):
        return {}
    return loaded if isinstance(loaded, dict) else {}
