"""What can be known of a learner's cell without running it: which functions it defines, and how far they are written."""

from __future__ import annotations

import ast
import functools
import re
import warnings
from collections.abc import Iterator

MAX_PARSED = 100_000  # characters; a longer cell is pasted data, and is searched by pattern
MAX_DEPTH = 100  # of a syntax tree; what walks one takes up to four of Python's 1000 frames for a level
INVISIBLE = str.maketrans({"\u00a0": " ", "\u3000": " ", "\u200b": None, "\ufeff": None})  # what web pages and mail put into code
RUNS_TEXT = {"exec", "eval", "compile", "__import__", "__builtins__", "get_ipython"}
UNPACKS = {"base64", "binascii", "builtins", "bz2", "codecs", "ctypes", "gzip", "importlib", "lzma", "marshal", "pickle", "zlib"}
INTERNAL = {"__builtins__", "__code__", "__dict__", "__globals__", "__subclasses__", "FunctionType", "CodeType"}
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def parsed(source: str) -> ast.Module | None:
    """The syntax tree, magics and shell lines left blank; None where Python would refuse the cell or it nests too deeply."""
    if len(source) > MAX_PARSED:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about "\d" in the learner's strings
            tree = ast.parse(_without_magics(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return tree if _is_shallow(tree) and not any(map(_is_huge, ast.walk(tree))) else None


def syntax_error(source: str) -> SyntaxError | None:
    """Why Python would refuse the source, magics and shell lines left blank (None: it would not, or for its size alone)."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(_without_magics(source))
    except SyntaxError as e:
        return e
    except (ValueError, RecursionError, MemoryError):
        pass
    return None


def mended(source: str) -> str:
    """The source with spaces that only look like spaces replaced, where that is what keeps it from being Python."""
    plain = source.translate(INVISIBLE)
    return plain if plain != source and parsed(source) is None and parsed(plain) is not None else source


@functools.lru_cache(maxsize=256)
def defines(source: str) -> frozenset[str]:
    """Names of the functions and classes that a cell defines, by def, class, lambda or another name for one."""
    tree = parsed(source)
    if tree is None:
        return frozenset(re.findall(r"^(?:async\s+)?def\s+(\w+)", source, re.MULTILINE))
    names = set[str]()
    for node in _statements(tree):
        if isinstance(node, Definition):
            names.add(node.name)
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda | ast.Name):
            names |= _targets(node)
    return frozenset(names)


def overwrites(source: str, names: set[str]) -> set[str]:
    """Those of the names to which a cell assigns a result of the very function, such as ``mask = mask(tokens)``."""
    nodes = _statements(parsed(source) or ast.Module([], []))
    return {name for node in nodes for name in _targets(node) & names if _calls(node, name)}


def sole_function(source: str) -> str:
    """The name of the only function of a cell ("" if there are none or several)."""
    tree = parsed(source)
    names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)] if tree else []
    return names[0] if len(names) == 1 else ""


def effort(source: str, name: str) -> int:
    """How far the function `name` is written: 0 an empty stub, 1 a cell with a syntax error, more with fewer open TODOs."""
    tree = parsed(source)
    if tree is None:
        return 1
    for node in _statements(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            if all(_says_nothing(statement) for statement in node.body):
                return 0
            return 10_000 - sum(_is_todo(inner) for inner in ast.walk(node))
    return 10_000  # defined in another way, such as a lambda


def additions(source: str, original: str, taken: set[str]) -> str:
    """What a learner added to a given cell: imports, functions, classes and plain constants under names that are free."""
    tree, before = parsed(source), parsed(original)
    if tree is None or before is None:
        return ""
    known = {ast.dump(node) for node in before.body}
    taken = taken | {name for node in before.body for name in _bound(node)}
    lines = source.splitlines()
    kept: dict[int, str] = {}  # by its number, once: many statements can stand on one line
    for node in tree.body:
        imports = isinstance(node, ast.Import | ast.ImportFrom)
        constant = isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        if ast.dump(node) in known or not (imports or constant or isinstance(node, Definition)):
            continue
        if imports or not _bound(node) & taken:
            first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
            kept |= enumerate(lines[first - 1 : node.end_lineno], first)
    return "\n".join(kept.values())


def after(source: str, line: int) -> str:
    """The statements of a cell that follow the one on `line`, at their lines ("" where there are none)."""
    tree = parsed(source)
    starts = [min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))]) for node in tree.body] if tree else []
    following = next((start for start in starts if start > line), 0)
    return "#\n" * (following - 1) + "\n".join(source.split("\n")[following - 1 :]) if following else ""


def same_code(one: str, other: str) -> bool:
    """Whether two cells say the same: layout, comments, magics and shell lines aside."""
    if one.strip() == other.strip():
        return True
    trees = parsed(one), parsed(other)
    said = [[ast.dump(node) for node in tree.body if not isinstance(node, ast.Pass)] for tree in trees if tree]
    return len(said) == 2 and said[0] == said[1]


def part_of(source: str, whole: str) -> bool:
    """Whether every statement of a cell stands in `whole`, too."""
    trees = parsed(source), parsed(whole)
    said = [{ast.dump(node) for node in tree.body} for tree in trees if tree]
    return len(said) == 2 and said[0] <= said[1]


def main_guards(source: str) -> list[ast.If]:
    """The statements ``if __name__ == "__main__":``, whose text an import does not run."""
    tree = parsed(source)
    return [node for node in tree.body if isinstance(node, ast.If) and _asks_for_main(node.test)] if tree else []


def bound(source: str) -> set[str]:
    """Every name that a cell's own statements define or assign."""
    tree = parsed(source)
    return {name for node in _statements(tree) for name in _bound(node)} if tree else set()


def assigned(source: str) -> set[str]:
    """Every name to which a cell's own statements assign a value, whatever it is."""
    tree = parsed(source)
    return {name for node in _statements(tree) for name in _targets(node)} if tree else set()


def hidden_code(source: str) -> list[str]:
    """What in a cell runs or unpacks code that a reader does not see: exec, base64, getattr with a name that is put together, and such.

    A sign to look at the cell, and no proof: there are honest uses, and other ways to hide code.
    """
    tree = parsed(source)
    if tree is None:
        return sorted(RUNS_TEXT.union(UNPACKS).intersection(re.findall(r"(?<![\w.])\w+", source)))
    found = set[str]()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) if name in RUNS_TEXT:
                found.add(name)
            case ast.Import(names=names):
                found |= {alias.name.split(".")[0] for alias in names} & UNPACKS
            case ast.ImportFrom(module=str(module)):
                found |= {module.split(".")[0]} & UNPACKS
            case ast.Attribute(attr=name) if name in INTERNAL:
                found.add(name)
            case ast.Call(ast.Name("getattr"), [_, name, *_]) if not isinstance(name, ast.Constant) or name.value in RUNS_TEXT | INTERNAL:
                found.add("getattr")
            case ast.Subscript(ast.Call(ast.Name("globals" | "locals" | "vars" as name))):
                found.add(name)
    return sorted(found)


def names_used(source: str) -> set[str]:
    """Every name that a cell looks up, wherever in it."""
    tree = parsed(source)
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} if tree else set()


