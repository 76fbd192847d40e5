"""A device for machines that have none: its tensors refuse to meet those of the CPU, as a GPU's do, and what makes it wait is counted.

Its data lie on the CPU, so the numbers are the CPU's. It has no kernels, no memory of its own, no streams and no bfloat16.
"""

import collections
import contextlib
import traceback
from unittest import mock

import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing

DEVICE = "lazy"  # one that every build of torch knows by name and nobody has
aten = torch.ops.aten
MOVES = {aten.copy_.default, aten._to_copy.default, aten._local_scalar_dense.default}  # may go from one device to the other
OF_UNKNOWN_SIZE = {"nonzero", "masked_select", "unique_dim", "_unique2", "unique_consecutive", "repeat_interleave"}
INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"}
waits: collections.Counter[str] = collections.Counter()  # line -> how often it made the device wait for the host, or the host for it
queued: list[str] = []  # what the device was told since it was last waited for


class There(torch.Tensor):
    """A tensor on the device."""

    @staticmethod
    def __new__(cls, data):
        return torch.Tensor._make_wrapper_subclass(cls, data.shape, data.stride(), data.storage_offset(), dtype=data.dtype, device=DEVICE)

    def __init__(self, data):
        self.here = data

    def __repr__(self, *, tensor_contents=None):
        return f"There({self.here})"

    def untyped_storage(self):
        return self.here.untyped_storage()

    def tolist(self):
        return self.cpu().tolist()

    def numpy(self, *args, **kwargs):
        raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first.")

    __array__ = numpy

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return carried_out(func, args, kwargs or {})


class Generator(torch.Generator):
    def __new__(cls, device="cpu"):
        made = super().__new__(cls)
        made.on = torch.device(device).type
        return made


def wait(what):
    stack = traceback.extract_stack()
    frame = next((f for f in reversed(stack) if f.filename.startswith("<")), stack[-1])
    waits[f"{what} at {frame.filename}:{frame.lineno}"] += 1
    queued.clear()


def mapped(change, x):
    """What lies in lists and tuples, changed; three times as fast as torch's pytree."""
    return type(x)(mapped(change, y) for y in x) if isinstance(x, (list, tuple)) else change(x)


def taken(x, there, here):
    """The data of an argument, which is noted by where it lies."""
    if not isinstance(x, torch.Tensor):
        return x
    (there if isinstance(x, There) else here).append(x)
    return x.here if isinstance(x, There) else x


def carried_out(func, args, kwargs):
    """An operation on the data of its tensors; its result lies where its arguments do, or where it is asked for."""
    there, here = [], []
    inside = [mapped(lambda x: taken(x, there, here), tuple(part)) for part in (args, kwargs.values())]
    name, asked = func.__name__.split(".")[0], kwargs.get("device")
    asked = asked and torch.device(asked).type
    if not there and asked != DEVICE:
        return func(*args, **kwargs)
    if there and func not in MOVES:
        index = list(args[1]) if name in INDEXING and isinstance(args[0], There) else []  # places may be told from the CPU
        if any(x.dim() and not any(x is i for i in index) for x in here) or (name.endswith("_") and args[0] is (here or [None])[0]):
            raise RuntimeError(f"Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu! ({name})")
        if name in OF_UNKNOWN_SIZE or any(isinstance(i, There) and i.dtype == torch.bool for i in index):
            wait(name)
    if func is aten._local_scalar_dense.default and there:
        wait("item")
    if (func is aten._to_copy.default and there and asked == "cpu") or (func is aten.copy_.default and there and args[0] is not there[0]):
        wait("copy")
    out = func(*inside[0], **dict(zip(kwargs, inside[1], strict=True)) | ({"device": "cpu"} if asked else {}))
    stays = isinstance(args[0], There) if func is aten.copy_.default else asked == DEVICE or (there and not asked)
    if not stays or func is aten._local_scalar_dense.default:
        return out
    queued.append(name)
    out = mapped(lambda x: There(x) if isinstance(x, torch.Tensor) else x, out)
    return return_and_correct_aliasing(func, args, kwargs, out)


class Operations(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return carried_out(func, args, kwargs or {})


class Calls(TorchFunctionMode):
    """What is not seen of single operations: generators, numbers of Python, and one fused kernel."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        place = next((x.device.type for x in args if isinstance(x, torch.Tensor)), torch.device(kwargs.get("device") or "cpu").type)
        draws_on = getattr(kwargs.get("generator"), "on", "cpu")
        if kwargs.get("generator") and draws_on != place:
            raise RuntimeError(f"Expected a {place!r} device type for generator but found {draws_on!r}")
        if func in (torch.tensor, torch.as_tensor) and kwargs.get("device"):
            return func(*args, **kwargs | {"device": None}).to(kwargs["device"])
        return attention(*args, **kwargs) if func is F.scaled_dot_product_attention else func(*args, **kwargs)


def attention(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, **options):
    added = None if attn_mask is None else torch.zeros_like(attn_mask, dtype=q.dtype).masked_fill(~attn_mask, -torch.inf)
    return aten._scaled_dot_product_attention_math(q, k, v, added, dropout_p, is_causal, None, **options)[0]


@contextlib.contextmanager
def fake_device():
    """Inside, tensors can be sent to DEVICE; `waits` and `queued` begin empty."""
    overwrites = torch.__future__.get_overwrite_module_params_on_conversion()
    torch.__future__.set_overwrite_module_params_on_conversion(True)  # a module's .to(DEVICE) makes new parameters
    waits.clear()
    queued.clear()
    try:
        with (
            mock.patch.object(torch, "Generator", Generator),
            mock.patch.object(torch, DEVICE, torch.cpu, create=True),  # where checkpointing looks for the device's random state
            mock.patch.object(torch, "autocast", lambda _, autocast=torch.autocast, **options: autocast("cpu", **options)),
            mock.patch.object(torch.cuda, "synchronize", lambda: wait("synchronize")),
            Operations(),
            Calls(),
        ):
            yield
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(overwrites)
