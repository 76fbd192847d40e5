"""Names a known mistake by the numbers that an answer gives on the visible part of the checks.

One engine for the notebook (it is embedded in the feedback cell) and for grading. A check keeps what the learner's
function gave in the variable `got`; a fingerprint of it is compared with those of the known mistakes. Only the standard
library is used, and nothing of this package.
"""

import math
import traceback

NO_NUMBERS = [0, 0.0, 0.0, 0.0]  # the fingerprint of a mistake whose check breaks off with an error
LARGEST = 10_000  # numbers of an answer that are looked at
AT_MOST = 4  # names told at a time: more would be no help


def fingerprint(value, words=""):
    """Equal for equal answers, not the answer itself: form (count of numbers, dimensions, words), their mean size, two weighted sums."""
    found = [n if abs(n) < 1e12 else 99.25 for n in numbers(value)]  # NaN and infinity are numbers like others here
    form = len(found) + 1000 * dimensions(value) + 1000000 * (sum(ord(c) * (i + 1) for i, c in enumerate(words)) % 99991)
    found = found or [0.0]
    weighted = [sum(n * (i * k % 17 + 1) / 17 for i, n in enumerate(found)) / len(found) for k in (5, 7)]
    weighted.insert(0, sum(map(abs, found)) / len(found))
    return [form] + [float(f"{w:.6g}") for w in weighted]


def equal(known, mine):
    """Within 3e-5 of the size of the numbers themselves: float32 leaves less, and by chance one in 30,000 is as near."""
    if known[0] != mine[0] or not known[0]:
        return False
    return all(abs(a - b) <= 1e-7 + 3e-5 * known[1] for a, b in zip(known[1:], mine[1:], strict=True))


def numbers(value):
    """All numbers inside tensors, arrays, lists, dicts and strings, in order; the first LARGEST of them."""
    if isinstance(value, str):
        return [float(ord(c)) for c in value[:200]]
    if value is None:
        return [-99.75]
    if isinstance(value, (bool, int, float)):
        return [float(value)]
    if isinstance(value, (dict, list, tuple)):
        found = []
        for inner in [value[key] for key in sorted(value)] if isinstance(value, dict) else value:
            found += numbers(inner)
            if len(found) >= LARGEST:
                break
        return found[:LARGEST]
    if hasattr(value, "detach"):
        value = value.detach().cpu().flatten()[:LARGEST].double().numpy()
    return [float(n) for n in value.ravel()[:LARGEST]] if hasattr(value, "ravel") else []


def dimensions(value):
    """The dimensions of all tensors inside a value together."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return len(getattr(value, "shape", ())) + sum(map(dimensions, inside))


def evidence(error, names):
    """What a check had when it failed: its fingerprints, in the order of their weight, and how many distinct decimals they hold.

    error: what the check raised. names: its variables. Returns ([], 0) where it broke off without numbers, or an odd thing came out.
    The fingerprints are of `got`, then of `got` and the words of its assert; without a `got`, of what the helper that
    raised was given and the words.
    """
    try:
        return _evidence(error, names) if isinstance(error, AssertionError) else ([], 0)
    except Exception:  # of a value that cannot be looked at: nothing is named by it
        return [], 0


def _evidence(error, names):
    words = "".join(c for c in str(error) if c.isalpha())
    if "got" in names:
        value = names["got"]
        ways = [fingerprint(value), fingerprint(value, words)]
    else:
        *_, (frame, _) = traceback.walk_tb(error.__traceback__)
        value = [frame.f_locals.get(a) for a in frame.f_code.co_varnames[: frame.f_code.co_argcount][:1]]
        ways = [fingerprint(value, words)]
    return ways, len({round(n, 6) for n in numbers(value) if math.isfinite(n) and n % 1 and n != -99.75})


def by_mistake(table, checks):
    """Mistake -> check -> its fingerprint, of these checks. table: [check, [mistakes that are alike there, *fingerprint], …], …"""
    prints: dict = {}
    for check, *entries in table:
        for names, *print_ in entries if check in checks else ():
            for name in names.split():
                prints.setdefault(name, {})[check] = print_
    return prints


def agrees(theirs, seen):
    """Whether a check that failed gave what a mistake gives there. theirs: None where the mistake passes."""
    return theirs is not None and seen is not True and any(equal(theirs, way) for way in seen)


def candidates(seen, prints, decimals):
    """The known mistakes that explain an exercise's checks, and whether one of them is sure.

    seen: check -> True (passed), fingerprints (failed with numbers) or [] (failed without).
    prints: mistake -> check -> its fingerprint there, where it fails (NO_NUMBERS where it breaks off with an error).
    decimals: check -> how many distinct numbers with decimals came out of it.

    A mistake must agree with at least one failed check. It is in conflict with a check that gave other numbers, that
    the learner passes and it fails, or that breaks off for the learner and passes for it. Without a conflict it is named;
    with one or two, never more than it agrees with, it is possible where three decimals agree.
    """
    found = {}
    for name, theirs in prints.items():
        alike = [check for check, out in seen.items() if agrees(theirs.get(check), out)]
        against = sum((check in theirs) == (out is True) if out in (True, []) else check not in alike for check, out in seen.items())
        weight = sum(decimals.get(check, 0) for check in alike)
        if alike and (not against or (against <= min(2, len(alike)) and weight >= 3)):
            found[name] = against, weight
    least = min((against for against, _ in found.values()), default=0)
    names = [name for name, (against, _) in found.items() if against == least]
    return names, len(names) == 1 and not least and found[names[0]][1] >= 2


def sentences(names, sure, mistakes):
    """What to say of candidates; nothing where there are too many. mistakes: name -> [summary, hint]."""
    start = "It looks like this: " if sure else "Perhaps: "
    words = {name: mistakes[name][0][1:] for name in names}  # where one says all that another says, and more, the other is told
    names = [name for name in names if not any(words[other] in words[name] for other in names if other != name)]
    return [f"{start}{mistakes[name][0]}\n  {mistakes[name][1]}" for name in names if len(names) <= AT_MOST]


def called(code):
    """Every name that a code object, or a function in it, looks up outside of itself."""
    inner = [constant for constant in code.co_consts if hasattr(constant, "co_names")]
    return set(code.co_names).union(*map(called, inner))


def is_open(error):
    """Whether an error is what a stub raises. (torch raises one of the same kind, with words, for `^` on floats.)"""
    return isinstance(error, NotImplementedError) and not str(error)
