"""What git lists is read whatever the names in it are."""

from adapters.git.listings import Blob, Changed, index_input, read_attempt, read_blobs, read_changes

A, B, C, NONE = "a" * 40, "b" * 40, "c" * 40, "0" * 40


def test_changes_have_their_numbers_and_pictures_have_none() -> None:
    assert read_changes("3\t1\tsrc/a.py\x00-\t-\tlogo.png\x00") == (
        Changed("src/a.py", 3, 1),
        Changed("logo.png", None, None),
    )
    assert read_changes("") == ()


def test_a_name_with_a_line_break_or_a_tab_is_shown_on_one_line() -> None:
    assert read_changes("1\t0\ta\nb\tc\x1b[0m é\u202e\x00") == (Changed("a\\nb\\tc\\x1b[0m é\\u202e", 1, 0),)


def test_deleted_files_and_other_repositories_are_no_blobs() -> None:
    deleted, added = f":100644 000000 {A} {NONE} D\x00two\x00", f":000000 160000 {NONE} {C} A\x00three\x00"
    said = f":100644 100755 {A} {B} M\x00one\x00{deleted}{added}"
    assert read_blobs(said) == (Blob(B, "one"),)


def test_a_merge_without_conflicts_is_a_tree() -> None:
    merged = read_attempt(f"{A}\x00")
    assert (merged.tree, merged.stages, merged.conflicts) == (A, (), ())


def test_each_file_in_conflict_is_named_once() -> None:
    merged = read_attempt(f"{A}\x00100644 {B} 1\tx\ny\x00100644 {C} 2\tx\ny\x00100644 {A} 3\tz\x00")
    assert merged.conflicts == ("x\\ny", "z")
    assert index_input(merged).decode().split("\x00") == [
        f"0 {NONE}\tx\ny",
        f"0 {NONE}\tz",
        f"100644 {B} 1\tx\ny",
        f"100644 {C} 2\tx\ny",
        f"100644 {A} 3\tz",
        "",
    ]


def test_a_name_that_is_no_text_is_not_written_back() -> None:
    merged = read_attempt(f"{A}\x00100644 {B} 2\tna\ufffdme\x00100644 {B} 2\tother\x00")
    assert merged.conflicts == ("na\ufffdme", "other")
    assert index_input(merged).decode() == f"0 {NONE}\tother\x00100644 {B} 2\tother\x00"
