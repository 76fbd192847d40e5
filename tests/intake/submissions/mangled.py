"""What becomes of a notebook on its way: each builder takes a solved notebook file (a dict, to be changed freely) and
returns it mangled (a dict or bytes), and is named for what happened to it.

``mended(note)``: it is graded like its clean twin, and a note says so ("" where there is nothing to say).
``refused(reason)``: nothing can be graded, for a reason.
"""

import io
import json
import random
import re
import zipfile
import zlib

MENDED, REFUSED = {}, {}


def mended(note, *, other_source=False, filename="01_toy.ipynb"):
    """other_source: the answers' text differs from the twin's, what they do does not."""
    return lambda build: MENDED.setdefault(build.__name__, (build, note, other_source, filename)) and build


def refused(reason, *, filename="01_toy.ipynb"):
    return lambda build: REFUSED.setdefault(build.__name__, (build, reason, filename)) and build


def find(file, name):
    return next(cell for cell in file["cells"] if cell["metadata"]["grader"]["name"] == name)


def source(cell):
    return "".join(cell["source"])


def code(text, **metadata):
    return {"cell_type": "code", "source": text, "metadata": metadata, "outputs": [], "execution_count": None}


def text(words, **metadata):
    return {"cell_type": "markdown", "source": words, "metadata": metadata}


def insert_after(file, name, *cells):
    at = file["cells"].index(find(file, name)) + 1
    file["cells"][at:at] = cells
    return file


def edit(file, name, old, new):
    cell = find(file, name)
    assert old in source(cell)
    cell["source"] = source(cell).replace(old, new)
    return file


def without_metadata(file):
    for cell in file["cells"]:
        cell["metadata"] = {}
        cell.pop("id", None)
    file["metadata"] = {}
    return file


def as_bytes(file):
    return file if isinstance(file, bytes) else json.dumps(file, ensure_ascii=False, indent=1).encode("utf-8", "surrogatepass")


# What programs do to the file


@mended("")
def through_colab(file):
    """Ids moved into the metadata, Colab's own keys everywhere, sources as lists, form views."""
    file["nbformat_minor"] = 0
    file["metadata"]["colab"] = {"provenance": [], "collapsed_sections": ["a"], "toc_visible": True}
    for number, cell in enumerate(file["cells"]):
        cell["metadata"] |= {
            "id": cell.pop("id"),
            "colab": {"base_uri": "https://localhost:8080/"},
            "cellView": "form",
            "outputId": f"{number:x}",
        }
    return file


@mended("")
def through_colab_which_dropped_nbgrader_keys(file):
    for cell in file["cells"]:
        cell["metadata"] = {"id": cell.pop("id")}
    file["metadata"] = {"colab": {"provenance": []}}
    return file


@mended("")
def through_vs_code(file):
    for cell in file["cells"]:
        cell["metadata"]["vscode"] = {"languageId": "python"}
        cell["source"] = source(cell)
    file["metadata"]["interactiveshell"] = {"hash": "31f2aee4e71d21fbe5cf8b01ff0e069b9275f58929596ceb00d14d90e3e16cd6"}
    return file


@mended("")
def through_kaggle(file):
    file["nbformat_minor"] = 4
    for cell in file["cells"]:
        cell.pop("id")
        cell["metadata"] |= {"_uuid": "8f2839f25d086af736a60e9eeb907d3b93b1e0e5", "_cell_guid": "b1076dfc-b9ad-4769-8c92", "trusted": True}
    return file


@mended("")
def through_modelscope_with_local_paths(file):
    file["metadata"]["kernelspec"] = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3-ms"}
    file["nbformat_minor"] = 2
    for cell in file["cells"]:
        cell.pop("id")
        cell["metadata"]["ExecutionIndicator"] = {"show": True}
    return file