def _without_magics(source: str) -> str:
    """The same number of lines, with IPython's own syntax made harmless.

    No two neighbours in a pattern can match the same character, so that it takes linear time on any line.
    """
    source = re.sub(r"^([ \t]*)(?:[%!?].*|[\w.]+\?{1,2}[ \t]*$)", r"\1pass", source, flags=re.MULTILINE)
    return re.sub(r"^([\w, .\t]*=[ \t]*)[%!].*", r"\1None", source, flags=re.MULTILINE)


def _is_huge(node: ast.AST) -> bool:
    """Whether it is a number of thousands of digits, which Python reads and refuses to print."""
    return isinstance(node, ast.Constant) and isinstance(node.value, int) and node.value.bit_length() > 10_000


def _is_shallow(tree: ast.AST) -> bool:
    """Whether the tree has at most MAX_DEPTH levels; looked at level by level, for it may be too deep to walk."""
    level = [tree]
    for _ in range(MAX_DEPTH):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
    return not level


def _statements(tree: ast.AST) -> Iterator[ast.stmt]:
    """The statements that run when a cell runs: not those inside functions and classes."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.stmt):
            yield node
        if isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case) and not isinstance(node, Definition):
            yield from _statements(node)


def _bound(node: ast.stmt) -> set[str]:
    if isinstance(node, Definition):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {(alias.asname or alias.name).split(".")[0] for alias in node.names}
    return _targets(node)


def _targets(node: ast.stmt) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return {inner.id for t in targets if t for inner in ast.walk(t) if isinstance(inner, ast.Name)}


def _calls(node: ast.stmt, name: str) -> bool:
    return any(isinstance(c, ast.Call) and isinstance(c.func, ast.Name) and c.func.id == name for c in ast.walk(node))


def _asks_for_main(node: ast.expr) -> bool:
    match node:
        case ast.Compare(ast.Name("__name__"), [ast.Eq()], [ast.Constant("__main__")]):
            return True
        case ast.Compare(ast.Constant("__main__"), [ast.Eq()], [ast.Name("__name__")]):
            return True
    return False


def _is_todo(node: ast.AST) -> bool:
    """Is it what a stub says? (An error with words of its own is the learner's.)"""
    match node:
        case ast.Raise(ast.Name("NotImplementedError") | ast.Call(ast.Name("NotImplementedError"), [], [])):
            return True
    return False


def _says_nothing(node: ast.stmt) -> bool:
    return isinstance(node, ast.Pass | ast.Raise) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
