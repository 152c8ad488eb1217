"""`ask_user_question`: the agent asks, and goes on when a person has answered. Nothing waits meanwhile but a row."""

from pydantic import BaseModel, Field, field_validator

from adapters.actions import Ask
from adapters.tool_port import Tool, ToolArguments, ToolContext

DEFAULT_SECONDS = 300
LONGEST_SECONDS = 7 * 24 * 3600


class Option(BaseModel):
    label: str = Field(min_length=1, max_length=200)
    value: str | None = Field(None, max_length=200, description="what you are told when it is chosen; else the label")


class AskArguments(ToolArguments):
    title: str = Field(min_length=1, max_length=200, description="a few words, for example: Confirm deletion")
    question: str = Field(min_length=1, max_length=4000)
    options: list[str | Option] = Field(default_factory=list, max_length=20, description="none: any text is an answer")
    timeout: float = Field(
        DEFAULT_SECONDS, gt=0, le=LONGEST_SECONDS, description="seconds to wait; then you are told that nobody answered"
    )

    @field_validator("options")
    @classmethod
    def _different(cls, options: list[str | Option]) -> list[str | Option]:
        labels = [label_of(option).casefold().strip() for option in options]
        if "" in labels or len(set(labels)) < len(labels):
            raise ValueError("options must not be empty and must differ")
        return options


def label_of(option: str | Option) -> str:
    return option if isinstance(option, str) else option.label


async def _ask(arguments: AskArguments, context: ToolContext) -> Ask:
    options = tuple(label_of(option) for option in arguments.options)
    values = tuple((o.value or o.label) if isinstance(o, Option) else o for o in arguments.options)
    return Ask(arguments.title, arguments.question, options, values, arguments.timeout)


ASK_USER_QUESTION = Tool(
    "ask_user_question",
    "Asks the people of this conversation a question and waits for the answer. Use it when only they can decide.",
    AskArguments,
    _ask,
    idempotent=True,  # the question is written together with the fact that it was asked
)
