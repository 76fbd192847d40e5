"""Known wrong and right versions of every exercise.

A version is one function, decorated, in the module of its notebook. Its docstring says in one sentence what was done;
a wrong version's docstring also has a paragraph ``Hint:``. Versions are used as source text inside the notebook's
namespace, under the exercise's name: they may use what the notebook gives, the answers of its other exercises, and
the undecorated functions and imports of their own module.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass

MODULES = {
    "01_advantage": "advantage",
    "02_grpo_loss": "grpo_loss",
    "03_kl": "kl",
    "04_train_a_tiny_model": "tiny_model",
}


@dataclass(frozen=True)
class Version:
    """A wrong (or right) version of an exercise. source: defines a function named like the exercise."""

    exercise: str
    name: str
    wrong: bool
    summary: str
    hint: str
    source: str


def mistake(exercise: str) -> Callable[[Callable], Callable]:
    """Marks a wrong version of `exercise`; the docstring needs a summary and a paragraph 'Hint: …'."""
    return lambda function: function


def right(exercise: str) -> Callable[[Callable], Callable]:
    """Marks a version of `exercise` that is right, however different it looks."""
    return lambda function: function


@functools.cache
def versions(notebook: str) -> tuple[Version, ...]:
    """All versions known for a notebook, by its name ("02_grpo_loss"); empty for a notebook without a module."""
    if notebook not in MODULES:
        return ()
    module = importlib.import_module(f"{__name__}.{MODULES[notebook]}")
    tree = ast.parse(inspect.getsource(module))
    helpers = [ast.unparse(n) for n in tree.body if not _decoration(n) and not _is_own_import(n) and not _is_docstring(n)]
    return tuple(_version(n, *told, helpers) for n in tree.body if isinstance(n, ast.FunctionDef) and (told := _decoration(n)))


def _version(node: ast.FunctionDef, kind: str, exercise: str, helpers: list[str]) -> Version:
    paragraphs = [" ".join(p.split()) for p in textwrap.dedent(ast.get_docstring(node) or "").split("\n\n")]
    hint = next((p.removeprefix("Hint: ") for p in paragraphs if p.startswith("Hint: ")), "")
    body = [n for n in node.body if not _is_docstring(n)]
    renamed = ast.FunctionDef(exercise, node.args, body, [], node.returns)
    source = "\n\n".join([*helpers, ast.unparse(ast.fix_missing_locations(renamed))])
    return Version(exercise, node.name, kind == "mistake", paragraphs[0], hint, source)


def _decoration(node: ast.stmt) -> tuple[str, str] | None:
    for decorator in node.decorator_list if isinstance(node, ast.FunctionDef) else []:
        match decorator:
            case ast.Call(func=ast.Name(id="mistake" | "right" as kind), args=[ast.Constant(value=str(exercise))]):
                return kind, exercise
    return None


def _is_own_import(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module in (__name__, "__future__")


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
