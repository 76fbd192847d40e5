"""The judge: the same verdicts as in a notebook, autograd across, plain words, and nothing but the guilty check fails."""

import gc
import inspect
import json
import tracemalloc
from dataclasses import replace

import pytest

from grader.course.source import Cell, Notebook
from grader.course.trusted import failure, namespace
from grader.intake.match import Submission
from grader.judge.judge import Judge, Limits
from grader.judge.remote import Session
from grader.sandbox.jail import JailError, Layers, tried
from grader.sandbox.protocol import Late
from tests.judge.hands import hand_in, message, outcome, warm_judge


def notebook(function: str, *checks: str) -> Notebook:
    """One exercise `f`, and checks whose text is given."""
    cells = [Cell("given", "setup", "import torch"), Cell("solution", "f", function, exercise="f")]
    cells += [Cell("check", f"c{i}", f"# Check {i}.\n{text}", points=1, exercise="f") for i, text in enumerate(checks)]
    return Notebook("09_test", tuple(cells))


def judged(function: str, *checks: str, key: str = "def f(x, y=None, *rest, **more):\n    return x"):
    nb = notebook(key, *checks)
    cells = tuple(Cell(c.kind, c.name, function if c.name == "f" else c.source) for c in nb.of_kind("given", "solution"))
    return warm_judge().judge(Submission(nb, cells, ()))


