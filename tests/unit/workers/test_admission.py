"""Whether there is memory for another program."""

from pathlib import Path

import pytest

from adapters.errors import ErrorClass, ProviderError
from workers import admission
from workers.admission import COME_BACK_SECONDS, SPARE_BYTES, Admission, free_memory

MB = 1 << 20
pytestmark = pytest.mark.spec("F2", "P12")


def test_what_fits_is_let_in_and_what_is_promised_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that start at once both look before either holds anything."""
    monkeypatch.setattr(admission, "free_memory", lambda: SPARE_BYTES + 500 * MB)
    gate = Admission()
    with gate.admit("one", 300 * MB):
        with pytest.raises(ProviderError) as refused, gate.admit("two", 300 * MB):
            pass
        assert str(refused.value) == (
            "there is no memory for two on this machine now: it takes 300 MB, "
            "256 MB must stay free, and there are 456 MB"
        )
        assert (refused.value.error_class, refused.value.retry_after, refused.value.asked) == (
            ErrorClass.RATE_LIMIT,
            COME_BACK_SECONDS,
            False,
        )
    with gate.admit("two", 300 * MB):
        pass


def test_after_a_while_what_a_program_holds_is_seen_and_not_counted_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("workers.admission.time.monotonic", lambda: now)
    monkeypatch.setattr(admission, "free_memory", lambda: SPARE_BYTES + 400 * MB)
    gate = Admission()
    with gate.admit("one", 300 * MB):
        now += admission.GROWING_SECONDS + 1
        with gate.admit("two", 300 * MB):
            pass


def test_where_nobody_knows_everybody_is_let_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "free_memory", lambda: None)
    with Admission().admit("one", 1 << 60):
        pass


def test_the_container_counts_if_it_has_less_than_the_machine(tmp_path: Path) -> None:
    proc, cgroups = tmp_path / "proc", tmp_path / "cgroup"
    proc.mkdir()
    cgroups.mkdir()
    assert free_memory(proc, cgroups) is None
    (proc / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:    2048 kB\n")
    assert free_memory(proc, cgroups) == 2 * MB
    (cgroups / "memory.max").write_text("max\n")
    (cgroups / "memory.current").write_text("1\n")
    (cgroups / "memory.stat").write_text("anon 5\ninactive_file 1000\n")
    assert free_memory(proc, cgroups) == 2 * MB
    (cgroups / "memory.max").write_text(f"{2 * MB}\n")
    (cgroups / "memory.current").write_text(f"{MB}\n")
    assert free_memory(proc, cgroups) == MB + 1000


def test_of_this_machine_something_is_known() -> None:
    found = free_memory()
    assert found is not None
    assert found > 0
