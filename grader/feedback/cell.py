"""The feedback cell of a learner's notebook, as it is embedded there together with naming.py and errors.py.

Only the standard library is used, and of this package those two; it runs on Python 3.10 and IPython 7.34.
"""

import re
import textwrap
import traceback

from IPython import get_ipython

from grader.feedback.errors import UNFIT, meaning
from grader.feedback.naming import agrees, by_mistake, called, candidates, evidence, is_open, sentences


class Lines(textwrap.TextWrapper):
    wordsep_simple_re = re.compile(r"(\s+|(?<=[\u3001\u3002\uff01\uff09\uff0c\uff1a\uff1b\uff1f]))")  # Chinese breaks after a mark too


def wrapped(text):
    """A text with its long lines broken (JupyterLab's Validate cuts them at 83 characters); what is indented stays so."""
    lines = [(line, " " * (len(line) - len(line.lstrip()))) for line in text.split("\n")]
    return "\n".join(Lines(80, subsequent_indent=i, break_long_words=False, break_on_hyphens=False).fill(line) for line, i in lines)


class Feedback:
    """Speaks after every check cell: what passed, what failed and, where it is sure, which mistake was made."""

    def __init__(self, notebook, following, written, checks, hints, shapes, mistakes, fingerprints, text=""):
        # checks: title -> [name, exercise, points]; hints: exercise -> [[checks, idea], …], where; shapes: exercise -> argument -> shape;
        # mistakes: name -> [summary, hint]; fingerprints: see `by_mistake`
        self.notebook, self.following, self.written = notebook, following, written
        self.checks, self.hints, self.shapes = checks, hints, shapes
        self.mistakes, self.fingerprints, self.text = mistakes, fingerprints, text
        self.passed, self.taken, self.check, self.latest = {}, {}, None, ""
        self.defined, self.failed, self.error = {}, set(), None  # see `before` and `after_others`; what was shown of a cell
        self.seen, self.decimals = {}, {}  # check -> what came out since a function was last defined, see `candidates`
        self.shell = get_ipython()
        if not self.shell:  # no notebook
            return
        for stale in getattr(self.shell, "_course_feedback", ()):  # this cell was run before
            self.shell.events.unregister(*stale)
        self.shell._course_feedback = (("pre_run_cell", self.before), ("post_run_cell", self.after))
        for event in self.shell._course_feedback:
            self.shell.events.register(*event)
        show = type(self.shell)._showtraceback  # a failed check is told in words, without a page of traceback
        self.shell._showtraceback = lambda kind, error, lines: show(self.shell, kind, error, self.short(error, lines))

    def before(self, info):
        cell, names = info.raw_cell or "", self.shell.user_ns  # a check's title may stand below a magic, or be a form's
        lines = (line.lstrip("# ").removeprefix("@title ").partition(" {")[0].rstrip(".。 ") for line in cell.split("\n"))
        self.check, self.error = next((self.checks[line] for line in lines if line in self.checks), None), None
        self.defined = {name: names.get(name) for name in self.hints if re.search(rf"^\s*def {name}\b", cell, re.MULTILINE)}
        if self.check:
            names.pop("got", None)  # what a check compares; never that of an earlier one
        elif "def " in cell:
            self.seen.clear()  # another function may be another mistake

    def after(self, result):
        error = result.error_before_exec or result.error_in_exec or self.error  # some magics show an error and go on
        if told := self.of_check(error, *self.check) if self.check else self.of_other(error):
            print(wrapped("\n".join(told)))

    def of_check(self, error, name, exercise, points):
        """What to say after a check, line by line."""
        self.latest = exercise
        waits = self.failed & self.used(exercise)
        self.passed[name] = not error and not waits
        if waits:
            return [f"Not judged: {min(waits)} is not what its cell says, since that stopped with an error. Begin there."]
        if not error:
            self.seen[name] = True
            return [f"\u2713 {points} {'point' if points == 1 else 'points'}: this part of {exercise} is right."]
        if is_open(error):
            self.seen.pop(name, None)
            return [f"{exercise} is not written yet: {points} {'point waits' if points == 1 else 'points wait'} here."]
        told = self.named(name, exercise, error) or self.explained(exercise, error)
        return [*told, f'Stuck? hint("{exercise}") gives a hint, and another one each time.']

    def of_other(self, error):
        """What to say after any other cell: that a function was not defined, and what an error inside of one means."""
        told = []
        for name, earlier in self.defined.items():
            if self.shell.user_ns.get(name) is not earlier:  # what failed may pass now
                self.failed.discard(name)
                self.passed = {n: p for n, p in self.passed.items() if p or n not in self.own(name)}
            elif error:
                self.failed.add(name)
                told.append(f"{name} is not defined by this cell: it stopped with an error. Its checks wait until a cell defines it.")
        frames = [frame.f_code.co_name for frame, _ in traceback.walk_tb(getattr(error, "__traceback__", None))]
        inside = [name for name in frames if name in self.hints and not is_open(error)][-1:]
        return told + [f"In {name}: {words}" for name in inside for words in self.explained(name, error)]

    def own(self, exercise):
        """The checks of an exercise."""
        return [name for name, of, _ in self.checks.values() if of == exercise]

    def used(self, exercise):
        """An exercise and every name that its function looks up."""
        code = getattr(self.shell.user_ns.get(exercise), "__code__", None)
        return {exercise} | (called(code) if code else set())

    def named(self, check, exercise, error):
        """What the checks of the exercise gave so far is explained by: a function that it calls, or known mistakes."""
        self.seen[check], self.decimals[check] = evidence(error, self.shell.user_ns)
        failed = {of for name, of, _ in self.checks.values() if of != exercise and self.passed.get(name) is False}
        if causes := failed & self.used(exercise):
            return [f"{exercise} calls {min(causes)}, which fails a check of its own: begin there."]
        own = self.own(exercise)
        prints = by_mistake(self.fingerprints, own)
        names, sure = candidates({name: self.seen[name] for name in own if name in self.seen}, prints, self.decimals)
        return sentences([name for name in names if agrees(prints[name].get(check), self.seen[check])], sure, self.mistakes)

    def explained(self, exercise, error):
        """What an error of Python's usually means here; nothing where that is not known."""
        shapes = self.shapes.get(exercise, {})
        frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__) if frame.f_code.co_name == exercise]
        words = meaning(type(error).__name__, str(error), shapes, inside=bool(frames))  # or raised of what came out of it
        if words and shapes and any(part in str(error) for part in UNFIT):
            given = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
            held = frames[-1].f_locals if frames else {}
            names = frames[-1].f_code.co_varnames[: frames[-1].f_code.co_argcount] if frames else ()
            came = ", ".join(f"{name} {list(held[name].shape)}" for name in names if hasattr(held.get(name), "shape"))
            words += f" The text gives the shapes {given}; here they came as {came}." if came else f" The text gives the shapes {given}."
        return [words] if words else []

    def hint(self, exercise=""):
        """The next hint for an exercise (the one checked last): the property that fails, then the idea, then where to read."""
        exercise = exercise or self.latest or next(iter(self.hints))
        if exercise not in self.hints:
            print(f"There is no exercise {exercise!r} here; there are {', '.join(self.hints)}.")
            return
        titles = {name: title for title, (name, of, _) in self.checks.items() if of == exercise}
        check = next((name for state in (False, None) for name in titles if self.passed.get(name) is state), "")
        ideas, where = self.hints[exercise]
        ideas = [words for checks, words in ideas if not checks or not check or check in checks.split()]  # none for other checks
        steps = [f"The property to look at: {titles[check]}." if check else "All checks are passed.", *ideas, where][not titles :]
        step = self.taken[exercise, check] = self.taken.get((exercise, check), 0) + 1
        last = "That was the last hint. Take a break, or explain your function aloud, line by line; the answer key comes last."
        print(wrapped(last if step > len(steps) else f"Hint {step} of {len(steps)}: {steps[step - 1]}"))

    def short(self, error, lines):
        """The message alone where a check fails or an exercise is still open; a learner's own error in full."""
        self.error = error
        if self.check and self.failed & self.used(self.check[1]):
            return ["\u2717 not judged"]
        if is_open(error):
            frames = [(frame.f_code.co_name, line) for frame, line in traceback.walk_tb(error.__traceback__)]
            where, line = frames[-1] if frames else ("", 0)
            if not where.isidentifier():
                return ["NotImplementedError: not written yet."]
            return [f"NotImplementedError: {where} is not written yet: line {line} of its cell is still open."]
        if self.check and isinstance(error, AssertionError) and str(error):
            return [wrapped(f"\u2717 {error}")]
        return lines

    def score(self):
        """The points of the visible checks so far, exercise by exercise, and what comes next."""
        exercises: dict = {}
        for name, exercise, points in self.checks.values():
            done, total = exercises.get(exercise, (0, 0))
            exercises[exercise] = (done + points * self.passed.get(name, False), total + points)
        width = max(24, *map(len, exercises))
        done, total = map(sum, zip(*exercises.values(), strict=True))
        print(f"{self.notebook}: {done} of {total} points in the visible checks\n")
        for exercise, (points, of) in exercises.items():
            print(f"  {exercise:{width}} {points:>3} of {of:>2}{'' if points == of else '   open'}")
        if self.written:
            print(f"  {'written answers':{width}}   - of {self.written:>2}   read by a person")
        print("\nGrading runs the same checks on more inputs, which this notebook does not show.")
        last = f"All of it. Next: {self.following}.ipynb" if self.following else "All of it. You have written GRPO."
        print(last if done == total else "Open points are an invitation: the message of the failed check says where to look.")