SAME = {  # (the learner's function, a check): the check passes in a notebook, and here
    "values": ("def f(x): return x * 2", "assert torch.equal(f(torch.ones(3)), torch.full((3,), 2.0))"),
    "kinds": ("def f(*a, **k): return a, k", "v = [1, 2.5, -0.0, True, None, 'ä\\ud800', {'a': (1, [2])}, {1: 2, None: 3}, 10**30]\n(got,), k = f(v, key=v)\nassert got == v and k == {'key': v} and type(got[3]) is bool and type(got[6]['a']) is tuple"),
    "not finite": ("def f(x): return x", "assert f(float('inf')) == float('inf') and f(float('nan')) != f(float('nan'))"),
    "dtypes": ("def f(x): return x", "for d in (torch.bool, torch.uint8, torch.int64, torch.bfloat16, torch.float16, torch.float64, torch.complex64):\n    t = torch.tensor([[0, 1], [1, 0]]).to(d)\n    assert f(t).dtype == d and torch.equal(f(t), t) and torch.equal(f(t.T), t.T)"),
    "empty": ("def f(x): return x", "assert f(torch.empty(0, 3)).shape == (0, 3) and f(torch.tensor(5)).shape == ()"),
    "numpy numbers": ("import numpy as np\ndef f(x): return [np.float32(0.5), np.int64(3), np.bool_(True)]", "assert f(0) == [0.5, 3, True]"),
    "named tuples": ("def f(x): return x.max(dim=0)", "values, places = f(torch.tensor([1.0, 3.0]))\nassert values == 3 and places == 1"),
    "gradient": ("def f(x): return (x ** 3).sum()", "x = torch.tensor([2.0, 3.0], requires_grad=True)\nf(x).backward()\nassert torch.equal(x.grad, 3 * x.detach() ** 2)"),
    "expanded gradient": ("def f(x): return x * 2", "x = torch.ones(2, 3, requires_grad=True)\nf(x).sum().backward()\nassert torch.equal(x.grad, torch.full((2, 3), 2.0))"),
    "gradients add up": ("def f(x): return x.sum()", "x = torch.ones(2, requires_grad=True)\nf(x).backward()\nf(x).backward()\nassert x.grad.tolist() == [2, 2]"),
    "unused gets none": ("def f(x, y): return x.sum() + y.detach().sum()", "x, y = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)\nf(x, y).backward()\nassert y.grad is None and x.grad is not None"),
    "no graph": ("def f(x): return x.detach() * 2", "assert not f(torch.ones(2, requires_grad=True)).requires_grad"),
    "graph of its own": ("def f(x): return torch.ones(2, requires_grad=True) * 2", "got = f(torch.ones(2))\nassert got.requires_grad\ngot.sum().backward()"),
    "no_grad": ("def f(x): return x * 2", "with torch.no_grad():\n    assert not f(torch.ones(2, requires_grad=True)).requires_grad"),
    "composed": ("def f(x): return x * 2", "x = torch.ones(2, requires_grad=True)\n(f(f(x) + 1) * f(x)).sum().backward()\nassert x.grad.tolist() == [20, 20]"),
    "of a value on the way": ("def f(x): return x * 2", "x = torch.ones(2, requires_grad=True)\ny = x * 3\ny.retain_grad()\nf(y).sum().backward()\nassert y.grad.tolist() == [2, 2] and x.grad.tolist() == [6, 6]"),
    "hooks": ("def f(x): return x * 2", "seen = []\nx = torch.ones(2, requires_grad=True)\nx.register_hook(seen.append)\nf(x).sum().backward()\nassert seen[0].tolist() == [2, 2]"),
    "several results": ("def f(x): return {'a': x * 2, 'b': [x * 3, x.long()], 'c': 1}", "x = torch.ones(2, requires_grad=True)\ngot = f(x)\n(got['a'] + got['b'][0]).sum().backward()\nassert x.grad.tolist() == [5, 5] and not got['b'][1].requires_grad"),
    "one result of two": ("def f(x): return x * 2, x * 3", "x = torch.ones(2, requires_grad=True)\nf(x)[1].sum().backward()\nassert x.grad.tolist() == [3, 3]"),
    "the same tensor twice": ("def f(x, y): return (x * y).sum()", "x = torch.full((2,), 3.0, requires_grad=True)\nf(x, x).backward()\nassert x.grad.tolist() == [6, 6]"),
    "inside lists": ("def f(xs): return xs[0] * xs[1]['k']", "a, b = torch.tensor(2.0, requires_grad=True), torch.tensor(3.0, requires_grad=True)\nf([a, {'k': b}]).backward()\nassert a.grad == 3 and b.grad == 2"),
    "bfloat16": ("def f(x): return x * 2", "x = torch.ones(2, dtype=torch.bfloat16, requires_grad=True)\nf(x).sum().backward()\nassert x.grad.dtype == torch.bfloat16"),
    "backward twice needs the graph": ("def f(x): return x * x", "x = torch.ones(2, requires_grad=True)\ny = f(x).sum()\ny.backward(retain_graph=True)\ny.backward()\nassert x.grad.tolist() == [4, 4]\ntry:\n    y.backward()\nexcept RuntimeError:\n    pass\nelse:\n    assert False"),
    "errors keep their kind": ("def f(x): raise KeyError('nothing')", "try:\n    f(1)\nexcept KeyError:\n    pass\nelse:\n    assert False"),
    "own errors are their base": ("class Mine(ValueError): pass\ndef f(x): raise Mine('no')", "try:\n    f(1)\nexcept ValueError as e:\n    assert str(e) == 'no'"),
    "writing into a leaf is an error": ("def f(x): x += 1; return x", "try:\n    f(torch.ones(2, requires_grad=True))\nexcept RuntimeError as e:\n    assert 'leaf' in str(e)\nelse:\n    assert False"),
    "numpy wants no gradient": ("def f(x): return float(x.numpy().sum())", "try:\n    f(torch.ones(2, requires_grad=True))\nexcept RuntimeError:\n    pass\nelse:\n    assert False"),
    "an optimizer of its own": ("def f(x):\n    x = x.clone().requires_grad_()\n    for kind in (torch.optim.SGD, torch.optim.AdamW):\n        o = kind([x], lr=0.1)\n        plan = torch.optim.lr_scheduler.StepLR(o, 1)\n        o.zero_grad()\n        (x ** 2).sum().backward()\n        o.step()\n        plan.step()\n        o.load_state_dict(o.state_dict())\n    return x.detach()", "assert torch.allclose(f(torch.ones(2)), torch.full((2,), 0.6992))"),
    "compiled": ("def f(x): return torch.compile(lambda y: y * 2, backend='eager')(x)", "x = torch.ones(2, requires_grad=True)\nf(x).sum().backward()\nassert x.grad.tolist() == [2, 2]"),
    "optimizer": ("def f(x): return (x ** 2).sum()", "x = torch.ones(2, requires_grad=True)\no = torch.optim.SGD([x], lr=0.1)\nfor _ in range(3):\n    o.zero_grad()\n    f(x).backward()\n    o.step()\nassert torch.allclose(x, torch.full((2,), 0.8**3))"),
}  # fmt: skip


