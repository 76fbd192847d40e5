"""What a person reads in a source text: paragraphs of markdown; comments, and strings that are words, in code.

Each such text can be put in another language's words without changing what the code does: a string of several words is
taken wherever it stands, so that a name for a curve stays the same name as key and as label; a string of one word only where it is
shown. What is data though it looks like words is listed in `solutions/locale/data.txt`; a word that is read though it stands elsewhere,
such as a key that becomes a label, in `solutions/locale/labels.txt`.
"""

from __future__ import annotations

import ast
import functools
import io
import re
import tokenize
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from itertools import pairwise

from grader.course.source import HIDDEN, ROOT, SOLUTION, Cell

BLOCK = re.compile(r"^ *```.*?^ *```[^\n]*|(?:^(?! *```)[^\n]*\S[^\n]*(?:\n|\Z))+", re.MULTILINE | re.DOTALL)
ITEM = re.compile(r"\s*(?:[-*+] |\d+\. |#+ )(?:\[ \] )?|\s*(?=[|<])")  # begins a text of its own inside a block
MARKS = re.compile(r"`[^`]*`|\${1,2}[^$]+\${1,2}|</?\w[^>]*>|\]\([^)]*\)|https?://\S+|\{\w+\}")  # code, formulas, tags, addresses: no words
KEPT = re.compile(r"`[^`\n]+`|\$[^$]+\$|\]\([^)]*\)|https?://[^\s)]+|data-checks=\"[^\"]*\"")
QUOTED = r"""(?:'[^']*'|"[^"]*")"""
STRING = re.compile(rf"(?:(?<=^{{)|(?<=else )|(?<= or )){QUOTED}|{QUOTED}(?= (?:if|\*) |\.join\()")  # in a field, and words: no key
WORD = re.compile(r"[^\W\d_]{2,}")
LITERAL = re.compile(r"""(?P<prefix>[rRfFuU]*)(?P<quote>\"{3}|'{3}|"|')(?P<body>(?:\\.|(?!(?P=quote)).)*)(?P=quote)""", re.DOTALL)
SHOWN = {"print", "text", "annotate", "label", "title", "suptitle", "description", "placeholder", "tooltip"}
DATA = re.compile(r"</?(?:think|answer)>|{%|\\s")  # the tags of the tiny language, a chat template, a pattern
SHOWN |= {f"{how}{what}" for how in ("", "set_") for what in ("title", "xlabel", "ylabel", "label")}


@dataclass(frozen=True)
class Text:
    """A text of a source.

    start, end: where it stands, in characters. words: what is translated. written: words -> source. formatted: an f-string.
    """

    start: int
    end: int
    words: str
    written: Callable[[str], str]
    formatted: bool = False


def texts(cell: Cell) -> list[Text]:
    """The texts of a cell that a learner can see, in order; those of the answer too, for the answer key."""
    found = of_markdown(cell.source) if cell.markdown else of_code(cell.visible, labels=labels(cell.name))
    return sorted(found, key=lambda text: text.start)


def replaced(source: str, found: list[Text], translate: Callable[[str], str]) -> str:
    """The source with each of its texts in the words that `translate` gives for it. Raises ValueError where they would change code."""
    for text in sorted(found, key=lambda text: text.start, reverse=True):
        if (words := translate(text.words)) != text.words:
            if text.formatted and kept_fields(words) != kept_fields(text.words):
                raise ValueError(f"{words!r} has other code in its braces than its English, {text.words!r}")
            source = source[: text.start] + text.written(words) + source[text.end :]
    return source


def of_markdown(source: str) -> Iterator[Text]:
    """A paragraph, an item of a list, a heading, a row of a table or a fenced block each; on one line but for fenced blocks."""
    for block in BLOCK.finditer(source):
        begin, lines = block.start(), block[0].splitlines(keepends=True)
        if lines[0].lstrip().startswith("```"):
            if WORD.search(block[0].partition("\n")[2]):
                yield Text(begin, block.end(), block[0], str)
            continue
        starts = [i for i, line in enumerate(lines) if not i or ITEM.match(line) or lines[i - 1].lstrip().startswith("#")]
        for i, end in zip(starts, [*starts[1:], len(lines)], strict=True):
            piece = "".join(lines[i:end]).rstrip()
            mark = match[0] if (match := ITEM.match(piece)) else ""
            offset = begin + sum(map(len, lines[:i])) + len(mark)
            words = " ".join(piece[len(mark) :].split())
            if WORD.search(MARKS.sub("", words)):
                yield Text(offset, offset + len(piece) - len(mark), words, str)


