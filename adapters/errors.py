"""What drivers of the outside world may raise, and how it is judged. All survive a pickle round trip.

AdapterError
├── UnknownDriverError      no provider, channel or tool of that name is installed
├── BrokenDriverError       it is installed but does not load
├── RefusedDriverError      it is installed but the operator does not allow it, or it is not what its maker signed
├── SigningError            a wheel cannot be signed, or a key not used
├── ScriptError             a script of the `scripted` provider does not read
├── ProviderError           a provider failed; says of which class, whether to retry, and when
├── ToolError               a tool failed; its text is for the agent
│   ├── WorkspaceError      a path or file in an agent's folder is not what was asked for
│   └── WebError            an address may not be asked, or did not answer
├── SandboxError            a program could not be started in the sandbox
├── GitError                git could not do what was asked; says whether it may pass
├── TerminalError           a person cannot do that in a program's terminal now
└── ChannelError            a platform did not take a message
    ├── SignatureError      an inbound request is not from whom it says
    ├── MalformedError      an inbound request cannot be read
    └── DeliveryError       says whether to retry, when, and whether it may have arrived all the same
"""

from enum import StrEnum


class ErrorClass(StrEnum):
    """Why an attempt at a turn or a delivery failed: what decides over retrying."""

    TRANSPORT = "transport"
    RATE_LIMIT = "rate_limit"
    QUOTA = "quota"
    AUTH = "auth"
    INVALID_REQUEST = "invalid_request"
    CONTEXT_TOO_LONG = "context_too_long"
    PROVIDER_HANG = "provider_hang"
    TOOL = "tool"
    INTERNAL = "internal"
    # Decided by the fleet, never by a provider:
    OUTPUT_SENT = "output_sent"
    CANCELLED = "cancelled"
    WORKER_LOST = "worker_lost"
    UNKNOWN_PROVIDER = "unknown_provider"
    BUDGET = "budget"
    SCRIPT = "script"  # the one before a task

    @property
    def can_pass(self) -> bool:
        """Whether the same attempt may succeed later without anybody changing anything."""
        return self in _PASSING


_PASSING = frozenset(
    {
        ErrorClass.TRANSPORT,
        ErrorClass.RATE_LIMIT,
        ErrorClass.PROVIDER_HANG,
        ErrorClass.TOOL,
        ErrorClass.INTERNAL,
        ErrorClass.WORKER_LOST,
    }
)


class AdapterError(Exception):
    """A driver failed."""


class UnknownDriverError(AdapterError):
    """No such driver is installed."""


class BrokenDriverError(AdapterError):
    """The driver does not load."""


class RefusedDriverError(AdapterError):
    """The driver is not allowed here, or not what its maker signed."""


class SigningError(AdapterError):
    """The wheel cannot be signed, or the key not used."""


class ScriptError(AdapterError):
    """The script does not read."""


class ProviderError(AdapterError):
    """A provider failed. `retry_after` is in seconds. `asked` is False when it was held back and never asked."""

    def __init__(
        self,
        message: str,
        error_class: ErrorClass = ErrorClass.INTERNAL,
        retry_after: float | None = None,
        asked: bool = True,
    ) -> None:
        super().__init__(message, error_class, retry_after, asked)
        self.message = message
        self.error_class = error_class
        self.retry_after = retry_after
        self.asked = asked

    def __str__(self) -> str:
        return self.message


class ToolError(AdapterError):
    """A tool failed. The text is shown to the agent, which decides what to do about it."""


class WorkspaceError(ToolError):
    """A path leads out of the workspace, or what is there is not what was asked for."""


class WebError(ToolError):
    """An address may not be asked, or did not answer as asked."""


class SandboxError(AdapterError):
    """The program could not be started in the sandbox."""


class GitError(AdapterError):
    """A repository is not as it would have to be, or git did not do what was asked; the text is for a person.

    `retryable`: it may pass by itself (a lock, a full disk, a machine that is slow)."""

    def __init__(self, message: str, retryable: bool = False) -> None:
        super().__init__(message, retryable)
        self.message = message
        self.retryable = retryable

    def __str__(self) -> str:
        return self.message


class TerminalError(AdapterError):
    """What a person wants of a program's terminal is not possible now; the text is for that person."""


class ChannelError(AdapterError):
    """A platform or a request from it was not usable."""


class SignatureError(ChannelError):
    """The request's signature is missing or wrong."""


class MalformedError(ChannelError):
    """The request's body cannot be read."""


class DeliveryError(ChannelError):
    """A platform did not take a message.

    `retryable`: the same message may go through later. `may_have_arrived`: the platform may have taken it although it
    did not say so, and a channel without idempotency keys must not send it again."""

    def __init__(
        self,
        message: str,
        *,
        retryable: bool,
        retry_after: float | None = None,
        may_have_arrived: bool = False,
    ) -> None:
        super().__init__(message)
        self.retryable = retryable
        self.retry_after = retry_after
        self.may_have_arrived = may_have_arrived

    def __reduce__(self) -> tuple[object, ...]:
        return (_delivery_error, (str(self), self.retryable, self.retry_after, self.may_have_arrived))


def _delivery_error(message: str, retryable: bool, retry_after: float | None, may_have_arrived: bool) -> DeliveryError:
    return DeliveryError(message, retryable=retryable, retry_after=retry_after, may_have_arrived=may_have_arrived)
