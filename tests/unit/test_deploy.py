"""Deploy files and documents say what the code does: names, commands, settings, events and fields agree."""

import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from adapters.events import AnyEvent
from adapters.providers.script import Act
from adapters.registry import Registry
from models.base import Base
from workers.celery_config import make_app
from workers.intake.incoming import Incoming
from workers.settings import Settings
from workers.takeover import Wish

ROOT = Path(__file__).parents[2]
SERVERS = {"postgres", "valkey", "migrate"}


def read(path: str) -> str:
    return (ROOT / path).read_text()


@pytest.fixture(scope="module")
def procfile() -> dict[str, list[str]]:
    lines = [line for line in read("Procfile").splitlines() if line and not line.startswith("#")]
    return {name: shlex.split(command) for name, command in (line.split(": ", 1) for line in lines)}


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    return dict(yaml.safe_load(read("deploy/compose.yaml"))["services"])


@pytest.fixture(scope="module")
def dockerfile() -> list[str]:
    joined = read("deploy/Dockerfile").replace("\\\n", " ")
    return [line for line in joined.splitlines() if line and not line.startswith("#")]


def option(command: list[str], name: str) -> str:
    return command[command.index(name) + 1]


def first_column(document: str) -> set[str]:
    """What stands in backticks at the start of a table's rows."""
    return {cell for row in re.findall(r"^\| (`[^|]*) \|", document, re.M) for cell in re.findall(r"`([^`]+)`", row)}


@pytest.mark.spec("F1")
def test_every_queue_of_the_procfile_is_one_the_app_has(procfile: dict[str, list[str]]) -> None:
    known = {queue.name for queue in make_app(Settings(), Registry()).conf.task_queues}
    read_by_workers = {
        queue for command in procfile.values() if "worker" in command for queue in option(command, "-Q").split(",")
    }
    assert read_by_workers == known


@pytest.mark.spec("F1")
def test_workers_of_the_procfile_are_named_after_their_line(procfile: dict[str, list[str]]) -> None:
    for name, command in procfile.items():
        if command[0] == "longshore":
            assert command[1] == name
            continue
        assert command[:3] == ["celery", "-A", "workers.app"]
        if "worker" in command:
            assert option(command, "-n") == f"{name}@%h"


@pytest.mark.spec("F7")
def test_compose_runs_the_procfile(procfile: dict[str, list[str]], services: dict[str, Any]) -> None:
    assert set(services) - SERVERS == set(procfile)
    for name, command in procfile.items():
        composed = shlex.split(services[name]["command"])
        # Inside its container a server must listen on all addresses; the published port is what is bound to loopback.
        assert [part.replace("0.0.0.0", "127.0.0.1") for part in composed] == command


@pytest.mark.spec("F7")
def test_compose_waits_for_what_it_needs_and_probes_everything(
    procfile: dict[str, list[str]], services: dict[str, Any]
) -> None:
    for name in procfile:
        waits = {other: how["condition"] for other, how in services[name]["depends_on"].items()}
        assert waits == {
            "migrate": "service_completed_successfully",
            "postgres": "service_healthy",
            "valkey": "service_healthy",
        }
        probe = services[name]["healthcheck"]["test"][-1]
        assert f"longshore health {name}@" in probe or (name == "flower" and "/healthcheck" in probe)
    assert services["migrate"]["command"] == "longshore migrate"


@pytest.mark.spec("F7", "G5")
def test_compose_publishes_only_the_gateway_and_flower_on_loopback(services: dict[str, Any]) -> None:
    published = {name: service["ports"] for name, service in services.items() if "ports" in service}
    assert published == {"gateway": ["127.0.0.1:8400:8400"], "flower": ["127.0.0.1:5555:5555"]}
    assert services["flower"]["environment"]["FLOWER_BASIC_AUTH"].startswith("${FLOWER_BASIC_AUTH:?")


@pytest.mark.spec("F7")
def test_compose_asks_for_every_secret_and_holds_none(services: dict[str, Any]) -> None:
    wanted = set(re.findall(r"\$\{(\w+)", read("deploy/compose.yaml")))
    offered = dict(line.split("=", 1) for line in read("deploy/.env.example").splitlines() if re.match(r"\w+=", line))
    assert {name for name, value in offered.items() if not value} == wanted
    for service in services.values():
        for name, value in service.get("environment", {}).items():
            if re.search("PASSWORD|AUTH|URL", name):
                assert "${" in value


@pytest.mark.spec("F7")
def test_the_broker_of_compose_keeps_what_it_holds(services: dict[str, Any]) -> None:
    settings = services["valkey"]["command"][-1].splitlines()
    assert {"appendonly yes", "maxmemory-policy noeviction"} <= set(settings)


@pytest.mark.spec("F7")
def test_the_image_does_not_run_as_root(dockerfile: list[str]) -> None:
    user = [line for line in dockerfile if line.startswith("USER ")][-1].split()[1]
    assert int(user) > 0
    assert dockerfile[-1].startswith("USER ")
    assert any(line.startswith("HEALTHCHECK ") and '"longshore", "health"' in line for line in dockerfile)
    assert not [line for line in dockerfile if re.search("PASSWORD|SECRET|API_KEY|TOKEN", line)]


@pytest.mark.spec("F7")
def test_the_image_has_every_package(dockerfile: list[str]) -> None:
    packages = tomllib.loads(read("pyproject.toml"))["tool"]["setuptools"]["packages"]
    folders = {package.partition(".")[0] for package in packages}
    copied = {line.split()[1] for line in dockerfile if line.startswith("COPY ") and len(line.split()) == 3}
    let_in = {line[1:] for line in read(".dockerignore").splitlines() if line.startswith("!")}
    assert copied == {*folders, "deploy/clis"}
    assert folders <= let_in


