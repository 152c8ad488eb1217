"""Changes taken apart to be shown: what git writes, and what only looks like it."""

import pytest

from gateway.console.rendering.patches import MOST_LINES, Patch, patches_of

TWO = """diff --git a/totals.py b/totals.py
index 1111111..2222222 100644
--- a/totals.py
+++ b/totals.py
@@ -1,3 +1,3 @@ def total(prices):
 one
-two
+zwei
 three
diff --git a/docs/new file.md b/docs/new file.md
new file mode 100644
--- /dev/null
+++ b/docs/new file.md
@@ -0,0 +1 @@
+hello
\\ No newline at end of file
"""


def kinds(patch: Patch) -> list[str]:
    return [line.kind for line in patch.lines]


@pytest.mark.spec("O1")
def test_a_change_is_files_and_lines() -> None:
    first, second = patches_of(TWO)
    assert (first.name, first.added, first.removed) == ("totals.py", 1, 1)
    assert kinds(first) == ["hunk", "same", "gone", "new", "same"]
    assert first.lines[3].text == "+zwei"
    assert (second.name, second.added, second.removed) == ("docs/new file.md", 1, 0)
    assert kinds(second) == ["note", "hunk", "new", "note"]


@pytest.mark.spec("O1")
def test_a_line_that_looks_like_another_file_stays_a_line_of_its_own() -> None:
    hidden = (
        "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n--- a/y\n+++ b/y\n-diff --git a/y b/y\n+@@ -9 +9 @@\n"
    )
    [patch] = patches_of(hidden)
    assert patch.name == "x"
    assert kinds(patch) == ["hunk", "gone", "new", "gone", "new"]


@pytest.mark.spec("O1")
def test_a_hunk_that_lies_about_its_length_hides_no_file() -> None:
    first, second = patches_of(TWO.replace("@@ -1,3 +1,3 @@", "@@ -1,3000 +1,3000 @@"))
    assert (first.added, second.name, second.added) == (1, "docs/new file.md", 1)


@pytest.mark.spec("O1")
def test_what_was_renamed_has_its_new_name() -> None:
    [patch] = patches_of("diff --git a/old.py b/new.py\nsimilarity index 100%\nrename from old.py\nrename to new.py\n")
    assert patch.name == "new.py"
    assert kinds(patch) == ["note"] * 3


@pytest.mark.spec("O1")
@pytest.mark.parametrize(
    "text", ["", "nothing like it", "@@ -1 +1 @@", "diff --git ", TWO[:140], "@@ -9999999 +1 @@\n+x"]
)
def test_what_is_cut_off_or_no_change_at_all_is_shown_as_it_is(text: str) -> None:
    patches = patches_of(text)
    shown = "\n".join(line.text for patch in patches for line in patch.lines)
    assert all(line in text for line in shown.split("\n"))


@pytest.mark.spec("O1")
def test_a_long_change_says_that_it_goes_on() -> None:
    lines = "\n".join("+x" for _ in range(2 * MOST_LINES))
    [patch] = patches_of(f"diff --git a/x b/x\n@@ -0,0 +1,{2 * MOST_LINES} @@\n{lines}\n")
    assert len(patch.lines) <= MOST_LINES + 1
    assert "not shown here" in patch.lines[-1].text


@pytest.mark.spec("O1")
def test_a_line_without_an_end_is_cut() -> None:
    [patch] = patches_of("diff --git a/x b/x\n@@ -0,0 +1 @@\n+" + "x" * 100_000 + "\n")
    assert len(patch.lines[1].text) < 3000
