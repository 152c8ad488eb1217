"""When a turn may call a model: the provider is not down, its rate limit has room, the budget has money.

Whoever may not is told when to come back and lets go of its slot; nobody waits in here."""

from adapters.errors import ErrorClass, ProviderError
from adapters.model_port import ModelFacts, ModelProvider, ModelReply, ModelRequest
from workers.breaker import Breaker
from workers.budget import Purse
from workers.context import estimate
from workers.governor import BucketKey, Buckets
from workers.model_journal import ModelJournal


class FleetGate:
    """A turn's `Gate`."""

    def __init__(
        self, provider: ModelProvider, breaker: Breaker, buckets: Buckets, purse: Purse, notebook: ModelJournal
    ) -> None:
        self._account = (provider.manifest.adapter_id, provider.account)
        self._breaker = breaker
        self._buckets = buckets
        self._purse = purse
        self._notebook = notebook
        self._estimated = 0

    async def enter(self, number: int, request: ModelRequest, facts: ModelFacts) -> None:
        if wait := await self._breaker.wait(self._account):
            raise is_down(self._account[0], wait)
        self._estimated = estimate(request.items, request.system)
        if facts.input_usd is not None and facts.output_usd is not None:
            usd = (self._estimated * facts.input_usd + request.max_tokens * facts.output_usd) / 1_000_000
            await self._purse.hold(self._notebook.step_id(number), usd)
        if wait := await self._buckets.take(self._key(request), self._estimated):
            why = f"the rate limit of {request.model} is used up"
            raise ProviderError(why, ErrorClass.RATE_LIMIT, wait, False)
        if wait := await self._breaker.try_again(self._account):
            raise is_down(self._account[0], wait)

    async def leave(self, number: int, request: ModelRequest, reply: ModelReply) -> None:
        usage = reply.usage
        used = usage.input_tokens + usage.cache_write_tokens
        await self._buckets.feed(self._key(request), reply.allowances, estimated=self._estimated, used=used)
        await self._breaker.succeeded(self._account)

    async def failed(self, request: ModelRequest, error: ProviderError) -> None:
        if error.error_class is ErrorClass.RATE_LIMIT and error.retry_after is not None:
            await self._buckets.pause(self._key(request), error.retry_after)
        await self._breaker.failed(self._account, error)

    def _key(self, request: ModelRequest) -> BucketKey:
        return BucketKey(*self._account, request.model)


def is_down(provider: str, wait: float) -> ProviderError:
    why = f"{provider} does not answer and is left alone for a while"
    return ProviderError(why, ErrorClass.TRANSPORT, wait, False)