@mended("")
def through_kaggle_with_its_own_cells(file):
    """As its editor writes it today: settings of the machine, times, folded inputs, its greeting before and an empty cell behind."""
    file["nbformat_minor"] = 4
    file["metadata"]["kaggle"] = {"accelerator": "none", "dataSources": [], "isGpuEnabled": False, "isInternetEnabled": True}
    for cell in file["cells"]:
        cell.pop("id")
        cell["metadata"] |= {"trusted": True, "_kg_hide-input": True, "execution": {"iopub.status.busy": "2026-11-30T08:00:00.000000Z"}}
    hello = "import os\nfor folder, _, names in os.walk('/kaggle/input'):\n    print(folder, names)"
    file["cells"] = [code(hello, _uuid="8f2839f2", trusted=True), *file["cells"], code("", trusted=True)]
    return file


@mended("")
def through_vs_code_before_cells_had_ids(file):
    file["nbformat_minor"] = 2
    file["metadata"]["orig_nbformat"] = 4
    file["metadata"]["kernelspec"] = {"display_name": ".venv (3.12.1)", "language": "python", "name": "python3"}
    for cell in file["cells"]:
        cell.pop("id")
    return file


@mended("")
def through_vs_code_with_a_cell_of_another_language(file):
    return insert_after(file, "setup", code("pip list | grep torch", vscode={"languageId": "shellscript"}))


@mended("", filename="01_toy-checkpoint.ipynb")
def through_modelscope_with_times_from_its_checkpoint(file):
    file["metadata"]["kernelspec"] = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
    for cell in file["cells"]:
        cell["metadata"] |= {"ExecutionIndicator": {"show": False}, "tags": []}
        cell["metadata"]["execution"] = {"iopub.execute_input": "2026-11-30T08:00:00Z", "shell.execute_reply": "2026-11-30T08:00:01Z"}
    return file


@mended("")
def through_dataspell(file):
    file["nbformat_minor"] = 1
    file["metadata"]["pycharm"] = {"stem_cell": {"cell_type": "raw", "source": [], "metadata": {"collapsed": False}}}
    for cell in file["cells"]:
        cell.pop("id")
        cell["metadata"] |= {"collapsed": False, "pycharm": {"name": "#%%\n", "is_executing": False}}
        if cell["cell_type"] == "markdown":
            cell["metadata"]["pycharm"]["name"] = "#%% md\n"
    return file


@mended("recognised by what they define")
def through_datalore_which_keeps_its_own_metadata_alone(file):
    file["nbformat_minor"] = 4
    file["metadata"] = {"datalore": {"computation_mode": "JUPYTER", "package_manager": "pip", "version": 4}}
    for cell in file["cells"]:
        cell.pop("id")
        node = f"{random.Random(source(cell)).getrandbits(64):x}"
        cell["metadata"] = {"datalore": {"node_id": node, "type": "CODE", "report_properties": {}}}
    return file


@mended("")
def through_deepnote(file):
    """Ids and types of its own, in the cells too, and its advertisement behind the last one."""
    file["metadata"] |= {"deepnote": {}, "deepnote_notebook_id": "f2b0", "deepnote_execution_queue": []}
    for number, cell in enumerate(file["cells"]):
        cell.pop("id")
        cell |= {"block_group": f"{number:032x}"}
        cell["metadata"] |= {"cell_id": f"{number:032x}", "deepnote_cell_type": cell["cell_type"], "execution_millis": 3}
    link = "<a style='text-decoration:none' href='https://deepnote.com'>Created in <span>Deepnote</span></a>"
    file["cells"].append(text(link, created_in_deepnote_cell=True, deepnote_cell_type="markdown"))
    return file


@mended("", other_source=True)
def through_githubs_text_editor(file):
    """Edited as text: a tab as it is inside a string, one line for all, blanks behind the end."""
    data = json.dumps(file, ensure_ascii=False).encode()
    assert b"# added to" in data
    return data.replace(b"# added to", b"#\tadded to") + b" \n\n"


@mended("")
def ids_kept_in_a_format_without_them(file):
    file["nbformat_minor"] = 4
    return file


