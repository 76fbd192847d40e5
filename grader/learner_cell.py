# @title Feedback: run this cell once; it speaks up after each check. (Nothing here to read or to change.)
class Feedback:
    """Speaks after every check cell: what passed, what failed and, where it is sure, which mistake was made."""

    def __init__(self, notebook, following, written, checks, hints, shapes, mistakes, fingerprints):
        # checks: title -> [name, exercise, points]; hints: exercise -> steps; shapes: exercise -> argument -> shape;
        # mistakes: name -> [summary, hint]; fingerprints: [check, mistake, how many numbers, three sums of them]
        self.notebook, self.following, self.written = notebook, following, written
        self.checks, self.hints, self.shapes = checks, hints, shapes
        self.mistakes, self.fingerprints = mistakes, fingerprints
        self.passed, self.taken, self.check = {}, {}, None
        try:
            self.shell = get_ipython()
        except NameError:
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
        self.check = self.checks.get((info.raw_cell or "").strip().split("\n")[0].lstrip("# ").rstrip(". "))
        if self.check:
            self.shell.user_ns.pop("got", None)  # what a check compares; never that of an earlier one

    def after(self, result):
        if not self.check:
            return
        name, exercise, points = self.check
        plural = "point" if points == 1 else "points"
        self.passed[name] = bool(result.success)
        if result.success:
            print(f"\u2713 {points} {plural}: this part of {exercise} is right.")
        elif isinstance(result.error_in_exec, NotImplementedError):
            print(f"{exercise} is not written yet: {points} {plural} wait here.")
        else:
            told = list(self.named(name, result.error_in_exec)) or self.explained(exercise, result.error_in_exec)
            print("\n".join([*told, f'Stuck? hint("{exercise}") gives a hint, and another one each time.']))

    def named(self, check, error):
        """The known mistakes that give exactly the learner's numbers on this check."""
        if not isinstance(error, AssertionError) or "got" not in self.shell.user_ns:
            return
        mine = self.fingerprint(self.shell.user_ns["got"])
        known = [name for where, name, *theirs in self.fingerprints if where == check and mine and self.equal(theirs, mine)]
        for name in known:
            summary, idea = self.mistakes[name]
            yield f"{'Perhaps' if len(known) > 1 else 'It looks like this'}: {summary} [{name}]\n  {idea}"

    def explained(self, exercise, error):
        """What an error of Python's usually means here; nothing where that is not known."""
        words = self.meaning(type(error).__name__, str(error))
        shapes = self.shapes.get(exercise) if error else None
        if words and shapes and "shape" in words:
            words += " The text gives the shapes " + ", ".join(f"{name} {shape}" for name, shape in shapes.items())
            words += self.came(exercise, error) + "."
        return [words] if words else []

    @staticmethod
    def came(exercise, error):
        """The shapes with which the arguments really came, where the traceback still has them."""
        frame, came = error.__traceback__, ""
        while frame:
            if frame.tb_frame.f_code.co_name == exercise:
                code = frame.tb_frame.f_code
                arguments = [(n, frame.tb_frame.f_locals.get(n)) for n in code.co_varnames[: code.co_argcount]]
                came = ", ".join(f"{n} {list(v.shape)}" for n, v in arguments if hasattr(v, "shape"))
            frame = frame.tb_next
        return f"; here they came as {came}" if came else ""

    @staticmethod
    def meaning(kind, message):
        """What an error of this type and message usually means in these exercises ("" where that is not known)."""
        known = (
            ("must match the size of tensor", "Two tensors do not fit: compare their shapes axis by axis, from the right. A number per answer, [N], meets numbers per token, [N, T], as a column: [N, 1]."),
            ("shape mismatch", "Two tensors do not fit: compare their shapes axis by axis, from the right."),
            ("does not require grad", "The result is cut off from the log-probs it was made of, so no gradient can flow. Look for detach(), .item(), .tolist(), torch.tensor(...) around a tensor, or no_grad() on the way."),
            ("could not infer output dtype", "A tensor of whole numbers has no mean. Convert it to floats first; the caller's tensor stays as it is."),
            ("mean(): input dtype", "A tensor of whole numbers has no mean. Convert it to floats first; the caller's tensor stays as it is."),
            ("can't be cast to the desired output type", "Fractions are being written into a tensor of whole numbers. Make a new float tensor for them."),
            ("out of range", "An index points outside. If it is a group id: ids are labels, they may be negative or huge. Give each label a small number of its own first."),
            ("out of bounds", "An index points outside. If it is a group id: ids are labels, they may be negative or huge. Give each label a small number of its own first."),
            ("leaf variable that requires grad", "An argument that carries a gradient is being written to. Make a new tensor instead."),
            ("modified by an inplace operation", "A value that the gradient still needs was overwritten. Make a new tensor instead."),
            ("is invalid for input of size", "The view does not fit: groups may differ in size, so no fixed table holds them."),
            ("numpy() on tensor that requires grad", "numpy carries no gradient. Stay with torch on the way from the log-probs to the loss."),
            ("only one element tensors", "One number was expected and several came: is a mean or a sum missing?"),
            ("grad can be implicitly created only for scalar", "The loss must be one number: is a mean or a sum missing?"),
            ("not enough values to unpack", "The function returns fewer things than the exercise asks for."),
            ("cannot unpack", "The function returns one thing where the exercise asks for several: is a return missing, or half of it?"),
            ("missing", "The function takes other arguments than the exercise says: compare the line with def."),
            ("unexpected keyword argument", "The function takes other arguments than the exercise says: compare the line with def."),
        )
        if kind == "NameError":
            return "A name is used that is not defined here: run the cells above first, or look for a typing slip."
        return next((words for part, words in known if part in message), "")

    def hint(self, exercise):
        """The next hint for an exercise: the property that fails, then the idea, then where to read."""
        if exercise not in self.hints:
            print(f"There is no exercise {exercise!r} here; there are {', '.join(self.hints)}.")
            return
        failed = [title for title, (name, of, _) in self.checks.items() if of == exercise and not self.passed.get(name)]
        steps = [f"The property to look at: {failed[0]}." if failed else "All checks that you ran are passed."]
        steps += self.hints[exercise]
        step = self.taken[exercise] = self.taken.get(exercise, 0) + 1
        if step > len(steps):
            print("That was the last hint. Take a break, or explain your function aloud, line by line; the answer key comes last.")
        else:
            print(f"Hint {step} of {len(steps)}: {steps[step - 1]}")

    @staticmethod
    def equal(known, mine):
        return known[0] == mine[0] and all(abs(a - b) <= 1e-4 * max(1.0, abs(a)) for a, b in zip(known[1:], mine[1:]))

    @classmethod
    def fingerprint(cls, value):
        """How many numbers there are, and three weighted sums of them: equal for equal answers, not the answer itself."""
        numbers = [n if abs(n) < 1e12 else 4321.0 for n in cls.numbers(value)]  # NaN and infinity are numbers like others here
        if not numbers:
            return None
        weighted = [sum(n * (i * k % 17 + 1) for i, n in enumerate(numbers)) / len(numbers) for k in (0, 5, 7)]
        return [len(numbers)] + [float(f"{w:.6g}") for w in weighted]

    @classmethod
    def numbers(cls, value):
        """All numbers inside tensors, arrays, lists, dicts and strings, in order."""
        if isinstance(value, str):
            return [float(ord(c)) for c in value[:200]]
        if value is None:
            return [-7777.0]
        if isinstance(value, (bool, int, float)):
            return [float(value)]
        if isinstance(value, dict):
            return [n for key in sorted(value) for n in cls.numbers(value[key])]
        if isinstance(value, (list, tuple)):
            return [n for v in value for n in cls.numbers(v)]
        if hasattr(value, "detach"):
            value = value.detach().cpu().double().numpy()
        return [float(n) for n in value.ravel()] if hasattr(value, "ravel") else []

    def short(self, error, lines):
        """The message alone where a check fails or an exercise is still open; a learner's own error in full."""
        if isinstance(error, NotImplementedError):
            frame = error.__traceback__
            while frame and frame.tb_next:
                frame = frame.tb_next
            where = frame.tb_frame.f_code.co_name if frame else ""
            return [
                f"NotImplementedError: {where} is not written yet." if where.isidentifier() else "NotImplementedError: not written yet."
            ]
        if self.check and isinstance(error, AssertionError) and str(error):
            return [f"\u2717 {error}"]
        return lines

    def score(self):
        """The points of the visible checks so far, exercise by exercise, and what comes next."""
        exercises = {}
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
