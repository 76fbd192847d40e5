"""A course of two tiny notebooks, and a hand-in that solves the first: what the mangled hand-ins are made of."""

import json

from grader.course.build import learner_notebook, to_text
from grader.course.source import read_course
from grader.feedback.release import answer_key

FIRST = '''# %% [markdown]
# # 1. Toys
#
# A notebook of no weight.

# %% given setup
import math
from fractions import Fraction

SEED = 0

# %% given clipping
def clip(x, low, high):
    """The number in [low, high] that is nearest to x."""
    return max(low, min(high, x))

# %% show a_clip_by_hand
for x in (-1, 0.5, 2):
    print(x, clip(x, 0, 1))
print("that was all")

# %% [markdown]
# ### Exercise: `doubled`

# %% solution doubled
def doubled(x):
    """Twice the number."""
    ### BEGIN SOLUTION
    return 2 * x
    ### END SOLUTION

# %% check twice points=2
# Twice the number comes out.
got = doubled(3)
assert got == 6, f"twice 3 is 6, not {got}"
### BEGIN HIDDEN TESTS
assert doubled(SEED + 5) == 2 * SEED + 10
### END HIDDEN TESTS

# %% show doubles
line = [doubled(x) for x in range(5)]
print("doubles", line)

# %% [markdown]
# ### Exercise: `centred`

# %% solution centred
def centred(numbers):
    """The numbers minus their mean."""
    ### BEGIN SOLUTION
    mean = sum(numbers) / len(numbers)
    ### END SOLUTION
    # now take it away
    ### BEGIN SOLUTION
    return [x - mean for x in numbers]
    ### END SOLUTION

# %% scenario twice_centred
def twice_centred(numbers):
    return [clip(doubled(x), -10, 10) for x in centred(numbers)]

# %% check zero_mean points=3
# The centred numbers have mean zero.
got = centred([1, 2, 6])
assert got == [-2, -1, 3], f"not {got}"
### BEGIN HIDDEN TESTS
assert twice_centred([0, 2]) == [-2, 2]
### END HIDDEN TESTS

# %% [markdown]
# **In your own words:** why is the mean of the centred numbers zero?

# %% answer why_zero [markdown] points=2
# The sum of the differences is the sum minus n times the mean.

# %% [markdown]
# That is all there is to toys.
'''
SECOND = '''# %% [markdown]
# # 2. More toys

# %% given setup
import math

# %% bring doubled
def doubled(x):
    ### BEGIN SOLUTION
    return 2 * x
    ### END SOLUTION

# %% solution quadrupled
def quadrupled(x):
    """Four times the number."""
    ### BEGIN SOLUTION
    return doubled(doubled(x))
    ### END SOLUTION

# %% check four_times points=2
# Four times the number comes out.
got = quadrupled(3)
assert got == 12, f"not {got}"
### BEGIN HIDDEN TESTS
assert quadrupled(-1) == -4
### END HIDDEN TESTS
'''
ANSWERS = {
    "doubled": 'def doubled(x):\n    """Twice the number."""\n    # added to itself\n    return x + x',
    "centred": (
        'def centred(numbers):\n    """The numbers minus their mean."""\n    total = math.fsum(numbers)\n'
        "    # now take it away\n    return [x - total / len(numbers) for x in numbers]"
    ),
    "why_zero": "Because what lies above the mean (均值) balances what lies below.",
    "quadrupled": 'def quadrupled(x):\n    """Four times the number."""\n    return doubled(x) + doubled(x)',
}


def toy_course(folder):
    """The two notebooks, read from their source texts."""
    (folder / "01_toy.py").write_text(FIRST, encoding="utf-8")
    (folder / "02_more_toys.py").write_text(SECOND, encoding="utf-8")
    return read_course(folder)


def solved(notebook):
    """The notebook file, as a dict, of a learner who answered everything."""
    file = open_file(notebook)
    for cell in file["cells"]:
        if cell["metadata"]["grader"]["name"] in ANSWERS:
            cell["source"] = ANSWERS[cell["metadata"]["grader"]["name"]].splitlines(keepends=True)
    return file


def open_file(notebook):
    """The notebook file, as a dict, before a learner touched it."""
    return json.loads(to_text(learner_notebook(answer_key(notebook))))