@mended("")
def outputs_of_which_some_are_trusted(file):
    file["metadata"]["signature"] = "sha256:0"
    for number, cell in enumerate(file["cells"]):
        cell["metadata"] |= {"trusted": number % 2 == 0, "scrolled": True, "editable": True, "slideshow": {"slide_type": ""}}
    find(file, "doubles")["outputs"] = [
        {"output_type": "display_data", "data": {"text/html": ["<script>alert(1)</script>"]}, "metadata": {"isolated": True}},
        {"output_type": "error", "ename": "KeyboardInterrupt", "evalue": "", "traceback": ["\u001b[31m"]},
    ]
    return file


@mended("recognised by what they define")
def all_metadata_stripped(file):
    return without_metadata(file)


@mended("recognised by what they define")
def all_metadata_stripped_and_given_code_edited(file):
    edit(file, "clipping", "return max", "print(x)\n    return max")
    edit(file, "doubles", "range(5)", "range(7)")
    return without_metadata(file)


@mended("recognised by what they define", filename="hw2.ipynb")
def pasted_into_a_new_notebook_under_another_name(file):
    cells = [code(source(c)) for c in file["cells"] if c["cell_type"] == "code"]
    words = [text("**In your own words:** why is the mean of the centred numbers zero?"), text(source(find(file, "why_zero")))]
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [*cells, *words]}


@mended("", filename="02_more_toys.ipynb")
def cell_ids_made_anew(file):
    for cell in file["cells"]:
        cell["id"] = f"{random.Random(source(cell)).getrandbits(32):08x}"
    return file


@mended("before 2015")
def nbformat_3(file):
    cells = []
    for cell in file["cells"]:
        if cell["cell_type"] == "code":
            cells.append({"cell_type": "code", "input": cell["source"], "metadata": cell["metadata"], "language": "python", "outputs": []})
        elif source(cell).startswith("# "):
            cells.append({"cell_type": "heading", "level": 1, "source": source(cell)[2:], "metadata": cell["metadata"]})
        else:
            cells.append(cell)
    return {"nbformat": 3, "nbformat_minor": 0, "metadata": {"name": ""}, "worksheets": [{"cells": cells, "metadata": {}}]}


@mended("")
def minor_version_0_and_invalid_by_the_schema(file):
    file["nbformat_minor"] = 0
    for cell in file["cells"]:
        cell.pop("outputs", None)
        cell.pop("execution_count", None)
        cell["stray"] = [None]
    return file


@mended("")
def without_nbformat_and_language(file):
    return {"cells": file["cells"]}


@mended("")
def ids_doubled(file):
    for cell in file["cells"]:
        cell["id"] = "same"
    return file


@mended("")
def metadata_of_the_wrong_types(file):
    file["metadata"] = []
    clipping, show = find(file, "clipping"), find(file, "a_clip_by_hand")
    clipping["metadata"] = None
    show["metadata"] = {"grader": "show", "nbgrader": 3, "tags": "x"}
    return file


@mended("1 damaged cells")
def a_cell_that_is_no_cell(file):
    file["cells"].insert(3, "lost")
    return file


@mended("")
def sources_as_lines_without_line_ends(file):
    for cell in file["cells"]:
        cell["source"] = source(cell).split("\n")
    return file


@mended("")
def widgets_without_their_state(file):
    file["metadata"]["widgets"] = {"application/vnd.jupyter.widget-state+json": {}}
    find(file, "doubles")["outputs"] = [
        {"output_type": "display_data", "data": {"application/vnd.jupyter.widget-view+json": {"model_id": "f00"}}}
    ]
    return file


