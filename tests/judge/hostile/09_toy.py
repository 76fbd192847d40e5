# %% [markdown]
# # 9. Toy
#
# A notebook with two exercises, small enough to attack.

# %% given setup
import torch

SEED = 0


def level(x):
    """A given function."""
    return float(x.sum())


# %% bring helper
def helper(x):
    """Brought from an earlier notebook."""
    ### BEGIN SOLUTION
    return x + 1
    ### END SOLUTION


# %% solution double
def double(x, scale=2.0):
    """Every entry times `scale`: x [N] -> [N]."""
    ### BEGIN SOLUTION
    return x * scale
    ### END SOLUTION


# %% check twice points=2
# Every entry is doubled.
expected = torch.tensor([2.0, 4.0])
got = double(torch.tensor([1.0, 2.0]))
assert isinstance(got, torch.Tensor), f"a tensor was expected, not {got!r}"
assert got.shape == (2,), f"expected shape (2,), got {tuple(got.shape)}"
assert torch.allclose(got, expected), f"1, 2 become 2, 4, not {got.tolist()}"
### BEGIN HIDDEN TESTS
secret = torch.tensor([271828.0, -3.0])
assert torch.equal(double(secret), torch.tensor([543656.0, -6.0])), f"{double(secret).tolist()} is not 543656, -6"
draw = torch.Generator().manual_seed(SEED)
for _ in range(5):
    x = torch.randn(7, generator=draw)
    torch.testing.assert_close(double(x.clone(), scale=3.0), x + x + x)
### END HIDDEN TESTS

# %% check gradient points=2
# Its gradient is 2 everywhere.
x = torch.ones(3, requires_grad=True)
double(x).sum().backward()
got = x.grad
assert got is not None, "no gradient came out"
assert torch.allclose(got, torch.full((3,), 2.0)), f"the gradient is 2, not {got.tolist()}"
### BEGIN HIDDEN TESTS
draw = torch.Generator().manual_seed(SEED + 1)
x = torch.randn(5, generator=draw).requires_grad_()
w = torch.randn(5, generator=draw)
(double(x, scale=1.5) * w).sum().backward()
torch.testing.assert_close(x.grad, 1.5 * w)
### END HIDDEN TESTS

# %% solution total
def total(numbers):
    """The sum of a list of numbers."""
    ### BEGIN SOLUTION
    return sum(numbers)
    ### END SOLUTION


# %% scenario double_of_total
def double_of_total(numbers):
    """Calls both, on the learner's side."""
    return double(torch.tensor([float(total(numbers))])).tolist()


# %% check sums points=3
# The numbers are added.
got = total([1, 2, 3])
assert got == 6, f"1 + 2 + 3 is 6, not {got}"
### BEGIN HIDDEN TESTS
assert total([31415926, -1]) == 31415925
assert total([]) == 0
### END HIDDEN TESTS

# %% answer why [markdown] points=4
# Because.