@pytest.mark.parametrize("case", SAME)
def test_a_check_passes_as_in_a_notebook(case):
    function, check = SAME[case]
    nb = notebook(function, check)
    assert failure(nb.of_kind("check")[0], namespace(nb))[0] is None
    result = judged(function, check)
    assert result.points == 1, result.checks[0].message


FAILS = {  # (the learner's function, a check, words of the message)
    "wrong": ("def f(x): return x", "assert f(1) == 2, 'one too few'", "one too few"),
    "not written": ("def f(x): raise NotImplementedError()", "f(1)", "f is not written yet"),
    "its own error": ("def f(x): return [][x]", "f(1)", "f raised IndexError: list index out of range"),
    "not defined": ("g = 1", "f(1)", "f is not defined"),
    "syntax": ("def f(x)\n    return x", "f(1)", "SyntaxError"),
    "name in the cell": ("f = undefined", "f(1)", "NameError: name 'undefined' is not defined"),
    "in place": ("def f(x, y): y.mul_(2); return x", "x = torch.ones(2)\nf(x, x.clone())", "changed its argument 'y' in place"),
    "in place by numpy": ("def f(x, y=None): x.numpy()[:] = 0; return 1", "f(torch.ones(2))", "changed its argument 'x' in place"),
    "in place, keyword": ("def f(x, y): y.append(1); return 1", "f(1, y=[])", "changed its argument 'y' in place"),
    "array": ("import numpy\ndef f(x): return numpy.ones(2)", "f(1)", "f gave back a ndarray; allowed are tensors"),
    "generator": ("def f(x): yield 1", "f(1)", "f gave back a generator"),
    "none": ("def f(x): pass", "f(1) + 1", "could not use what came back: TypeError"),
    "caught": ("import os\ndef f(x): os._exit(1)", "try:\n    f(1)\nexcept Exception:\n    pass", "f ended its process"),
    "caught change": ("def f(x): x.append(1)", "try:\n    f([])\nexcept Exception:\n    pass", "changed its argument"),
    "gradient of a gradient": ("def f(x): return x ** 2", "x = torch.ones(1, requires_grad=True)\ng, = torch.autograd.grad(f(x), x, create_graph=True)", "gradients of gradients do not cross"),
    "an error in a helper": ("def pick(x): return [][x]\ndef f(x): return pick(x)", "f(1)", "f raised IndexError: list index out of range (in pick)"),
    "error in backward": ("def f(x):\n    y = x.exp()\n    z = y.sum()\n    y.data = y.data\n    y.zero_()\n    return z", "x = torch.ones(2, requires_grad=True)\nf(x).backward()", "f raised RuntimeError: one of the variables needed for gradient"),
    "system exit": ("def f(x): exit(3)", "f(1)", "f raised"),
    "backward that leaves": ("import torch, os\nclass F(torch.autograd.Function):\n    forward = staticmethod(lambda ctx, x: x * 1)\n    backward = staticmethod(lambda ctx, g: os._exit(0))\ndef f(x): return F.apply(x)", "x = torch.ones(2, requires_grad=True)\nf(x).sum().backward()", "f ended its process"),
}  # fmt: skip


@pytest.mark.parametrize("case", FAILS)
def test_a_check_fails_with_plain_words(case):
    function, check, words = FAILS[case]
    result = judged(function, check)
    assert result.points == 0
    assert words in result.checks[0].message


HIDDEN = "got = f(1)\n### BEGIN HIDDEN TESTS\nassert f(4711) == 4712, f'{f(4711)} is not 4712'\n### END HIDDEN TESTS"


