"""`/v1/providers`: what is installed and by whom, what it can do, how it is, and what its vendor lets through."""

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field

from gateway.http.api.forms import Page
from gateway.http.callers import Caller, needs
from gateway.http.dependencies import DoorDep, LookoutDep
from workers.governor import BucketState
from workers.provider_states import Seen


class HealthView(BaseModel):
    account: str = Field(description="a fingerprint of the credentials")
    state: Literal["ok", "limited", "down"]
    detail: str | None
    until: datetime | None
    checked_at: datetime


class LeftView(BaseModel):
    available: float
    limit: float


class LimitView(BaseModel):
    """A vendor's rate limits for one account and model."""

    account: str
    model: str
    paused_seconds: float
    left: dict[str, LeftView]


class ProviderView(BaseModel):
    id: str
    state: Literal["ok", "warning", "problem", "absent", "refused"]
    default: bool
    kind: str | None
    vendor: str | None
    version: str | None = Field(description="of the driver")
    software_version: str | None = Field(description="of the SDK or the program by which it works")
    installed: bool
    details: str | None
    error: str | None = Field(description="why it does not load, or was not let in")
    missing_key: str | None = Field(description="the variable that is not set here, if it needs one")
    default_model: str | None
    models: list[str]
    capabilities: dict[str, Any]
    health: list[HealthView]
    workers: list[str]
    limits: list[LimitView]


router = APIRouter(tags=["providers"])


@router.get("/providers")
async def list_providers(
    door: DoorDep, lookout: LookoutDep, caller: Annotated[Caller, needs("read")]
) -> Page[ProviderView]:
    """Everything known of each provider, at most 15 seconds old. For owners and global admins."""
    await door.see_fleet(caller)
    return Page(items=[provider_view(one) for one in await lookout.look()])


def provider_view(one: Seen) -> ProviderView:
    manifest, detection = one.manifest, one.detection
    error = one.refused.reason if one.refused is not None else one.error
    return ProviderView(
        id=one.name,
        state=one.state,
        default=one.is_default,
        kind=manifest and manifest.kind,
        vendor=manifest and manifest.vendor,
        version=manifest and manifest.version,
        software_version=detection and detection.version,
        installed=bool(detection and detection.installed),
        details=detection and detection.details,
        error=error,
        missing_key=one.missing_key,
        default_model=one.default_model,
        models=list(manifest.models) if manifest else [],
        capabilities=asdict(manifest.capabilities) if manifest else {},
        health=[
            HealthView(
                account=health.account,
                state=health.state,
                detail=health.detail,
                until=health.until,
                checked_at=health.checked_at,
            )
            for health in one.health
        ],
        workers=one.workers,
        limits=[_limit(state) for state in one.limits],
    )


def _limit(state: BucketState) -> LimitView:
    left = {kind: LeftView(available=max(item.available, 0.0), limit=item.limit) for kind, item in state.left.items()}
    return LimitView(account=state.key.account, model=state.key.model, paused_seconds=state.paused_seconds, left=left)
