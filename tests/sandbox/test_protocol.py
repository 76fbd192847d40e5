"""The wire: what is data crosses and comes out equal; what is not is refused in words; what is malformed is refused early."""

import json
import math
import socket
import struct
import time

import pytest
import torch

from grader.sandbox.protocol import DTYPES, LIMIT, Channel, Closed, Late, Malformed, NotData, pack, unpack


@pytest.fixture
def pair():
    ours, theirs = map(Channel, socket.socketpair())
    ours.deadline = time.monotonic() + 5
    yield ours, theirs
    ours.close()
    theirs.close()


def crossed(pair, value):
    ours, theirs = pair
    tensors = []
    theirs.send({"value": pack(value, tensors)}, tensors)
    head, came, _ = ours.receive()
    return unpack(head["value"], came)


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        False,
        0,
        -1,
        10**40,
        0.1,
        -0.0,
        math.inf,
        "",
        "ä\n\0\ud800",
        [],
        (),
        {},
        [[(1, {"a": [None]})]],
        {1: 2, "1": 3, None: 4, (1, 2): 5},
    ],
    ids=repr,
)
def test_plain_values_cross(pair, value):
    came = crossed(pair, value)
    assert came == value and type(came) is type(value)
    assert math.copysign(1, came) == math.copysign(1, value) if isinstance(value, float) else True


@pytest.mark.parametrize("name", DTYPES)
def test_tensors_of_every_kind_cross(pair, name):
    t = (torch.arange(6).view(2, 3) % 2).to(DTYPES[name])
    for shape in (t, t.T, t[:, ::2], t[0, 0], t[:0], t[:1].expand(4, 3)):
        came = crossed(pair, shape)
        assert came.dtype == shape.dtype and came.shape == shape.shape and torch.equal(came, shape)


def test_nan_and_conjugates_keep_their_bits(pair):
    assert crossed(pair, torch.tensor([math.nan, -math.inf])).isnan().tolist() == [True, False]
    z = torch.tensor([1 + 2j]).conj()
    assert torch.equal(crossed(pair, z), torch.tensor([1 - 2j]))


def test_the_same_tensor_arrives_as_the_same_tensor(pair):
    t = torch.ones(2)
    a, b, c = crossed(pair, [t, t, t.clone()])
    assert a is b and a is not c


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (object(), "a object"),
        ({1}, "a set"),
        (b"x", "a bytes"),
        (1j, "a complex"),
        (torch.ones(2).to_sparse(), "sparse"),
        (torch.ones(2, device="meta"), "device meta"),
        (torch.ones(1).expand(LIMIT), "too many numbers"),
        (torch.ones(2).as_subclass(type("Mine", (torch.Tensor,), {})), "a Mine"),
        (torch.zeros(2**24, 0), r"shape \(16777216, 0\), which has too many numbers, rows or dimensions"),
        (torch.zeros(0, 2**40), "too many numbers, rows"),
        (torch.zeros(1, 2**20, 1, dtype=torch.uint8), "too many numbers, rows"),
        (torch.zeros(2**21 + 1, dtype=torch.bool), "too many numbers, rows"),
        (torch.zeros([1] * 17), "too many numbers, rows"),
        ([[]] * 2**17, "131,076 values in lists, more than the 131,072"),
        (torch.float32, "a dtype"),
        (iter([]), "a list_iterator"),
    ],
)
def test_what_is_not_data_is_refused_in_words(value, words):
    with pytest.raises(NotData, match=words):
        pack([{"a": value}], [])


def test_what_contains_itself_is_refused():
    maze = []
    maze.append(maze)
    with pytest.raises(NotData, match="contains itself"):
        pack(maze, [])


def test_subclasses_arrive_as_what_they_are_based_on(pair):
    assert type(crossed(pair, type("Number", (float,), {})(1.5))) is float
    assert type(crossed(pair, type("Row", (list,), {})([1]))) is list
    assert type(crossed(pair, torch.nn.Parameter(torch.ones(1)))) is torch.Tensor


def test_flags_cross(pair):
    ours, theirs = pair
    x = torch.ones(1, requires_grad=True)
    theirs.send({}, [x, x * 2, x.detach()])
    assert ours.receive()[2] == [(True, True), (True, False), (False, True)]


def raw(head, data=b"", size=None, length=None):
    text = head if isinstance(head, bytes) else json.dumps(head).encode()
    return struct.pack(">IQ", len(text) if length is None else length, len(data) if size is None else size) + text + data


