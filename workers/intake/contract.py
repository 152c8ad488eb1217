"""The published JSON Schema of a message: `docs/schemas/message.json`, for producers in any language.

`python -m workers.intake.contract` writes it anew after a change of `Incoming`. The same schema is in the gateway's
OpenAPI document. What a schema cannot say (cron, time zones, sizes) is said by the refusal."""

import json
from pathlib import Path
from typing import Any, Final

from workers.intake.incoming import Incoming

FILE: Final = Path(__file__).resolve().parents[2] / "docs" / "schemas" / "message.json"
COMMAND: Final = "python -m workers.intake.contract"


def message_schema() -> dict[str, Any]:
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Incoming.model_json_schema()}


def written_schema() -> str:
    return json.dumps(message_schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(written_schema())
