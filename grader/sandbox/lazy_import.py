"""Lazy imports, for modules that are slow to load and may never be used."""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Callable
from typing import Any


def import_lazily(name: str, **known: Callable[..., Any]) -> None:
    """From now on `import name` costs nothing; the module is loaded when something of it is used that is not in `known`."""
    if name not in sys.modules:
        sys.modules[name] = _Lazy(name, known)
        package, _, own = name.rpartition(".")
        if package:
            setattr(importlib.import_module(package), own, sys.modules[name])


class _Lazy(types.ModuleType):
    def __init__(self, name: str, known: dict[str, Callable[..., Any]]):
        super().__init__(name)
        self.__dict__.update(known)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__path__":  # asked by those who look through all modules
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)
