"""A kernel that sees what a learner's platform has: torch, numpy, matplotlib, Jupyter; no other package, no network, nothing of ours.

The environment variable ALSO names packages that a notebook needs besides.
"""

import importlib.util
import os
import re
import socket
import sys
from importlib.metadata import distribution, packages_distributions


def with_requirements(names):
    """The distributions named and all that they need."""
    found, todo = set(), list(names)
    while todo:
        name = re.split(r"[^\w.-]", todo.pop())[0].lower().replace("_", "-")
        if name in found:
            continue
        try:
            requirements = distribution(name).requires or []
        except ModuleNotFoundError:  # for another platform
            continue
        found.add(name)
        todo += [r for r in requirements if "extra ==" not in r]
    return found


class Absent:
    """Makes every package that the learner does not have impossible to import."""

    def __init__(self):
        allowed = with_requirements(["ipykernel", "torch", "numpy", "matplotlib", *os.environ.get("ALSO", "").split()])
        theirs = {top: {d.lower().replace("_", "-") for d in ds} for top, ds in packages_distributions().items()}
        self.absent = {top for top, ds in theirs.items() if not ds & allowed and top not in sys.stdlib_module_names} | {"grader"}

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in self.absent:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def no_network(host, *args, look_up=socket.getaddrinfo):
    if host in ("localhost", "127.0.0.1", "::1", "", None):
        return look_up(host, *args)
    raise OSError(f"a notebook asked the network for {host}")


if __name__ == "__main__":
    sys.path[:] = [p for p in sys.path if p != sys.path[0]]
    sys.meta_path.insert(0, absent := Absent())
    ask = importlib.util.find_spec  # a package that only asks whether another is there hears that it is not
    importlib.util.find_spec = lambda name, package=None: None if name.split(".")[0] in absent.absent else ask(name, package)
    socket.getaddrinfo = no_network
    from ipykernel.kernelapp import launch_new_instance

    launch_new_instance()
