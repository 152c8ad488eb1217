"""The operator's settings: names, defaults, a sentence for a bad value, and the file of a running `longshore up`."""

import json
import os
from pathlib import Path

import pytest
from pydantic import ValidationError

from workers.settings import EMBEDDED_FILE, Settings, SettingsError, load_settings, require_broker

SHARED = {
    "DATABASE_URL": ("database_url", "postgresql://db/x"),
    "REDIS_URL": ("redis_url", "redis://r/1"),
    "BROKER_URL": ("broker_url", "amqp://b//"),
    "DEFAULT_PROVIDER": ("default_provider", "openai"),
    "DEFAULT_MODEL": ("default_model", "m-1"),
    "WORKSPACE_ROOT": ("workspace_root", "/srv/work"),
}


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An empty folder and an environment that says nothing about us."""
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name in SHARED or name.startswith("LONGSHORE_"):
            monkeypatch.delenv(name)


@pytest.fixture
def running(tmp_path: Path) -> dict[str, str]:
    """What a `longshore up` in this folder has written down."""
    said = {"database_url": "sqlite:///up.db", "redis_url": "redis://up/0", "default_provider": "scripted"}
    (tmp_path / ".longshore").mkdir()
    (tmp_path / ".longshore" / EMBEDDED_FILE).write_text(json.dumps(said))
    return said


@pytest.mark.spec("G6")
def test_an_empty_environment_has_a_database_and_no_broker() -> None:
    settings = load_settings()
    assert settings.database_url == "sqlite:///.longshore/longshore.db"
    assert (settings.redis_url, settings.broker) == ("", "")
    assert (settings.default_provider, settings.default_model) == ("anthropic", None)
    with pytest.raises(SettingsError, match="REDIS_URL is not set, and no `longshore up` runs in this folder"):
        require_broker(settings)


@pytest.mark.spec("F1")
@pytest.mark.parametrize("variable", SHARED)
def test_a_shared_name_is_read(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    field, value = SHARED[variable]
    monkeypatch.setenv(variable, value)
    assert str(getattr(load_settings(), field)) == value


@pytest.mark.spec("F1")
def test_every_other_setting_begins_with_longshore(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = set(Settings.model_fields) - {field for field, _ in SHARED.values()}
    values = {"home": "/h", "pool": "solo", "log_level": "DEBUG", "log_json": "true", "database_prepare": "true"} | {
        "sandbox": "docker",
        "doubtful_delivery": "resend",
    }
    for field in ours:
        monkeypatch.setenv(f"LONGSHORE_{field.upper()}", values.get(field, "7"))
    settings = load_settings()
    assert {
        field
        for field in ours
        if str(getattr(settings, field)).lower() not in {"7.0", "7", *map(str.lower, values.values())}
    } == set()


@pytest.mark.spec("F5")
def test_the_broker_may_be_another_than_redis(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", "redis://r/1")
    assert load_settings().broker == "redis://r/1"
    monkeypatch.setenv("BROKER_URL", "amqp://b//")
    assert load_settings().broker == "amqp://b//"
    require_broker(load_settings())


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("LEASE_SECONDS", "soon", "valid number"),
        ("LEASE_SECONDS", "-1", "greater than 0"),
        ("LEASE_SECONDS", "0", "greater than 0"),
        ("MAX_TRIES", "0", "greater than or equal to 1"),
        ("MAX_TRIES", "2.5", "valid integer"),
        ("DATABASE_POOL", "1", "greater than or equal to 2"),
        ("GRACE_SECONDS", "-0.1", "greater than or equal to 0"),
        ("LOG_JSON", "perhaps", "valid boolean"),
        ("KEEP_DAYS", "6", "too few days: give at least 7, or 0 to keep everything"),
        ("KEEP_DAYS", "-1", "greater than or equal to 0"),
        ("KEEP_DAYS", "1000000", "less than or equal to 36500"),
        ("KEEP_REFUSED_DAYS", "-1", "greater than or equal to 0"),
    ],
)
def test_a_bad_value_gives_a_sentence_that_names_the_setting(
    name: str, value: str, complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"LONGSHORE_{name}", value)
    with pytest.raises(SettingsError) as caught:
        load_settings()
    message = str(caught.value)
    assert name.lower() in message.lower()
    assert complaint in message
    assert "\n" not in message
    assert caught.value.__cause__ is None


@pytest.mark.spec("F9")
@pytest.mark.parametrize("name", ["LEASE_SECONDS", "MAX_TRIES", "LOG_JSON"])
def test_an_error_never_repeats_the_value(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody may have pasted a key into the wrong variable."""
    monkeypatch.setenv(f"LONGSHORE_{name}", "hunter2")
    monkeypatch.setenv("DATABASE_URL", "postgresql://me:hunter2@db/x")
    with pytest.raises(SettingsError) as caught:
        load_settings()
    assert "hunter2" not in str(caught.value)
    assert caught.value.__suppress_context__


@pytest.mark.spec("G6")
def test_a_running_up_is_found_when_the_environment_is_silent(running: dict[str, str]) -> None:
    settings = load_settings()
    assert {name: getattr(settings, name) for name in running} == running
    assert settings.broker == running["redis_url"]
    require_broker(settings)


@pytest.mark.spec("G6")
@pytest.mark.parametrize("variable", ["DATABASE_URL", "REDIS_URL", "DEFAULT_PROVIDER"])
def test_what_the_environment_says_counts_more_than_a_running_up(
    variable: str, running: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    field, value = SHARED[variable]
    monkeypatch.setenv(variable, value)
    settings = load_settings()
    assert {name: getattr(settings, name) for name in running} == running | {field: value}


@pytest.mark.spec("G6")
def test_an_empty_variable_is_a_silent_one(running: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("DATABASE_URL", "REDIS_URL", "DEFAULT_PROVIDER"):
        monkeypatch.setenv(variable, "")
    settings = load_settings()
    assert {name: getattr(settings, name) for name in running} == running


@pytest.mark.spec("G6")
def test_a_running_up_elsewhere_is_found_by_its_home(
    running: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert load_settings().redis_url == ""
    monkeypatch.setenv("LONGSHORE_HOME", str(tmp_path / ".longshore"))
    assert load_settings().redis_url == running["redis_url"]


@pytest.mark.parametrize("content", ["", "not json", "[]", "null", '"text"', "\ufeff{}"])
def test_a_damaged_file_counts_as_none(content: str, tmp_path: Path) -> None:
    (tmp_path / ".longshore").mkdir()
    (tmp_path / ".longshore" / EMBEDDED_FILE).write_text(content)
    assert load_settings().redis_url == ""


def test_what_a_caller_hands_in_counts_most(running: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", "redis://environment/0")
    assert load_settings(redis_url="redis://caller/0", default_provider="mine").redis_url == "redis://caller/0"
    assert load_settings(default_provider="mine").default_provider == "mine"


def test_settings_cannot_be_changed_later() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        load_settings().max_tries = 9  # type: ignore[misc]
