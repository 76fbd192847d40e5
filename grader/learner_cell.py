# @title Feedback: run this cell once; it speaks up after each check. (Nothing here to read or to change.)
class Feedback:
    """Speaks after every check cell: what passed, what failed and, where it is sure, which mistake was made."""

    def __init__(self, notebook, following, written, checks, hints, shapes, mistakes, fingerprints):
        # checks: title -> [name, exercise, points]; hints: exercise -> [[checks, idea], …], where; shapes: exercise -> argument -> shape;
        # mistakes: name -> [summary, hint]; fingerprints: [check, [mistakes, how many numbers, their mean size, two sums], …]
        self.notebook, self.following, self.written = notebook, following, written
        self.checks, self.hints, self.shapes = checks, hints, shapes
        self.mistakes, self.fingerprints = mistakes, fingerprints
        self.passed, self.taken, self.check, self.latest = {}, {}, None, ""
        self.seen = {}  # check -> what came out since a function was last defined: numbers, True for passed, None for unknown
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
        elif "def " in (info.raw_cell or ""):
            self.seen.clear()  # another function may be another mistake

    def after(self, result):
        if not self.check:
            return
        name, exercise, points = self.check
        self.latest = exercise
        plural = "point" if points == 1 else "points"
        self.passed[name] = self.seen[name] = bool(result.success)
        if result.success:
            print(f"\u2713 {points} {plural}: this part of {exercise} is right.")
        elif isinstance(result.error_in_exec, NotImplementedError):
            print(f"{exercise} is not written yet: {points} {plural} {'waits' if points == 1 else 'wait'} here.")
        else:
            told = list(self.named(name, exercise, result.error_in_exec)) or self.explained(exercise, result.error_in_exec)
            if not told and (title := self.failed_before(name, exercise)):
                told = [f"This may be an echo of what failed before. Begin there: {title}."]
            print("\n".join([*told, f'Stuck? hint("{exercise}") gives a hint, and another one each time.']))

    def failed_before(self, check, exercise):
        """The title of the first failed check of an exercise, if it stands before this one."""
        title, name = next((t, n) for t, (n, of, _) in self.checks.items() if of == exercise and self.passed.get(n) is False)
        return "" if name == check else title

    def named(self, check, exercise, error):
        """The known mistakes that give exactly the learner's numbers on this check, and no others on the checks before."""
        if not isinstance(error, AssertionError):
            return
        try:
            ways = self.evidence(error, self.shell.user_ns)
        except Exception:  # an odd thing came out; the check's own message says what
            return
        prints = {}
        for where, *entries in self.fingerprints:
            for names, *theirs in entries:
                prints.update({name: {**prints.get(name, {}), where: theirs} for name in names.split()})
        mine = self.seen[check] = next(
            (w for w in ways if any(check in on and self.equal(on[check], w) for on in prints.values())), ways[0]
        )
        known = [name for name, on in prints.items() if check in on and self.equal(on[check], mine)]
        fitting = [name for name in known if all(self.fits(on, self.seen.get(w)) for w, on in prints[name].items())]
        if len(fitting) < len(known):  # what is left by elimination must explain all that failed
            siblings = {name for name, of, _ in self.checks.values() if of == exercise}
            failed = [w for w, out in self.seen.items() if w in siblings and isinstance(out, list)]
            known = [name for name in fitting if all(w in prints[name] for w in failed)]
        of_numbers = len(ways) > 1 and mine is ways[0] and any(abs(total) > 1e-6 for total in mine[1:])
        sure = len(known) == 1 and of_numbers  # zeros, and the words of an assert, come out of many mistakes
        for name in known:
            summary, idea = self.mistakes[name]
            yield f"{'It looks like this' if sure else 'Perhaps'}: {summary} [{name}]\n  {idea}"

    def fits(self, theirs, mine):
        """May what came out of a check have come from a mistake that gives `theirs`?"""
        return not mine or (mine is not True and self.equal(theirs, mine))

    @classmethod
    def evidence(cls, error, names):
        """Fingerprints of what a failed check had before it, in the order of their weight.

        Its `got`, then `got` and the words of its assert; without a `got`, what the helper that raised was given and the words.
        """
        words = "".join(c for c in str(error) if c.isalpha())
        if "got" in names:
            return [cls.fingerprint(names["got"]), cls.fingerprint(names["got"], words)]
        frame = error.__traceback__
        while frame.tb_next:
            frame = frame.tb_next
        arguments = frame.tb_frame.f_code.co_varnames[: frame.tb_frame.f_code.co_argcount]
        return [cls.fingerprint([frame.tb_frame.f_locals.get(a) for a in arguments[:1]], words)]

    def explained(self, exercise, error):
        """What an error of Python's usually means here; nothing where that is not known."""
        shapes = self.shapes.get(exercise, {})
        words = self.meaning(type(error).__name__, str(error), shapes, self.inside(exercise, error))
        if words and shapes and "shape" in words:
            words += " The text gives the shapes " + ", ".join(f"{name} {shape}" for name, shape in shapes.items())
            words += self.came(exercise, error) + "."
        return [words] if words else []

    @staticmethod
    def came(exercise, error):
        """The shapes with which the arguments really came, where the traceback still has them."""
        frame, came = getattr(error, "__traceback__", None), ""
        while frame:
            if frame.tb_frame.f_code.co_name == exercise:
                code = frame.tb_frame.f_code
                arguments = [(n, frame.tb_frame.f_locals.get(n)) for n in code.co_varnames[: code.co_argcount]]
                came = ", ".join(f"{n} {list(v.shape)}" for n, v in arguments if hasattr(v, "shape"))
            frame = frame.tb_next
        return f"; here they came as {came}" if came else ""

    @staticmethod
    def inside(exercise, error):
        """Was the error raised in the learner's function, not in what the check made of its result?"""
        frame = getattr(error, "__traceback__", None)
        while frame:
            if frame.tb_frame.f_code.co_name == exercise:
                return True
            frame = frame.tb_next
        return False

    @staticmethod
    def meaning(kind, message, shapes=None, inside=False):
        """What an error of this type and message usually means in these exercises ("" where that is not known)."""
        ids = " Group ids are labels: they may be negative or huge. Give each label a small number of its own first."
        column = " A number per answer, [N], meets numbers per token, [N, T], as a column: [N, 1]."
        if shapes is not None:  # those of one exercise: what it has not is not spoken of
            ids, column = ids if "group_ids" in shapes else "", column if "[N, T]" in shapes.values() else ""
        fit = "Two tensors do not fit: compare their shapes axis by axis, from the right."
        fractions = "Fractions are being written into a tensor of whole numbers. Make a new float tensor for them."
        whole = "A tensor of whole numbers has no mean. Convert it to floats first; the caller's tensor stays as it is."
        types = "Two tensors of different number types meet where torch wants one type: convert one of them."
        index = "An index points outside: n entries have the indices 0 to n - 1." + ids
        mask = "The mask may come as truth values, integers or floats. Make truth values of it before you choose by it."
        given = "An argument that carries a gradient is being written to. Make a new tensor instead."
        one = (
            "Something that takes a single number met a tensor of several. For math.exp, float or round torch has its own, "
            "element by element; or is a mean or a sum missing?"
        )
        unpacked = "A line of your function names another number of things on the left of = than come from the right. What comes?"
        arguments = (
            "A function is called with arguments that it does not take, or without one that it needs: help(...) tells which."
            if inside
            else "The function takes other arguments than the exercise says: compare the line with def."
        )
        known = (
            ("must match the size of tensor", fit + column),
            ("shape mismatch", fit),
            (
                "does not require grad",
                "The result is cut off from the log-probs it was made of, so no gradient can flow. Look for detach(), .item(), "
                ".tolist(), torch.tensor(...) around a tensor, or no_grad() on the way.",
            ),
            ("could not infer output dtype", whole),
            ("mean(): input dtype", whole),
            ("can't be cast to the desired output type", fractions),
            ("got Long for the destination", fractions),
            ("got Int for the destination", fractions),
            ("dtypes match", types),
            ("same scalar type", types),
            ("expected scalar type", types),
            (
                "Dimension out of range",
                "The tensor has fewer dimensions here than the line takes for granted. (Indexing with a mask gives a flat tensor.)",
            ),
            ("out of range", index),
            ("out of bounds", index),
            ("llocat", "A tensor of an enormous size was asked for." + ids),  # allocate, Allocator
            ("negative dimension", "A tensor of a negative size was asked for." + ids),
            ("non-negative", "Numbers from 0 upwards were expected." + ids),
            ("supports boolean masks", mask),
            ("operator.invert", mask),
            ("used as indices must be", mask),
            (
                "Boolean value of Tensor",
                "Python's if, and, or, min and max want one truth value, and a tensor has many. "
                "What does torch have that works element by element?",
            ),
            ("leaf variable that requires grad", given),
            ("leaf Variable that requires grad", given),
            ("modified by an inplace operation", "A value that the gradient still needs was overwritten. Make a new tensor instead."),
            (
                "is invalid for input of size",
                "The view does not fit the number of entries." + (" Groups may differ in size: no fixed table holds them." if ids else ""),
            ),
            ("numpy() on", "numpy carries no gradient. Stay with torch from the log-probs to the loss."),
            ("nly one element tensors", one),
            ("cannot be converted to Scalar", one),
            ("grad can be implicitly created only for scalar", "The loss must be one number: is a mean or a sum missing?"),
            ("not enough values to unpack", unpacked if inside else "The function returns fewer things than the exercise asks for."),
            ("too many values to unpack", unpacked if inside else "The function returns more things than the exercise asks for."),
            (
                "cannot unpack",
                unpacked
                if inside
                else "The function returns one thing where the exercise asks for several: is a return missing, or half of it?",
            ),
            ("for ^", "In Python ^ is not a power. Two stars are: 2 ** 3."),
            ("NoneType", "Something is None where a value is needed: a return is missing, or a function that may give None gave it."),
            ("could not convert string to float", "float was given words. Is it sure, before the conversion, that they are a number?"),
            (
                "Index tensor must have the same number of dimensions",
                "gather wants an index with as many dimensions as what it picks from.",
            ),
            (
                "Size does not match at dimension",
                "The index of gather is longer than what it picks from: do both speak of the same tokens?",
            ),
            (
                "backward through the graph a second time",
                "One graph is walked back twice. What was computed once, before the loop, and should carry no gradient? "
                "What has to be computed anew?",
            ),
            ("missing", arguments),
            ("unexpected keyword argument", arguments),
            ("invalid combination of arguments", arguments),
        )
        if kind == "NameError":
            return "A name is used that is not defined here: run the cells above first, or look for a typing slip."
        if kind == "KeyboardInterrupt":
            return "You stopped it. If it seemed to run for ever: does every loop of yours come to an end?"
        if kind == "UnboundLocalError":
            return "A name is used before it has a value: which line, or which branch of an if, should have set it?"
        return next((words for part, words in known if part in message), "")

    def hint(self, exercise=""):
        """The next hint for an exercise (the one checked last): the property that fails, then the idea, then where to read."""
        exercise = exercise or self.latest or next(iter(self.hints))
        if exercise not in self.hints:
            print(f"There is no exercise {exercise!r} here; there are {', '.join(self.hints)}.")
            return
        failed = [[title, name] for title, (name, of, _) in self.checks.items() if of == exercise and not self.passed.get(name)]
        title, check = failed[0] if failed else ("", "")
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

    @staticmethod
    def equal(known, mine):
        """Within 3e-5 of the size of the numbers themselves: float32 leaves less, and by chance one in 30,000 is as near."""
        if known[0] != mine[0] or not known[0]:
            return False
        return all(abs(a - b) <= 1e-7 + 3e-5 * known[1] for a, b in zip(known[1:], mine[1:], strict=True))

    @classmethod
    def fingerprint(cls, value, words=""):
        """Equal for equal answers, not the answer itself: how many numbers (dimensions, words), their mean size, two weighted sums."""
        numbers = [n if abs(n) < 1e12 else 99.25 for n in cls.numbers(value)]  # NaN and infinity are numbers like others here
        form = len(numbers) + 1000 * cls.dimensions(value) + 1000000 * (sum(ord(c) * (i + 1) for i, c in enumerate(words)) % 99991)
        numbers = numbers or [0.0]
        weighted = [sum(n * (i * k % 17 + 1) / 17 for i, n in enumerate(numbers)) / len(numbers) for k in (5, 7)]
        weighted.insert(0, sum(map(abs, numbers)) / len(numbers))
        return [form] + [float(f"{w:.6g}") for w in weighted]

    @classmethod
    def dimensions(cls, value):
        """The dimensions of all tensors inside a value together."""
        inside = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
        return len(getattr(value, "shape", ())) + sum(map(cls.dimensions, inside))

    @classmethod
    def numbers(cls, value):
        """All numbers inside tensors, arrays, lists, dicts and strings, in order."""
        if isinstance(value, str):
            return [float(ord(c)) for c in value[:200]]
        if value is None:
            return [-99.75]
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
            if not where.isidentifier():
                return ["NotImplementedError: not written yet."]
            return [f"NotImplementedError: {where} is not written yet: line {frame.tb_lineno} of its cell is still open."]
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
