"""The rules of retention fit the tables: nothing that names a row is forgotten, and nothing is looked for by a scan."""

import pytest
from sqlalchemy import Column, Table

from models.base import Base
from models.retention import IN_ORDER, Rule

RULES = {rule.table.name: rule for rule in IN_ORDER}


def names(rule: Rule) -> list[tuple[str, Column[object]]]:
    """The columns of any table that name rows of this one."""
    found = []
    for table in Base.metadata.sorted_tables:
        for column in table.c:
            if any(key.column.table is rule.table for key in column.foreign_keys):
                found.append((table.name, column))
    return found


def leads(table: Table, columns: tuple[str, ...]) -> bool:
    """Whether an index begins with the columns."""
    keys = [tuple(column.name for column in table.primary_key)]
    keys += [tuple(getattr(part, "name", "") for part in index.expressions) for index in table.indexes if whole(index)]
    for constraint in table.constraints:
        if type(constraint).__name__ == "UniqueConstraint":
            keys.append(tuple(column.name for column in constraint.columns))  # type: ignore[attr-defined]
    return any(key[: len(columns)] == columns for key in keys)


def whole(index: object) -> bool:
    options = index.dialect_options["postgresql"]  # type: ignore[attr-defined]
    return options["where"] is None


@pytest.mark.spec("D6")
@pytest.mark.parametrize("name", RULES)
def test_every_column_that_names_a_row_is_known_to_its_rule(name: str) -> None:
    rule = RULES[name]
    assert {(table, column.name) for table, column in names(rule)} == {
        (known.entity.__tablename__, known.column) for known in rule.named_by
    }


@pytest.mark.spec("D6")
@pytest.mark.parametrize("name", RULES)
def test_the_database_finds_what_names_a_row_by_an_index(name: str) -> None:
    """It looks at each removal, whatever we know already: without an index, through the whole table."""
    for table, column in names(RULES[name]):
        assert leads(Base.metadata.tables[table], (column.name,)), f"{table}.{column.name}"


@pytest.mark.spec("D6")
@pytest.mark.parametrize("name", RULES)
def test_every_table_is_walked_by_an_index(name: str) -> None:
    way = RULES[name].way
    assert leads(RULES[name].table, way.order) or leads(RULES[name].table, way.order[:1])


@pytest.mark.spec("D6")
def test_what_names_something_goes_first() -> None:
    for rule in IN_ORDER:
        for known in rule.named_by:
            if known.rule is not None:
                assert IN_ORDER.index(known.rule) < IN_ORDER.index(rule)


def test_what_stays_for_good_has_no_rule() -> None:
    kept = {"sessions", "usage", "users", "tokens", "agent_groups", "messaging_groups", "engagements", "reservations"}
    assert kept.isdisjoint(RULES)