@pytest.mark.spec("F8")
def test_operators_find_every_setting() -> None:
    rows = re.findall(r"^\| `([A-Z_]+)` \| `(\w+)` \|", read("docs/operators.md"), re.M)
    documented = {setting: variable for variable, setting in rows}
    expected = {}
    for name, field in Settings.model_fields.items():
        alias = field.validation_alias
        expected[name] = f"LONGSHORE_{name.upper()}" if alias is None else str(alias.choices[0])  # type: ignore[union-attr]
    assert documented == expected


@pytest.mark.spec("F8")
def test_operators_find_the_defaults() -> None:
    text = read("docs/operators.md")
    for name, field in Settings.model_fields.items():
        if isinstance(field.default, float | int) and not isinstance(field.default, bool):
            assert f"| `{name}` | {field.default:g} |" in text


@pytest.mark.spec("P2")
def test_every_event_is_documented() -> None:
    types = {kind.model_fields["type"].default for kind in get_args(AnyEvent)}
    assert types <= first_column(read("docs/events.md"))
    for kind in get_args(AnyEvent):
        name = kind.model_fields["type"].default
        example = re.search(rf'`(\{{"type": "{name}".*\}})`', read("docs/events.md"))
        assert example is not None
        kind.model_validate_json(example[1])
        assert [field for field in kind.model_fields if f'"{field}"' not in example[1]] in ([], ["retry_in"], ["error"])


@pytest.mark.spec("P12")
def test_every_wish_at_a_terminal_is_documented() -> None:
    examples = {json.loads(raw)["do"]: raw for raw in re.findall(r'`(\{"do": .*?\})`', read("docs/events.md"))}
    for kind in get_args(Wish):
        example = kind.model_validate_json(examples.pop(kind.model_fields["do"].default))
        assert example.model_fields_set == set(kind.model_fields)
    assert examples == {}


@pytest.mark.spec("G1")
def test_every_field_of_a_message_is_documented() -> None:
    text = read("docs/producers.md")
    assert set(Incoming.model_fields) == first_column(text) - {"chat", "chat-sdk", "task", "webhook", "longshore send"}
    for block in re.findall(r"```json\n(.*?)```", text, re.S):
        Incoming.model_validate_json(block)


@pytest.mark.spec("P11")
def test_every_act_of_a_script_is_documented() -> None:
    acts = {next(iter(act.model_fields)) for act in get_args(Act)}
    documented = {cell.partition(":")[0] for cell in first_column(read("docs/scripted.md"))}
    assert acts <= documented


@pytest.mark.spec("C1", "C2")
def test_the_table_of_channels_says_what_each_can_do() -> None:
    rows = re.findall(r"^\| (?:\[?)`(\w+)`[^|]* \|(.*)\|$", read("docs/channels/README.md"), re.M)
    table = {name: [cell.strip() for cell in cells.split("|")] for name, cells in rows}
    drivers = {name: driver for name, driver in Registry().channels.working.items() if name != "fake"}
    assert set(table) == {*drivers, "agent"}
    for name, driver in drivers.items():
        can = driver.capabilities
        flags = (can.buttons, can.edits, can.reactions, can.typing, can.files, can.direct_messages)
        assert table[name][1:8] == [*("yes" if flag else "-" for flag in flags), str(can.max_text)]
        assert (table[name][8].startswith("no: keys")) == can.idempotent
        assert (table[name][8] == "no: it is asked") == (can.findable and not can.idempotent)


def test_the_readme_names_commands_that_exist() -> None:
    targets = set(re.findall(r"^(\w+):", read("Makefile"), re.M))
    for document in ("README.md", "CONTRIBUTING.md"):
        named = set(re.findall(r"^make (\w+)|`make (\w+)`", read(document), re.M))
        assert {one or other for one, other in named} <= targets


def test_documents_link_to_files_that_exist() -> None:
    documents = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.md")]
    for document in documents:
        for link in re.findall(r"\]\(([^)#:]+)(?:#[\w-]*)?\)", document.read_text()):
            assert (document.parent / link).exists(), f"{document.name} links to {link}"


def test_features_have_unique_ids_and_a_status() -> None:
    rows = re.findall(r"^\| ([A-Z]\d+) \| .* \| (\w+) \|$", read("docs/features.md"), re.M)
    ids = [row_id for row_id, _ in rows]
    assert len(ids) == len(set(ids))
    assert {status for _, status in rows} <= {"done", "planned"}
    # Every row of every table was read: all lines but the two at the head of each.
    lines = re.findall(r"^\|.*", read("docs/features.md"), re.M)
    assert len(ids) == len(lines) - 2 * sum(line.startswith("| ---") for line in lines)


@pytest.mark.spec("D1")
def test_every_table_is_in_the_architecture() -> None:
    tables = {table.name for table in Base.metadata.sorted_tables}
    assert tables <= set(re.findall(r"`(\w+)`", read("ARCHITECTURE.md")))


def test_modules_the_architecture_names_exist() -> None:
    folders = "models|adapters|scheduler|workers|tasks|gateway|docs"
    for path in re.findall(rf"`((?:{folders})/[\w/.]+\.\w+)`", read("ARCHITECTURE.md")):
        assert (ROOT / path).exists()