def form(name="float32", shape=(1,)):
    return {"tensors": [[name, list(shape), False, True]]}


@pytest.mark.parametrize(
    "message",
    {
        "no json": raw(b"{"),
        "a list": raw([]),
        "no tensors": raw({}),
        "tensors that are text": raw({"tensors": "ab"}),
        "deep": raw(b"[" * 100_000),
        "too long": raw(b"", length=2**32 - 1),
        "too large": raw({"tensors": []}, size=2**60),
        "unknown dtype": raw(form("object"), b"1234"),
        "negative": raw(form(shape=[-1]), b"1234"),
        "fraction": raw(form(shape=[0.5]), b"1234"),
        "truth": raw(form(shape=[True]), b"1234"),
        "sizes differ": raw(form(shape=[2]), b"1234"),
        "overflow": raw(form(shape=[2**47, 2**47, 0])),
        "many dimensions": raw(form(shape=[1] * 17), b"1234"),
        "many empty rows": raw(form(shape=[2**24, 0])),
        "many columns of nothing": raw(form(shape=[0, 2**40])),
        "many rows of one": raw(form("uint8", [2**20, 1, 1]), size=2**20),
        "64 million numbers": raw(form("bool", [2**26 - 100]), size=2**26 - 100),
        "many numbers in a few": raw({"tensors": [["bool", [2**20], False, True]] * 3}, size=3 * 2**20),
        "many tensors": raw({"tensors": [["bool", [0], 0, 0]] * (2**12 + 1)}),
        "long integer": raw(b'{"tensors": [], "a": ' + b"1" * 5000 + b"}"),
    }.values(),
)
def test_what_is_malformed_is_refused_before_anything_is_allocated(pair, message):
    ours, theirs = pair
    theirs._socket.sendall(message)
    with pytest.raises(Malformed):
        ours.receive()


@pytest.mark.parametrize(
    "tree",
    [{}, ["tensor", 1], ["tensor", -1], ["tensor", True], ["tensor"], ["what"], [], ["dict", 1], ["dict", [["list"], 1]], [["list"]]],
    ids=repr,
)
def test_a_tree_that_is_no_value_is_refused(tree):
    with pytest.raises(Malformed):
        unpack(tree, [torch.ones(1)])


@pytest.mark.parametrize(
    ("tree", "words"),
    {
        "440,000 lists": (["list", *[["list"]] * 440_000], "too many values"),
        "numbers": (["dict", *[[i * (2**61 - 1), 0] for i in range(20_000)]], "keys that collide"),
        "tuples": (["dict", *[[["tuple", i * (2**61 - 1)], 0] for i in range(20_000)]], "keys that collide"),
    }.values(),
)
def test_a_tree_that_would_cost_much_is_refused_before(tree, words):
    """A dict of as many keys with one hash would take three seconds or more, and one of 160,000 minutes."""
    began = time.process_time()
    with pytest.raises(Malformed, match=words):
        unpack(tree, [])
    assert time.process_time() - began < 1


def test_keys_with_equal_hashes_cross_as_long_as_they_are_few(pair):
    numbers = {i * (2**61 - 1): i for i in range(16)} | {-1: 0, -2: 0}
    assert crossed(pair, numbers) == numbers


def test_tensors_that_are_too_many_together_are_refused(pair):
    with pytest.raises(NotData, match="too many numbers together"):
        pair[0].send({}, [torch.zeros(2**20, dtype=torch.bool)] * 3)


def test_a_truth_value_has_two_states(pair):
    ours, theirs = pair
    theirs._socket.sendall(raw(form("bool", [3]), b"\x00\x02\xff"))
    (came,) = ours.receive()[1]
    assert torch.equal(came, torch.tensor([False, True, True]))


def test_silence_ends_at_the_deadline_and_a_closed_end_is_noticed(pair):
    ours, theirs = pair
    theirs._socket.sendall(b"\0\0")
    ours.deadline = time.monotonic() + 0.1
    with pytest.raises(Late):
        ours.receive()
    theirs.close()
    ours.deadline = time.monotonic() + 5
    with pytest.raises(Closed):
        ours.receive()


def test_a_reader_that_does_not_read_does_not_hold_us_up(pair):
    ours, _ = pair
    ours.deadline = time.monotonic() + 0.2
    with pytest.raises(Late):
        ours.send({}, [torch.zeros(2**20)])


def test_a_message_that_is_too_large_is_refused(pair):
    with pytest.raises(NotData, match="bytes"):
        pair[0].send({"value": "a" * 2**23})