def of_code(source: str, *, comments: bool = True, labels: Collection[str] = ()) -> Iterator[Text]:
    """The strings that are words, or are in `labels`; and docstrings and comments, neighbouring lines of comment as one text of lines."""
    yield from _strings(source, docstrings=comments, labels=labels)
    if comments:
        yield from _comments(source)


def fields(words: str) -> list[str]:
    """The parts in braces of an f-string's words, in their order."""
    return [words[a:b] for a, b in _fields(words)]


def _comments(source: str) -> Iterator[Text]:
    starts = _line_starts(source)
    lines: list[tuple[int, int, int, bool]] = []  # line, start, end, whether it has the line for itself
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and token.string.strip() not in (*SOLUTION, *HIDDEN):
            start = starts[token.start[0] - 1] + token.start[1]
            lines.append((token.start[0], start, start + len(token.string), not token.line[: token.start[1]].strip()))
    groups: list[list[tuple[int, int, int, bool]]] = []
    for line in lines:
        if line[3] and groups and (before := groups[-1][-1])[3] and before[0] == line[0] - 1 and line[0] != 2:  # line 1: a title
            groups[-1].append(line)
        else:
            groups.append([line])
    for group in groups:
        start, end = group[0][1], group[-1][2]
        indent = " " * (start - source.rfind("\n", 0, start) - 1)
        words = "\n".join(source[a:b].lstrip("#").removeprefix(" ") for _, a, b, _ in group)
        if WORD.search(words):
            yield Text(start, end, words, functools.partial(_commented, indent=indent))


def _commented(words: str, indent: str) -> str:
    return f"\n{indent}".join(f"# {line}".rstrip() for line in words.split("\n"))


def _strings(source: str, docstrings: bool, labels: Collection[str]) -> Iterator[Text]:
    starts = _line_starts(source)
    lines = source.split("\n")

    def place(line: int, column: int) -> int:  # ast counts bytes
        return starts[line - 1] + len(lines[line - 1].encode()[:column].decode())

    for node, shown, doc in _nodes(ast.parse(source), shown=False):
        if doc and not docstrings:
            continue
        start, end = place(node.lineno, node.col_offset), place(node.end_lineno or 0, node.end_col_offset or 0)
        words, formatted, quote, raw = _words(source[start:end])
        plain = MARKS.sub("", words) if doc else words
        for field in fields(words) if formatted else ():
            plain = plain.replace(field, " ".join(STRING.findall(field)))
        several = re.search(r"\s", words) and not DATA.search(words) and words not in data()
        if words in labels or (WORD.search(plain) and (shown or several)):
            yield Text(start, end, words, functools.partial(_written, formatted=formatted, quote=quote, raw=raw), formatted)


def _nodes(node: ast.AST, shown: bool) -> Iterator[tuple[ast.Constant | ast.JoinedStr, bool, bool]]:
    """(string, whether it is shown as it stands, whether it is a docstring); nothing inside of f-strings."""
    if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str)):
        yield node, shown, False
        return
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        yield node.value, True, True
        return
    if isinstance(node, ast.keyword) and node.arg == "loc":  # a place in a plot
        return
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not (name == "keys" and isinstance(child, ast.Tuple)):  # parts of an error's message
                yield from _nodes(child, _is_shown(node, name, shown))


def _is_shown(node: ast.AST, field: str, shown: bool) -> bool:
    match node:
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if field == "args":
            return name in SHOWN or (shown and name[:1].isupper())  # an error that is raised
        case ast.keyword(arg=name):
            return name in SHOWN
        case ast.Assert():
            return field == "msg"
        case ast.Raise():
            return field == "exc"
        case ast.BinOp() | ast.Tuple() | ast.List():
            return shown
        case ast.IfExp():
            return shown and field != "test"
        case ast.Call():
            return shown and field == "func"
        case ast.Attribute():
            return shown and node.attr == "format"
    return False


def _words(literal: str) -> tuple[str, bool, str, bool]:
    """The words of a string as it stands in the source, its parts joined; whether it has fields, which quote it has, whether it is raw."""
    parts = list(LITERAL.finditer(literal))
    formatted = any("f" in part["prefix"].lower() for part in parts)
    raw = all("r" in part["prefix"].lower() for part in parts)
    words = ""
    for part in parts:
        body, own = part["body"], "f" in part["prefix"].lower()
        places = list(_fields(body)) if own else []
        for (_, a), (b, c) in zip([(0, 0), *places], [*places, (len(body), len(body))], strict=True):
            plain = body[a:b] if "r" in part["prefix"].lower() else _evaluated(body[a:b])
            words += plain if own or not formatted else plain.replace("{", "{{").replace("}", "}}")
            words += body[b:c]
    return words, formatted, parts[0]["quote"], raw