@mended("")
def outputs_of_50_mb(file):
    find(file, "doubles")["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "loss 0.1234, reward 0.5\n" * 2_000_000}]
    return file


@mended("")
def attachments(file):
    cell = next(c for c in file["cells"] if c["cell_type"] == "markdown")
    cell["attachments"] = {"image.png": {"image/png": "iVBORw0KGgo=" * 100}}
    return file


@mended("byte order mark")
def byte_order_mark(file):
    return b"\xef\xbb\xbf" + as_bytes(file)


@mended("")
def windows_line_ends_in_the_file(file):
    return as_bytes(file).replace(b"\n", b"\r\n")


@mended("Windows line ends")
def windows_line_ends_in_the_cells(file):
    for cell in file["cells"]:
        cell["source"] = source(cell).replace("\n", "\r\n")
    return file


@mended("read as UTF-16")
def utf_16(file):
    return as_bytes(file).decode().encode("utf-16")


@mended("read as UTF-16")
def utf_16_without_mark(file):
    return as_bytes(file).decode().encode("utf-16-le")


@mended("read as GB18030")
def saved_in_a_chinese_windows_editor(file):
    return as_bytes(file).decode().encode("gb18030")


@mended("read as LATIN-1", other_source=True)
def saved_in_a_western_windows_editor(file):
    find(file, "doubled")["source"] = source(find(file, "doubled")).replace("# added", "# größer, \xff")
    find(file, "why_zero")["source"] = "Because they balance: \xff."
    return as_bytes(file).decode().encode("latin-1", "replace")


@mended("behind the end")
def a_mail_footer_behind_the_notebook(file):
    return as_bytes(file) + b"\n-- \nSent from my phone\n"


@mended("invisible characters")
def code_pasted_from_a_web_page(file):
    cell = find(file, "doubled")
    cell["source"] = source(cell).replace("    return", "\u00a0\u00a0\u00a0\u00a0return")
    return file


@mended("")
def half_a_character_in_an_output_and_a_comment(file):
    insert_after(file, "doubled", code("# \ud83d\nprint(1)"))
    return json.dumps(file).encode()


# What learners do to cells


@mended("doubled is written in several cells")
def an_answer_cell_copied(file):
    return insert_after(file, "doubled", json.loads(json.dumps(find(file, "doubled"))))


@mended("doubled is written in several cells")
def two_solutions_for_one_exercise(file):
    cell = json.loads(json.dumps(find(file, "doubled")))
    find(file, "doubled")["source"] = "def doubled(x):\n    return 3 * x"
    return insert_after(file, "twice", cell)


@mended("doubled is written in several cells")
def a_broken_second_attempt(file):
    return insert_after(file, "doubled", code("def doubled(x)\n    return 2x"))


@mended("centred is written in several cells")
def an_empty_copy_behind_the_answer(file):
    todo = "    # YOUR CODE HERE\n    raise NotImplementedError()\n"
    stub = f"def centred(numbers):\n{todo}    # now take it away\n{todo}"
    cell = json.loads(json.dumps(find(file, "centred"))) | {"source": stub, "id": "copy"}
    return insert_after(file, "zero_mean", cell)


@mended("doubled is written in several cells")
def an_answer_in_a_new_cell_and_the_stub_left(file):
    answer = code(source(find(file, "doubled")))
    find(file, "doubled")["source"] = 'def doubled(x):\n    """Twice."""\n    # YOUR CODE HERE\n    raise NotImplementedError()'
    return insert_after(file, "doubles", answer)


@mended("recognised by what they define")
def an_answer_in_a_new_cell_and_the_old_deleted(file):
    answer = code(source(find(file, "centred")))
    file["cells"].remove(find(file, "centred"))
    return insert_after(file, "why_zero", answer)


@mended("recognised by what they define", other_source=True)
def an_answer_moved_behind_what_its_definition_needs(file):
    moved = code(source(find(file, "centred")).replace("(numbers)", "(numbers: Sequence = NONE)", 1))
    file["cells"].remove(find(file, "centred"))
    return insert_after(file, "why_zero", code("from collections.abc import Sequence\nNONE = (0,)"), moved)


@mended("doubled was found in cell")
def answers_written_into_each_others_cells(file):
    one, two = find(file, "doubled"), find(file, "centred")
    one["source"], two["source"] = two["source"], one["source"]
    return file


@mended("")
def answer_cells_moved_to_the_end(file):
    for name in ("doubled", "centred"):
        cell = find(file, name)
        file["cells"].remove(cell)
        file["cells"].append(cell)
    return file


@mended("", other_source=True)
def an_answer_cell_split_in_two(file):
    answer = source(find(file, "doubled")).replace("x + x", "together(x, x)")
    find(file, "doubled")["source"] = "def together(a, b):\n    return a + b"
    return insert_after(file, "doubled", code(answer))


@mended("", other_source=True)
def an_answer_cell_split_in_two_with_its_metadata_copied(file):
    answer = source(find(file, "doubled")).replace("x + x", "together(x, x)")
    metadata = find(file, "doubled")["metadata"]
    find(file, "doubled")["source"] = "def together(a, b):\n    return a + b"
    return insert_after(file, "doubled", code(answer, **metadata))


@mended("", other_source=True)
def two_answer_cells_merged(file):
    two = find(file, "centred")
    file["cells"].remove(two)
    find(file, "doubled")["source"] = source(find(file, "doubled")) + "\n\n" + source(two)
    return file


@mended("", other_source=True)
def everything_in_one_cell(file):
    cells = [source(c) for c in file["cells"] if c["cell_type"] == "code" and c["metadata"]["grader"]["kind"] in ("given", "solution")]
    words = [c for c in file["cells"] if c["cell_type"] == "markdown"]
    return file | {"cells": [code("\n\n".join(cells)), *words]}


@mended("renamed twice_the_number", other_source=True)
def a_function_renamed(file):
    return edit(file, "doubled", "def doubled", "def twice_the_number")


@mended("", other_source=True)
def an_answer_as_lambda(file):
    find(file, "doubled")["source"] = "doubled = lambda x: x + x"
    return file


@mended("was no code cell")
def an_answer_cell_turned_into_text(file):
    cell = find(file, "doubled")
    cell["cell_type"] = "markdown"
    return file


@mended("")
def a_written_answer_turned_into_code(file):
    find(file, "why_zero")["cell_type"] = "code"
    return file


@mended("")
def a_written_answer_in_the_cell_below(file):
    words = source(find(file, "why_zero"))
    find(file, "why_zero")["source"] = "YOUR ANSWER HERE"
    return insert_after(file, "why_zero", text(words))


@mended("Given cells were changed (1)")
def a_given_cell_edited(file):
    return edit(file, "clipping", "max(low, min(high, x))", "0")


@mended("Given cells are missing (3)")
def given_cells_deleted(file):
    file["cells"] = [c for c in file["cells"] if c["metadata"]["grader"]["kind"] not in ("given", "scenario")]
    return file


@mended("What you added to the course's cell setup was kept", other_source=True)
def an_import_and_a_helper_added_to_a_given_cell(file):
    edit(file, "setup", "import math", "import math\nimport operator as op\n\ndef plus(a, b):\n    return op.add(a, b)\n")
    return edit(file, "doubled", "x + x", "plus(x, x)")


@mended("What you added to the course's cell twice was kept", other_source=True)
def an_answer_typed_into_a_test_cell(file):
    answer = source(find(file, "doubled"))
    find(file, "doubled")["source"] = 'def doubled(x):\n    """Twice."""\n    # YOUR CODE HERE\n    raise NotImplementedError()'
    return edit(file, "twice", "got = ", answer + "\n\ngot = ")


@mended("Test cells were changed (1)")
def a_test_edited(file):
    return edit(file, "twice", "got == 6", "True")


@mended("Test cells are missing (2)")
def tests_deleted(file):
    file["cells"] = [c for c in file["cells"] if c["metadata"]["grader"]["kind"] != "check"]
    return file


@mended("")
def a_syntax_error_in_a_cell_of_ones_own(file):
    return insert_after(file, "setup", code("for x in range(3) print(x)"))


@mended("")
def an_import_that_is_not_there(file):
    return insert_after(file, "setup", code("import no_such_library_anywhere"))


@mended("")
def pip_and_shell_lines(file):
    return insert_after(
        file, "setup", code("%pip install -q torch\n!nvidia-smi\n%matplotlib inline\nfiles = !ls"), code("%%bash\necho hello; def x")
    )


@mended("", other_source=True)
def a_magic_in_an_answer_cell(file):
    find(file, "doubled")["source"] = "%matplotlib inline\n" + source(find(file, "doubled"))
    return file


@mended("")
def a_drive_mounted(file):
    return insert_after(file, "setup", code("from google.colab import drive\ndrive.mount('/content/drive')"))


@mended("")
def async_cells(file):
    return insert_after(file, "setup", code("import asyncio\nawait asyncio.sleep(0)"))


@mended("puts a value in the place of the function doubled")
def a_function_overwritten_by_its_result(file):
    return insert_after(file, "twice", code("import os\ndoubled = doubled(4)\nprint(doubled)"))


@mended("")
def the_feedback_cell_deleted(file):
    file["cells"].remove(find(file, "feedback"))
    return file


@mended("")
def cells_emptied_and_blank_ones_added(file):
    find(file, "doubles")["source"] = ""
    find(file, "a_clip_by_hand")["source"] = []
    return insert_after(file, "doubled", code(""), code("  \n"), text(""))


# What is no notebook


@refused("the file is empty")
def an_empty_file(file):
    return b""


@refused("the file is empty")
def only_blanks(file):
    return b" \n\n\0\0"


@refused("breaks off")
def truncated(file):
    return as_bytes(file)[: len(as_bytes(file)) // 2]


@refused("breaks off")
def truncated_between_cells(file):
    data = as_bytes(file)
    return data[: data.index(b"},\n", len(data) // 2) + 2]


@refused("a PDF")
def a_pdf(file):
    return b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj"


@refused("a zip archive")
def a_zip_named_as_a_notebook(file):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("01_toy.ipynb", as_bytes(file))
    return buffer.getvalue()


@refused("a gzip archive")
def a_gzip(file):
    return b"\x1f\x8b\x08\x00" + zlib.compress(as_bytes(file))


@refused("a web page")
def a_web_page(file):
    return b"\n<!DOCTYPE html><html><head><title>Sign in - Google Accounts</title>"


@refused("a picture")
def a_screenshot(file):
    return b"\x89PNG\r\n\x1a\n" + bytes(100)


@refused("Python code")
def exported_as_python(file):
    return "\n\n".join(source(c) for c in file["cells"] if c["cell_type"] == "code").encode()


@refused("not JSON")
def words(file):
    return b"Dear teacher, my dog ate it."


@refused("merge conflict")
def a_merge_conflict(file):
    return re.sub(rb'(\n *"def doubled.*)', rb"\n<<<<<<< HEAD\1\n=======\1\n>>>>>>> main", as_bytes(file))


@refused("not a notebook")
def a_google_drive_shortcut(file):
    return b'{"url": "https://drive.google.com/open?id=1", "doc_id": "1"}'


@refused("not a notebook")
def a_list(file):
    return json.dumps(file["cells"]).encode()


@refused("nested deeper")
def nested_without_end(file):
    return b'{"cells": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"


@refused("a number too long")
def a_number_without_end(file):
    return b'{"cells": [' + b"1" * 10_000 + b"]}"


@refused("too many parts")
def a_bomb_of_parts(file):
    return b'{"cells": [' + b"{}," * 9_000_000 + b"{}]}"


@refused("larger than")
def larger_than_anything(file):
    return b" " * 100_000_001


@refused("of text")
def data_pasted_into_a_cell(file):
    return insert_after(file, "setup", code("data = '" + "x" * 1_000_000 + "'"))


@refused("more than 5000 cells")
def ten_thousand_cells(file):
    return file | {"cells": file["cells"] + [code("1")] * 10_000}


@refused("none of the exercises")
def another_courses_notebook(file):
    return {
        "cells": [code("def attention(q, k, v):\n    return v"), text("# 1. Toys, or not")],
        "metadata": {},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


@refused("none of the exercises")
def a_notebook_without_cells(file):
    return file | {"cells": []}
