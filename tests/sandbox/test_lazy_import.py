"""A module that sleeps costs nothing, answers what is known of it, and is the real one as soon as more is asked."""

import importlib
import subprocess
import sys

import pytest

from grader.sandbox.lazy_import import import_lazily


@pytest.fixture
def package(tmp_path, monkeypatch):
    (tmp_path / "slow_package").mkdir()
    (tmp_path / "slow_package" / "__init__.py").write_text("def switch(): return 'real'\nsize = 3\n")
    (tmp_path / "slow_package" / "part.py").write_text("weight = 4\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield "slow_package"
    for name in ("slow_package", "slow_package.part"):
        sys.modules.pop(name, None)


def is_awake(name):
    return hasattr(sys.modules[name], "__file__")


def test_it_sleeps_until_something_else_is_asked_of_it(package):
    import_lazily(package, switch=lambda: "known")
    module = importlib.import_module(package)
    assert module.switch() == "known" and not is_awake(package)
    assert module.size == 3 and is_awake(package)
    assert importlib.import_module(package).switch() == "real"
    assert module.size == 3 and is_awake(package), "who holds the old one can go on"


def test_a_part_of_it_wakes_it(package):
    import_lazily(package)
    assert importlib.import_module(package + ".part").weight == 4 and is_awake(package)


def test_a_part_that_sleeps_is_found_in_its_package(package):
    import_lazily(package + ".part")
    module = importlib.import_module(package)
    assert module.part is sys.modules[package + ".part"] and not is_awake(package + ".part")
    assert module.part.weight == 4 and module.part is sys.modules[package + ".part"] and is_awake(package + ".part")


def test_what_it_does_not_have_is_told_as_ever(package):
    import_lazily(package)
    with pytest.raises(AttributeError, match="colour"):
        importlib.import_module(package).colour  # noqa: B018


def test_what_is_awake_stays_so(package):
    module = importlib.import_module(package)
    import_lazily(package, size=0)
    assert importlib.import_module(package) is module and module.size == 3


def test_pictures_can_be_drawn_after_it_was_import_lazily():
    code = """import sys
from grader.sandbox.lazy_import import import_lazily
import_lazily("matplotlib.pyplot")
import matplotlib as mpl
import matplotlib.pyplot as plt
mpl.use("agg")
fig, ax = plt.subplots()
from matplotlib import pyplot
print(len(ax.plot([1, 2])), pyplot.gcf() is fig)"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "1 True\n"