def _evaluated(body: str) -> str:
    return ast.literal_eval('"""' + body.replace('"', '\\"').replace('\\\\"', '\\"') + '"""') if "\\" in body else body


def _written(words: str, formatted: bool, quote: str, raw: bool) -> str:
    """A literal of these words; their fields stand as they are."""
    inside = "".join(fields(words)) if formatted else ""
    quote = next(q for q in (quote, '"', "'", '"""', "'''") if q not in inside)
    text, end = "", 0
    for a, b in [*_fields(words), (len(words), len(words))] if formatted else [(len(words), len(words))]:
        plain = words[end:a]
        if not raw:
            plain = plain.replace("\\", "\\\\").replace(quote[0], "\\" + quote[0])
            plain = plain if len(quote) == 3 else plain.replace("\n", "\\n").replace("\t", "\\t")
        text, end = text + plain + words[a:b], b
    return ("f" if formatted else "") + ("r" if raw else "") + quote + text + quote


def _fields(body: str) -> Iterator[tuple[int, int]]:
    """Where the fields of an f-string stand; doubled braces are none."""
    i = 0
    while i < len(body):
        if body[i : i + 2] in ("{{", "}}"):
            i += 2
        elif body[i] == "{":
            start, depth, quoted = i, 0, ""
            for i in range(start, len(body)):
                if quoted:
                    quoted = "" if body[i] == quoted else quoted
                elif body[i] in "\"'":
                    quoted = body[i]
                else:
                    depth += (body[i] in "{[(") - (body[i] in "}])")
                if not depth:
                    break
            yield start, i + 1
            i += 1
        else:
            i += 1


def _line_starts(source: str) -> list[int]:
    return [0, *(match.end() for match in re.finditer("\n", source))]


@functools.cache
def data() -> frozenset[str]:
    """Strings of several words that are data: a line each, as in Python."""
    return frozenset(map(ast.literal_eval, _lines("data.txt")))


@functools.cache
def labels(cell: str) -> frozenset[str]:
    """Strings of a cell that are read though they are short and stand where nothing is shown: a line each cell, `name: "word", "word"`."""
    found = (line.partition(":") for line in _lines("labels.txt"))
    return frozenset(word for name, _, words in found if name == cell for word in ast.literal_eval(f"[{words}]"))


def _lines(name: str) -> list[str]:
    """The lines of one of our lists; # begins a remark."""
    path = ROOT / "solutions" / "locale" / name
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [line for line in lines if line.strip() and not line.startswith("#")]


def kept_fields(words: str) -> list[str]:
    """The fields of an f-string, sorted, without the words in them."""
    return sorted(STRING.sub("''", field) for field in fields(words))


def kept(words: str, formatted: bool = False) -> list[str]:
    """What every translation of a text must hold, sorted: code, addresses, formulas; of an f-string its fields. Words inside may differ."""
    own = kept_fields(words) if formatted else []
    for field in fields(words) if formatted else ():
        words = words.replace(field, "", 1)
    marks = (re.sub(r"\\(text|operatorname)\{[^}]*\}", "", mark) for mark in KEPT.findall(words))
    return sorted([*own, *marks])


def way_back(words: str, translation: str, formatted: bool) -> tuple[str, str]:
    """A pattern that finds what a translation gives when it runs, and what to put in its place to have the English (see re.sub)."""
    if not formatted:
        return re.escape(translation), words.replace("\\", r"\\")
    theirs = [STRING.sub("''", field) for field in fields(translation)]
    places = []
    for field in fields(words):
        places.append(theirs.index(STRING.sub("''", field)) + 1)
        theirs[places[-1] - 1] = ""  # each once
    pattern = "(.*?)".join(re.escape(_plain(part)) for part in _between(translation))
    first, *rest = (_plain(part).replace("\\", r"\\") for part in _between(words))
    return pattern, first + "".join(f"\\g<{place}>{part}" for place, part in zip(places, rest, strict=True))


def _between(words: str) -> list[str]:
    """What stands before, between and behind the fields of an f-string's words."""
    places = [(0, 0), *_fields(words), (len(words), len(words))]
    return [words[b:c] for (_, b), (c, _) in pairwise(places)]


def _plain(part: str) -> str:
    return part.replace("{{", "{").replace("}}", "}")
