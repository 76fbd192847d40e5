"""The feedback cell of a learner's notebook, as it is embedded there together with naming.py and errors.py.

Only the standard library is used, and of this package those two; it runs on Python 3.10 and IPython 7.34.
"""

import traceback

from IPython import get_ipython

from grader.feedback.errors import meaning
from grader.feedback.naming import agrees, by_mistake, called, candidates, evidence, is_open, sentences


class Feedback:
    """Speaks after every check cell: what passed, what failed and, where it is sure, which mistake was made."""

    def __init__(self, notebook, following, written, checks, hints, shapes, mistakes, fingerprints, text=""):
        # checks: title -> [name, exercise, points]; hints: exercise -> [[checks, idea], …], where; shapes: exercise -> argument -> shape;
        # mistakes: name -> [summary, hint]; fingerprints: see `by_mistake`
        self.notebook, self.following, self.written = notebook, following, written
        self.checks, self.hints, self.shapes = checks, hints, shapes
        self.mistakes, self.fingerprints, self.text = mistakes, fingerprints, text
        self.passed, self.taken, self.check, self.latest = {}, {}, None, ""
        self.seen, self.decimals = {}, {}  # check -> what came out since a function was last defined, see `candidates`
        self.shell = get_ipython()
        if not self.shell:  # no notebook
            return
        for stale in getattr(self.shell, "_course_feedback", ()):  # this cell was run before
            self.shell.events.unregister(*stale)
        self.shell._course_feedback = (("pre_run_cell", self.before), ("post_run_cell", self.after))
        for event in self.shell._course_feedback:
            self.shell.events.register(*event)
        show = getattr(type(self.shell), "_showtraceback", None)
        if show:  # a failed check is told in words, without a page of traceback
            self.shell._showtraceback = lambda kind, error, lines: show(self.shell, kind, error, self.short(error, lines))

    def before(self, info):
        lines = (info.raw_cell or "").split("\n")  # the title may stand below a form's title, a magic or a comment
        self.check = next((self.checks[t] for t in (line.lstrip("# ").removeprefix("@title ").rstrip(". ") for line in lines) if t in self.checks), None)
        if self.check:
            self.shell.user_ns.pop("got", None)  # what a check compares; never that of an earlier one
        elif "def " in (info.raw_cell or ""):
            self.seen.clear()  # another function may be another mistake

    def after(self, result):
        if not self.check:
            return
        name, exercise, points = self.check
        self.latest = exercise
        plural = "point" if points == 1 else "points"
        error = result.error_before_exec or result.error_in_exec
        self.passed[name] = bool(result.success)
        if result.success:
            self.seen[name] = True
            print(f"\u2713 {points} {plural}: this part of {exercise} is right.")
        elif is_open(error):
            self.seen.pop(name, None)
            print(f"{exercise} is not written yet: {points} {plural} {'waits' if points == 1 else 'wait'} here.")
        else:
            told = self.named(name, exercise, error) or self.explained(exercise, error)
            if not told and (title := self.failed_before(name, exercise)):
                told = [f"This may be an echo of what failed before. Begin there: {title}."]
            print("\n".join([*told, f'Stuck? hint("{exercise}") gives a hint, and another one each time.']))

    def failed_before(self, check, exercise):
        """The title of the first failed check of an exercise, if it stands before this one."""
        title, name = next((t, n) for t, (n, of, _) in self.checks.items() if of == exercise and self.passed.get(n) is False)
        return "" if name == check else title

    def named(self, check, exercise, error):
        """What the checks of the exercise gave so far is explained by: a function that it calls, or known mistakes."""
        try:
            self.seen[check], self.decimals[check] = evidence(error, self.shell.user_ns)
        except Exception:  # an odd thing came out; the check's own message says what
            self.seen[check] = []
        code = getattr(self.shell.user_ns.get(exercise), "__code__", None)
        failed = {of for name, of, _ in self.checks.values() if of != exercise and self.passed.get(name) is False}
        if code and (causes := failed & called(code)):
            return [f"{exercise} calls {min(causes)}, which fails a check of its own: begin there."]
        own = [name for name, of, _ in self.checks.values() if of == exercise]
        prints = by_mistake(self.fingerprints, own)
        names, sure = candidates({name: self.seen[name] for name in own if name in self.seen}, prints, self.decimals)
        return sentences([name for name in names if agrees(prints[name].get(check), self.seen[check])], sure, self.mistakes)

    def explained(self, exercise, error):
        """What an error of Python's usually means here; nothing where that is not known."""
        shapes = self.shapes.get(exercise, {})
        frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__) if frame.f_code.co_name == exercise]
        words = meaning(type(error).__name__, str(error), shapes, inside=bool(frames))  # or raised of what came out of it
        if words and shapes and "shape" in words:
            words += " The text gives the shapes " + ", ".join(f"{name} {shape}" for name, shape in shapes.items())
            for frame in frames[-1:]:
                names = frame.f_code.co_varnames[: frame.f_code.co_argcount]
                values = [(n, frame.f_locals[n]) for n in names if n in frame.f_locals]
                came = ", ".join(f"{n} {list(v.shape)}" for n, v in values if hasattr(v, "shape"))
                words += f"; here they came as {came}" if came else ""
            words += "."
        return [words] if words else []

    def hint(self, exercise=""):
        """The next hint for an exercise (the one checked last): the property that fails, then the idea, then where to read."""
        exercise = exercise or self.latest or next(iter(self.hints))
        if exercise not in self.hints:
            print(f"There is no exercise {exercise!r} here; there are {', '.join(self.hints)}.")
            return
        failed = ((title, name) for title, (name, of, _) in self.checks.items() if of == exercise and not self.passed.get(name))
        title, check = next(failed, ("", ""))
        ideas, where = self.hints[exercise]
        ideas = sorted(ideas, key=lambda idea: bool(idea[0]) and check not in idea[0].split())  # those for this check first
        steps = [f"The property to look at: {title}." if title else "All checks are passed.", *[words for _, words in ideas], where]
        before, taken = self.taken.get(exercise, ("", 0))
        step = taken + 1 if before == check else 1
        self.taken[exercise] = check, step
        if step > len(steps):
            print("That was the last hint. Take a break, or explain your function aloud, line by line; the answer key comes last.")
        else:
            print(f"Hint {step} of {len(steps)}: {steps[step - 1]}")

    def short(self, error, lines):
        """The message alone where a check fails or an exercise is still open; a learner's own error in full."""
        if is_open(error):
            frames = [(frame.f_code.co_name, line) for frame, line in traceback.walk_tb(error.__traceback__)]
            where, line = frames[-1] if frames else ("", 0)
            if not where.isidentifier():
                return ["NotImplementedError: not written yet."]
            return [f"NotImplementedError: {where} is not written yet: line {line} of its cell is still open."]
        if self.check and isinstance(error, AssertionError) and str(error):
            return [f"\u2717 {error}"]
        return lines

    def score(self):
        """The points of the visible checks so far, exercise by exercise, and what comes next."""
        exercises: dict = {}
        for name, exercise, points in self.checks.values():
            done, total = exercises.get(exercise, (0, 0))
            exercises[exercise] = (done + points * self.passed.get(name, False), total + points)
        width = max([len(e) for e in exercises] + [24])
        done, total = (sum(pair[i] for pair in exercises.values()) for i in (0, 1))
        print(f"{self.notebook}: {done} of {total} points in the visible checks\n")
        for exercise, (points, of) in exercises.items():
            print(f"  {exercise:{width}} {points:>3} of {of:>2}{'' if points == of else '   open'}")
        if self.written:
            print(f"  {'written answers':{width}}   - of {self.written:>2}   read by a person")
        print("\nGrading runs the same checks on more inputs, which this notebook does not show.")
        if done < total:
            print("Open points are an invitation: the message of the failed check says where to look.")
        elif self.following:
            print(f"All of it. Next: {self.following}.ipynb")
        else:
            print("All of it. You have written GRPO.")
