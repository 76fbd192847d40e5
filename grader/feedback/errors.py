"""What an error of Python or torch usually means in these exercises. Embedded in the feedback cell; used in grading, too."""

UNFIT = ("must match the size", "shape mismatch")  # parts of a message: two shapes do not fit

def meaning(kind, message, shapes=None, inside=False):
    """What an error of this type and message usually means in these exercises ("" where that is not known)."""
    ids = " Group ids are labels: they may be negative or huge. Give each label a small number of its own first."
    column = " A number per answer, [N], meets numbers per token, [N, T], as a column: [N, 1]."
    if shapes is not None:  # those of one exercise: what it has not is not spoken of
        ids, column = ids if "group_ids" in shapes else "", column if "[N, T]" in shapes.values() else ""
    unpacked = "A line of your function names another number of things on the left of = than come from the right. What comes?"
    # fmt: off
    arguments = ("A function is called with arguments that it does not take, or without one that it needs: help(...) tells which."
                 if inside else "The function takes other arguments than the exercise says: compare the line with def.")
    known = {  # parts of a message -> the words for it
        UNFIT:
            "Two tensors do not fit: compare their shapes axis by axis, from the right." + column,
        ("does not require grad",):
            ("The result is cut off from the log-probs it was made of, so no gradient can flow. Look for detach(), .item(), "
             ".tolist(), torch.tensor(...) around a tensor, or no_grad() on the way."),
        ("could not infer output dtype", "mean(): input dtype", "only support floating point"):
            "A tensor of whole numbers has no mean and no std. Convert it to floats first; the caller's tensor stays as it is.",
        ("can't be cast to the desired output type", "got Long for the destination", "got Int for the destination"):
            "Fractions are being written into a tensor of whole numbers. Make a new float tensor for them.",
        ("dtypes match", "same dtype", "same scalar type", "expected scalar type"):
            "Two tensors of different number types meet where torch wants one type: convert one of them.",
        ("on the same device", "in the same device", "device type tensor to numpy", "not on the expected device"):
            "Something on the CPU meets something on a GPU. Make new tensors where those are that came in: device=x.device.",
        ("device type for generator",):
            "A generator draws on the device for which it was made: torch.Generator(x.device).",
        ("Dimension out of range",):
            "The tensor has fewer dimensions here than the line takes for granted. (Indexing with a mask gives a flat tensor.)",
        ("math range error", "Numerical result out of range"):
            "A number grew beyond what a float can hold. What should be bounded before it is raised to a power?",
        ("out of range", "out of bounds"):
            "An index points outside: n entries have the indices 0 to n - 1." + ids,
        ("you tried to allocate", "Unable to allocate"):
            "A tensor of an enormous size was asked for." + ids,
        ("non-negative", "negative dimension"):
            "Numbers from 0 upwards were expected." + ids,
        ("supports boolean masks", "condition to be a boolean", "bitwise_and", "bitwise_or", "operator.invert"):
            "The mask may come as truth values, integers or floats. Make truth values of it before you choose by it.",
        ("used as indices must be",):
            "Entries are chosen by whole numbers or truth values. A mask may come as floats: make truth values of it first.",
        ("Boolean value of Tensor",):
            ("Python's if, and, or, min and max want one truth value, and a tensor has many. "
             "What does torch have that works element by element?"),
        ("requires grad is being used in",):
            "An argument that carries a gradient is being written to. Make a new tensor instead.",
        ("modified by an inplace operation",):
            "A value that the gradient still needs was overwritten. Make a new tensor instead.",
        ("is invalid for input of size",):
            "The view does not fit the number of entries." + (" Groups may differ in size: no fixed table holds them." if ids else ""),
        ("numpy() on",):
            "numpy carries no gradient. Stay with torch from the log-probs to the loss.",
        ("nly one element tensors", "cannot be converted to Scalar"):
            ("Something that takes a single number met a tensor of several. For math.exp, float or round torch has its own, "
             "element by element; or is a mean or a sum missing?"),
        ("grad can be implicitly created only for scalar",):
            "The loss must be one number: is a mean or a sum missing?",
        ("not enough values to unpack",):
            unpacked if inside else "The function returns fewer things than the exercise asks for.",
        ("too many values to unpack",):
            unpacked if inside else "The function returns more things than the exercise asks for.",
        ("cannot unpack",):
            unpacked if inside
            else "The function returns one thing where the exercise asks for several: is a return missing, or half of it?",
        ("bitwise_xor", "for ^"):
            "In Python ^ is not a power. Two stars are: 2 ** 3.",
        ("Expected target size",):
            "cross_entropy wants the classes on axis 1: which axis of yours is the vocabulary?",
        ("NoneType",):
            "Something is None where a value is needed: a return is missing, or a function that may give None gave it.",
        ("is not in list",):
            "What is looked for does not stand in the list, and list.index stops there. What should happen then?",
        ("could not convert string to float",):
            "float was given words. Is it sure, before the conversion, that they are a number?",
        ("Index tensor must have the same number of dimensions",):
            "gather wants an index with as many dimensions as what it picks from.",
        ("Size does not match at dimension",):
            "The index of gather is longer than what it picks from: do both speak of the same tokens?",
        ("backward through the graph a second time",):
            ("One graph is walked back twice. What was computed once, before the loop, and should carry no gradient? "
             "What has to be computed anew?"),
        ("must be Tensor, not float", "must be Tensor, not int"):
            "A function of torch wants a tensor and got a plain number; for those there is math.",
        ("positional arg", "keyword arg", "keyword-only arg", "values for arg", "combination of arg"):
            arguments,
    }
    # fmt: on
    by_kind = {
        "AssertionError": "",  # it has words of its own
        "NameError": "A name is used that is not defined here: run the cells above first, or look for a typing slip.",
        "KeyboardInterrupt": "You stopped it. If it seemed to run for ever: does every loop of yours come to an end?",
        "OutOfMemoryError": "The GPU is out of memory. Take fewer prompts or answers at a time; a restart frees what older cells hold.",
        "UnboundLocalError": "A name is used before it has a value: which line, or which branch of an if, should have set it?",
    }
    return by_kind.get(kind, next((words for parts, words in known.items() if any(part in message for part in parts)), ""))
