"""The bytes of a plain Python file -> cells, as if its functions had been written into a notebook.

Where the file marks its cells (`# %%` of an editor, `# In[3]:` of nbconvert) they are its cells. Where it does not, each
function is one, so that an error costs what it breaks and no more.
"""

from __future__ import annotations

import re
from itertools import pairwise

from grader.course.metadata import Identity
from grader.intake.notebook_file import MAX_CELLS, MAX_CODE, RawCell, RawNotebook, Unreadable, decoded
from grader.intake.static_analysis import defines, main_guards, mended, parsed, syntax_error

MARK = re.compile(r"# ?(?:%%|In ?\[[\d ]*\]:)(.*)")


def read_python_file(data: bytes) -> RawNotebook:
    """The cells in the bytes of a Python file, each numbered by its first line, and notes. Raises Unreadable, without the file's name."""
    if not data.strip():
        raise Unreadable("the file is empty; save it in your editor, and check again")
    if len(data) > MAX_CODE:
        raise Unreadable(f"the file is larger than {MAX_CODE // 10**6} MB; take pasted data out of it")
    text, notes = decoded(data)
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if (plain := mended(text)) != text:
        text, notes = plain, [*notes, "Invisible characters in the code were taken out."]
    raw = []
    for line, code, source in _marked(text) or _by_function(text):
        if written := source.lstrip("\n"):
            first = line + len(source) - len(written)
            imported, guards = _imported(written) if code else (written, [])
            notes += [f'What stands under `if __name__ == "__main__":` in line {first + guard - 1} was not run.' for guard in guards]
            raw.append(RawCell(first, code, imported, Identity()))
    if len(raw) > MAX_CELLS:
        raise Unreadable(f"it has more than {MAX_CELLS} parts; hand in the file that defines your functions")
    return RawNotebook("", tuple(raw), tuple(notes), script=True)


def _imported(text: str) -> tuple[str, list[int]]:
    """The text of a cell as it runs when it is imported, its lines where they were, and the lines of what then does not run."""
    lines, tests = text.split("\n"), [guard.test for guard in main_guards(text) if guard.test.lineno == guard.test.end_lineno]
    for test in tests:
        line = lines[test.lineno - 1].encode()  # offsets are those of UTF-8
        lines[test.lineno - 1] = (line[: test.col_offset] + b"False" + line[test.end_col_offset :]).decode()
    return "\n".join(lines), [test.lineno for test in tests]


def _marked(text: str) -> list[tuple[int, bool, str]]:
    """Line, whether it is code, and source of each cell that a file marks; none where it marks none."""
    lines, tree = text.split("\n"), parsed(text)
    inside = {number for node in (tree.body if tree else ()) for number in range(node.lineno, node.end_lineno or 0)}
    marks = [number for number, line in enumerate(lines) if MARK.match(line) and number not in inside]
    cells = [(1, True, "\n".join(lines[: marks[0]]))] if marks else []
    for mark, end in pairwise([*marks, len(lines)]):
        code = "[markdown]" not in lines[mark] and "[md]" not in lines[mark]
        body = lines[mark + 1 : end] if code else [re.sub("^# ?", "", line) for line in lines[mark + 1 : end]]
        cells.append((mark + 2, code, "\n".join(body)))
    return cells


def _by_function(text: str) -> list[tuple[int, bool, str]]:
    """The same of a file without marks: a cell for each statement that defines a function, and one for what stands between two."""
    tree = parsed(text)
    if tree is None:
        if e := syntax_error(text):
            where = f"line {e.lineno}" if e.lineno else "it"
            raise Unreadable(f"{where} is not Python ({e.msg}); mend it, and look whether `python` runs the file")
        raise Unreadable("it is longer or nested deeper than any answer; hand in the file that defines your functions")
    lines = text.split("\n")
    cells: list[tuple[int, bool, str]] = []
    start = end = 0  # lines before the cell that is being gathered, and up to the statement read last
    alone = False
    for node in tree.body:
        first, last = node.lineno - 1, node.end_lineno or node.lineno
        if first < end:  # on the line of the one before
            end = max(end, last)
            continue
        own = bool(defines("\n".join(lines[end:last])))
        if end and (own or alone):
            cells.append((start + 1, True, "\n".join(lines[start:end])))
            start = end
        alone, end = own, last
    return [*cells, (start + 1, True, "\n".join(lines[start:]))]
