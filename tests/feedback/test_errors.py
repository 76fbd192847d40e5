"""What errors of Python and torch usually mean: as torch words them today, and only where the words are true."""

import pytest
import torch

from grader.feedback.errors import meaning


def test_common_errors_of_python_are_explained_with_the_shapes_of_the_text():
    shapes = {"advantages": "[N]", "mask": "[N, T]"}
    message = "The size of tensor a (3) must match the size of tensor b (4) at non-singleton dimension 1"
    assert "as a column: [N, 1]" in meaning("RuntimeError", message, shapes, True)
    assert "a typing slip" in meaning("NameError", "name 'ratoi' is not defined", shapes, True)


whole, floats, both = torch.tensor([1, 0, 1]), torch.rand(3), torch.rand(2, 3)


def written_to():
    x = torch.ones(3, requires_grad=True)
    x[0] = 2


REAL = [  # what learners do, and how the words for it begin
    (lambda: torch.where(whole, floats, 0.0), "The mask may come as"),
    (lambda: floats & whole, "The mask may come as"),
    (lambda: floats.masked_fill(whole, 0.0), "The mask may come as"),
    (lambda: floats[floats], "Entries are chosen by"),
    (lambda: torch.nn.functional.cross_entropy(torch.rand(2, 3, 5), torch.zeros(2, 3).long()), "cross_entropy wants"),
    (lambda: torch.rand(3, 2) + torch.rand(3), "Two tensors do not fit"),
    (lambda: floats @ floats.double(), "Two tensors of different number types"),
    (lambda: whole.mean(), "A tensor of whole numbers"),
    (lambda: whole.float().mean(1), "The tensor has fewer dimensions"),
    (lambda: 2.0**5000, "A number grew"),
    (lambda: floats[3], "An index points outside"),
    (lambda: both.gather(1, torch.tensor([[7]])), "An index points outside"),
    (lambda: torch.zeros(10**15), "A tensor of an enormous size"),
    (lambda: floats.view(2, 2), "The view does not fit"),
    (lambda: float(floats), "Something that takes a single number"),
    (lambda: floats or whole, "Python's if, and, or"),
    (lambda: floats ^ 2, "In Python ^"),
    (lambda: floats + None, "Something is None"),
    (lambda: torch.exp(2.0), "A function of torch wants"),
    (lambda: torch.softmax(floats), "A function is called with arguments"),
    (lambda: meaning(), "A function is called with arguments"),
    (lambda: meaning(1, 2, 3, 4, 5), "A function is called with arguments"),
    (lambda: meaning("", "", word=""), "A function is called with arguments"),
    (written_to, "An argument that carries a gradient"),
    (lambda: torch.zeros(3, device="meta").index_add_(0, whole, floats), "Something on the CPU meets"),
    (lambda: floats.to("meta").numpy(), "Something on the CPU meets"),
]


@pytest.mark.parametrize(("does", "words"), REAL)
def test_what_torch_says_is_understood(does, words):
    with pytest.raises(Exception) as caught:
        does()
    assert meaning(type(caught.value).__name__, str(caught.value), inside=True).startswith(words)


@pytest.mark.parametrize(
    ("kind", "message", "words"),
    [
        (
            "RuntimeError",
            "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!",
            "Something on the CPU",
        ),
        ("RuntimeError", "indices should be either on cpu or on the same device as the indexed tensor (cuda)", "Something on the CPU"),
        ("RuntimeError", "Expected a 'cuda' device type for generator but found 'cpu'", "A generator draws on"),
        ("AssertionError", "compute_grpo_loss returns (loss, advantages); what came is None (is a return missing?)", ""),
        ("AssertionError", "the index 3 is out of range", ""),
        ("OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.00 GiB.", "The GPU is out of memory"),
        ("KeyError", "'missing'", ""),
        ("RuntimeError", "a file is missing", ""),
    ],
)
def test_words_are_said_where_they_are_true(kind, message, words):
    for inside in (True, False):
        told = meaning(kind, message, {}, inside)
        assert told.startswith(words) and bool(told) == bool(words)
