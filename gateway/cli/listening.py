"""Is anybody there? Whether workers read a provider's queue, and the words for when none does."""

from gateway.cli.desk import Desk, err, fail, shown
from models.fleet import living_processes
from models.sessions import find_session
from workers.bells import agent_queue
from workers.intake.ingest import Accepted


async def listeners(desk: Desk, provider: str) -> list[str]:
    """The workers that read a provider's queue and have lately said that they live."""
    alive = await desk.db.read(lambda conn: living_processes(conn, desk.settings.alive_seconds))
    return [process.name for process in alive if agent_queue(provider) in process.queues]


async def nobody_listens(desk: Desk, accepted: Accepted) -> str | None:
    """That a message which was just stored has to wait, and for what, in words with markup; None: it need not."""
    session = await desk.db.read(lambda conn: find_session(conn, accepted.session_id))
    assert session is not None
    provider = session.provider or session.group_provider or desk.settings.default_provider
    if provider not in desk.registry.providers.names:
        fail(
            f"stored, but {desk.registry.providers.missing(provider)}. "
            f"Set one for the group, then: longshore dead retry {accepted.message_id[-8:]}"
        )
    if await listeners(desk, provider):
        return None
    return (
        f"[yellow]stored, but no worker listens on {shown(agent_queue(provider))}[/yellow]: "
        "it is answered as soon as one starts (Ctrl-C stops waiting, not the message)"
    )


async def warn_of_provider(desk: Desk, provider: str) -> None:
    """Say what an agent that has just been given this provider still lacks. The workers may know a key that is not set
    here, so it is a warning and not an error."""
    # Imported here: `send` and listings do not ask providers, and importing their ports is slow.
    from workers.provider_states import ask

    one = await ask(desk.registry, provider)
    if one.detection is None:
        err.print(f"[yellow]{shown(provider)} does not work here[/yellow]: {shown(one.error)}")
    elif not one.detection.installed:
        err.print(f"[yellow]{shown(provider)} is not installed here[/yellow]: {shown(one.detection.details)}")
    elif one.missing_key:
        err.print(f"[yellow]{one.missing_key} is not set here[/yellow]: set it where the workers run")
    if not await listeners(desk, provider):
        err.print(
            f"[yellow]no worker listens on {shown(agent_queue(provider))}[/yellow]: messages wait until one starts"
        )