@pytest.mark.parametrize(
    "function",
    [
        "def f(x): return x",
        "def f(x):\n    if x > 9: raise ValueError(x)\n    return x",
        "def f(x):\n    if x > 9: raise type(f'Given{x}', (KeyError,), {})\n    return x",
        "def f(x):\n    if x > 9: raise NotImplementedError\n    return x",
        "def f(x):\n    if x > 9: return {x}\n    return x",
        "def f(x):\n    if x > 9: return str(x)\n    return x",
        "def f(x):\n    if x > 9: return None\n    return x",
        "import os\ndef f(x):\n    if x > 9: os._exit(1)\n    return x",
        "import torch\ndef f(x):\n    if x > 9: return torch.zeros(2**22)\n    return x",
    ],
)
def test_whatever_a_hidden_input_makes_of_the_code_its_message_is_the_same(function):
    """Else the code could choose what is told, and so tell what it was given."""
    result = judged(function, HIDDEN)
    assert result.checks[0].message == "Check 0: a hidden test fails." and not result.notes


def test_the_hidden_part_runs_after_every_visible_one():
    """Else an error in the visible part of the second check could tell what the hidden part of the first gave."""
    function = "seen = []\ndef f(x):\n    seen.append(x)\n    if len(seen) > 1: raise ValueError(seen)\n    return x + 1"
    assert "4711" not in judged(function, HIDDEN, "f(2)").to_json()


def test_the_key_of_a_toy_earns_everything():
    result = warm_judge().judge(hand_in())
    assert (result.points, result.max_points) == (7, 7)
    assert [v.points for v in result.checks] == [2, 2, 3, None], "a written answer waits for a human"
    assert json.loads(result.to_json())["checks"][0]["title"] == "Every entry is doubled"


def test_what_is_like_a_notebook_does_no_harm():
    first = "%matplotlib inline\n%pip install nothing\n!ls /\nfiles = !ls\n%timeit -n1 -r1 1\nimport matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()\ndisplay(1)\n_ = 5\nimport warnings, sys\nwarnings.warn('careful')\nprint('x', file=sys.stderr)"
    asynchronous = "import asyncio\nasync def work():\n    await asyncio.sleep(0)\n    return 2\ntwo = await work()\ndef double(x, scale=2.0):\n    %time x * scale\n    return x * scale * two / 2"
    result = warm_judge().judge(hand_in(first=first, last="name = input('Your name? ')", double=asynchronous))
    assert result.points == 7, result
    assert result.notes == ("An added cell stopped with EOFError: EOF when reading a line.",)


def test_a_cell_that_fails_does_not_stop_the_others():
    result = warm_judge().judge(hand_in(first="1 / 0", double="def double(x: return x"))
    assert outcome(result) == {"twice": False, "gradient": False, "sums": True}
    assert "SyntaxError" in message(result, "twice")
    assert result.notes[0] == "An added cell stopped with ZeroDivisionError: division by zero."


def test_a_cell_that_never_ends_or_crashes_is_left_out():
    with Judge(limits=Limits(check=3, cells=20)) as judge:
        result = judge.judge(hand_in(first="while True: pass", last="import os; os._exit(0)"))
    assert result.points == 7
    assert result.notes == (
        "An added cell did not finish in time; only what it defines was kept.",
        "An added cell ended its process; only what it defines was kept.",
    )


def test_cells_that_take_all_the_time_fail_every_check_with_a_reason():
    with Judge(limits=Limits(check=5, cells=3)) as judge:
        result = judge.judge(hand_in(first="while True: pass"))
        assert result.points == 0
        assert message(result, "sums") == "The cells of this notebook did not finish in time."
        assert Judge.judge(judge, hand_in()).points == 7


def test_after_a_crash_only_that_check_fails():
    crash = "import os\ndef double(x, scale=2.0):\n    if x.requires_grad: os._exit(1)\n    return x * scale"
    result = warm_judge().judge(hand_in(double=crash))
    assert outcome(result) == {"twice": True, "gradient": False, "sums": True}
    assert message(result, "gradient") == "double ended its process."


def test_waiting_for_a_processor_costs_nobody_a_point():
    """By the clock the cell takes three times what it may, of the processor nearly nothing."""
    with Judge(limits=Limits(check=1)) as judge:
        sleeps = "import time\ndef double(x, scale=2.0):\n    time.sleep(1.8)\n    return x * scale"
        assert outcome(judge.judge(hand_in(double=sleeps)))["sums"]
        endless = "import time\ndef double(x, scale=2.0):\n    time.sleep(1000)"
        assert message(judge.judge(hand_in(double=endless)), "twice") == "double did not finish in time."


