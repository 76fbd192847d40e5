"""What an error of Python or torch usually means in these exercises. Embedded in the feedback cell; used in grading, too."""


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
    known = (  # the words, and after them the parts of a message by which they are chosen
        ("Two tensors do not fit: compare their shapes axis by axis, from the right." + column, "must match the size", "shape mismatch"),
        ("The result is cut off from the log-probs it was made of, so no gradient can flow. Look for detach(), .item(), "
         ".tolist(), torch.tensor(...) around a tensor, or no_grad() on the way.",
         "does not require grad"),
        ("A tensor of whole numbers has no mean and no std. Convert it to floats first; the caller's tensor stays as it is.",
         "could not infer output dtype", "mean(): input dtype", "only support floating point"),
        ("Fractions are being written into a tensor of whole numbers. Make a new float tensor for them.",
         "can't be cast to the desired output type", "got Long for the destination", "got Int for the destination"),
        ("Two tensors of different number types meet where torch wants one type: convert one of them.",
         "dtypes match", "same dtype", "same scalar type", "expected scalar type"),
        ("Something on the CPU meets something on a GPU. Make new tensors where those are that came in: device=x.device.",
         "on the same device", "in the same device", "device type tensor to numpy", "not on the expected device"),
        ("A generator draws on the device for which it was made: torch.Generator(x.device).", "device type for generator"),
        ("The tensor has fewer dimensions here than the line takes for granted. (Indexing with a mask gives a flat tensor.)",
         "Dimension out of range"),
        ("A number grew beyond what a float can hold. What should be bounded before it is raised to a power?",
         "math range error", "Numerical result out of range"),
        ("An index points outside: n entries have the indices 0 to n - 1." + ids, "out of range", "out of bounds"),
        ("A tensor of an enormous size was asked for." + ids, "you tried to allocate", "Unable to allocate"),
        ("Numbers from 0 upwards were expected." + ids, "non-negative", "negative dimension"),
        ("The mask may come as truth values, integers or floats. Make truth values of it before you choose by it.",
         "supports boolean masks", "condition to be a boolean", "bitwise_and", "bitwise_or", "operator.invert"),
        ("Entries are chosen by whole numbers or truth values. A mask may come as floats: make truth values of it first.",
         "used as indices must be"),
        ("Python's if, and, or, min and max want one truth value, and a tensor has many. "
         "What does torch have that works element by element?",
         "Boolean value of Tensor"),
        ("An argument that carries a gradient is being written to. Make a new tensor instead.", "requires grad is being used in"),
        ("A value that the gradient still needs was overwritten. Make a new tensor instead.", "modified by an inplace operation"),
        ("The view does not fit the number of entries." + (" Groups may differ in size: no fixed table holds them." if ids else ""),
         "is invalid for input of size"),
        ("numpy carries no gradient. Stay with torch from the log-probs to the loss.", "numpy() on"),
        ("Something that takes a single number met a tensor of several. For math.exp, float or round torch has its own, "
         "element by element; or is a mean or a sum missing?",
         "nly one element tensors", "cannot be converted to Scalar"),
        ("The loss must be one number: is a mean or a sum missing?", "grad can be implicitly created only for scalar"),
        (unpacked if inside else "The function returns fewer things than the exercise asks for.", "not enough values to unpack"),
        (unpacked if inside else "The function returns more things than the exercise asks for.", "too many values to unpack"),
        (unpacked if inside else "The function returns one thing where the exercise asks for several: is a return missing, or half of it?",
         "cannot unpack"),
        ("In Python ^ is not a power. Two stars are: 2 ** 3.", "bitwise_xor", "for ^"),
        ("cross_entropy wants the classes on axis 1: which axis of yours is the vocabulary?", "Expected target size"),
        ("Something is None where a value is needed: a return is missing, or a function that may give None gave it.", "NoneType"),
        ("What is looked for does not stand in the list, and list.index stops there. What should happen then?", "is not in list"),
        ("float was given words. Is it sure, before the conversion, that they are a number?", "could not convert string to float"),
        ("gather wants an index with as many dimensions as what it picks from.", "Index tensor must have the same number of dimensions"),
        ("The index of gather is longer than what it picks from: do both speak of the same tokens?", "Size does not match at dimension"),
        ("One graph is walked back twice. What was computed once, before the loop, and should carry no gradient? "
         "What has to be computed anew?",
         "backward through the graph a second time"),
        ("A function of torch wants a tensor and got a plain number; for those there is math.",
         "must be Tensor, not float", "must be Tensor, not int"),
        (arguments, "positional arg", "keyword arg", "keyword-only arg", "values for arg", "combination of arg"),
    )
    # fmt: on
    by_kind = {
        "AssertionError": "",  # it has words of its own
        "NameError": "A name is used that is not defined here: run the cells above first, or look for a typing slip.",
        "KeyboardInterrupt": "You stopped it. If it seemed to run for ever: does every loop of yours come to an end?",
        "OutOfMemoryError": "The GPU is out of memory. Take fewer prompts or answers at a time; a restart frees what older cells hold.",
        "UnboundLocalError": "A name is used before it has a value: which line, or which branch of an if, should have set it?",
    }
    return by_kind.get(kind, next((words for words, *parts in known if any(part in message for part in parts)), ""))