def test_a_check_of_ours_does_not_run_for_ever():
    nb = notebook("def f(x): return x", "while f(1):\n    pass", "n = f(1)\nwhile n:\n    pass", "assert f(1) == 1")
    with Judge(limits=Limits(check=5)) as judge:
        result = judge.judge(Submission(nb, nb.cells[:2], ()))
    assert [v.passed for v in result.checks] == [False, False, True]
    assert "in time" in result.checks[0].message and "in time" in result.checks[1].message


def test_too_much_data_in_one_check_fails_it():
    result = judged("def f(x): return torch.zeros(2_000_000)", "for _ in range(20):\n    f(1)", "assert f(1).numel() == 2_000_000")
    assert [v.passed for v in result.checks] == [False, True]


def test_a_learner_cannot_change_the_course_for_the_next():
    nb = notebook("def f(x): return x", "shared.append(f(1))\nassert shared == [1]")
    nb = Notebook(nb.name, (Cell("given", "shared", "shared = []"), *nb.cells))
    for _ in range(2):
        assert warm_judge().judge(Submission(nb, nb.cells[:3], ())).points == 1


def test_brought_functions_are_ours_and_scenarios_run_on_the_learners_side():
    nb = notebook("def f(x): return x", "assert helper(1) == 2 and both(1) == 2")
    bring = Cell("bring", "helper", "def helper(x): return x + 1")
    both = Cell("scenario", "both", "def both(x): return f(helper(x))")
    nb = Notebook(nb.name, (nb.cells[0], bring, nb.cells[1], both, nb.cells[2]))
    worse = Cell("extra", "", "def helper(x): return 7")
    told = replace(nb.cells[2], source="import inspect\ndef f(x): raise ValueError(inspect.getsource(helper))")
    result = warm_judge().judge(Submission(nb, (*nb.cells[:2], told, nb.cells[3]), ()))
    assert "could not get source code" in result.checks[0].message, "what answers an earlier exercise comes without its text"
    assert warm_judge().judge(Submission(nb, nb.cells[:4], ())).points == 1
    assert warm_judge().judge(Submission(nb, (*nb.cells[:4], worse), ())).points == 0


def test_cells_that_run_again_after_a_crash_are_not_held_against_a_hand_in():
    crash = "import time\ntime.sleep(1.5)\ndef double(x, scale=2.0):\n    import os\n    os._exit(1)"
    with Judge(limits=Limits(cells=4)) as judge:
        assert outcome(judge.judge(hand_in(double=crash))) == {"twice": False, "gradient": False, "sums": True}


def test_a_hand_in_may_use_temporary_files():
    """Wherever this checkout lies: below the temporary folder, say."""
    function = "import tempfile\ndef f(x):\n    with tempfile.TemporaryFile() as file:\n        torch.save(x, file)\n        file.seek(0)\n        return torch.load(file)"
    assert judged(function, "assert f(torch.ones(2)).tolist() == [1, 1]").points == 1


def test_a_cell_that_is_too_large_to_cross_is_left_out():
    """In JSON a letter can take six bytes."""
    result = warm_judge().judge(hand_in(last="# " + "\N{CJK UNIFIED IDEOGRAPH-5B57}" * 900_000))
    assert result.points == 7
    assert result.notes == ("An added cell is or was given more than can cross to its process; only what it defines was kept.",)


class Clockwork:
    """A learner's process that defines nothing and never answers a call, on a clock of its own: seconds pass only in waiting."""

    def __init__(self):
        self.now, self.deadline, self.bytes = 0.0, 0.0, 0
        self.waited: list[float] = []

    def monotonic(self):
        return self.now

    cpu_seconds = monotonic  # it is busy all the time

    def fork(self):
        return self

    def kill(self):
        pass

    close = kill

    def send(self, head, tensors=()):
        self.head = head

    def receive(self):
        if self.head["op"] == "call":
            self.waited.append(self.deadline - self.now)
        elif self.now + 1 < self.deadline:
            self.now += 1
            return {"id": self.head["id"]}, [], []
        self.now = self.deadline + 0.5
        raise Late


def test_an_exercise_that_hung_gets_less_time_in_its_next_checks_and_a_hand_in_an_end(monkeypatch):
    clock = Clockwork()
    monkeypatch.setattr("grader.judge.remote.time", clock)
    cells = [Cell("solution", name, f"def {name}(): ...", exercise=name) for name in "fg"]
    session = Session(clock, cells, Limits(check=10, hand_in=37.5))
    errors = []
    for i, name in enumerate("ffgffff"):
        check = Cell("check", f"c{i}", f"# Check.\n{name}()", points=1, exercise=name)
        errors.append(session.run(check, {name: session.proxy(name, inspect.signature(lambda: 0))}, hidden=False)[0])
    assert clock.waited == [10, 2, 10, 2, 1.5], "with 2 seconds for the cells each time, and what waits .5 too long"
    assert [error.safe for error in errors[:5]] == [f"{name} did not finish in time." for name in "ffgff"]
    assert {error.safe for error in errors[5:]} == {"The cells of this notebook did not finish in time."} and clock.now == 38


def test_an_optimizer_does_not_wait_for_torchs_compiler():
    function = "import sys\ndef f(x):\n    torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=1).step()\n    return 'torch._dynamo.config' in sys.modules"
    assert judged(function, "assert f(0) is False").points == 1


def test_pictures_come_when_they_are_drawn_and_from_the_second_hand_in_on_without_waiting():
    draws = "import sys\nimport matplotlib.pyplot\nHERE = hasattr(sys.modules['matplotlib.pyplot'], '__file__')\ndef f(x):\n    fig, ax = matplotlib.pyplot.subplots()\n    return HERE, len(ax.plot([1, 2]))"
    nb = notebook("def f(x): return x", "assert f(0) == (False, 1)", "assert f(0) == (True, 1)")
    with Judge() as judge:
        results = [judge.judge(Submission(nb, (nb.cells[0], replace(nb.cells[1], source=draws)), ())) for _ in range(2)]
    assert [[v.passed for v in result.checks] for result in results] == [[True, False], [False, True]]


def test_a_warm_process_that_was_killed_is_started_again():
    with Judge() as judge:
        assert judge.judge(hand_in()).points == 7
        judge._process._process.kill()
        judge._process._process.wait()
        assert judge.judge(hand_in()).points == 7


def test_no_jail_is_refused_in_a_sentence(monkeypatch):
    monkeypatch.setattr("grader.judge.judge.layers", lambda: Layers())
    with pytest.raises(JailError, match="no jail for the learners' code: install bubblewrap"):
        Judge()
    with Judge(allow_no_jail=True) as judge:
        assert judge.judge(hand_in()).points == 7


@pytest.mark.parametrize(
    "on",
    [
        Layers(landlock=5, seccomp=True),
        Layers(namespaces=True, landlock=5),
        Layers(bubblewrap=True, namespaces=True),
    ],
    ids=["landlock and seccomp", "namespaces and landlock", "bubblewrap and namespaces"],
)
def test_a_jail_of_fewer_layers_judges_too(monkeypatch, on):
    """For containers that refuse namespaces, and for kernels without Landlock or seccomp."""
    on = tried(on)
    for module in ("judge", "process"):
        monkeypatch.setattr(f"grader.judge.{module}.layers", lambda: on)
    read = "def double(x, scale=2.0):\n    return open('/etc/passwd').read()"
    signal = (
        "import os\ndef total(numbers):\n    for p in set(range(2, 40000)) - {os.getpid(), os.getppid()}:\n        try: os.kill(p, 0)\n"
        "        except ProcessLookupError: pass\n        except PermissionError: break\n        else: return None\n    return sum(numbers)"
    )  # the right answer, if nobody could be signalled
    with Judge() as judge:
        assert judge.judge(hand_in()).points == 7
        result = judge.judge(hand_in(double=read, total=signal))
        assert "FileNotFoundError" in message(result, "twice") or "PermissionError" in message(result, "twice")
        assert outcome(result)["sums"]


def test_many_hand_ins_take_no_more_memory_than_one():
    judge = warm_judge()
    for _ in range(3):
        judge.judge(hand_in())
    tracemalloc.start()
    judge.judge(hand_in())
    gc.collect()  # what waits for it is not kept
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(20):
        judge.judge(hand_in())
    gc.collect()
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert after - before < 200_000
