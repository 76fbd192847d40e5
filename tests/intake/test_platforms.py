"""What learning platforms give is told apart by student and notebook; what cannot be taken is named, and nothing is unpacked to disk."""

import io
import os
import time
import zipfile
import zlib

import pytest

from grader.intake import archives, platforms
from grader.intake.platforms import CollectedFile, Owner, Refusal, clean_name, gather, placed

JUNE, JULY = (2026, 6, 1, 12, 0, 0), (2026, 7, 1, 12, 0, 0)


def zipped(files, when=JUNE):
    """A zip of {name: content}, or of (name, content, date) triples."""
    triples = [(n, d, when) for n, d in files.items()] if isinstance(files, dict) else files
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data, date in triples:
            archive.writestr(zipfile.ZipInfo(name, date), data, zipfile.ZIP_DEFLATED, compresslevel=1)
    return buffer.getvalue()


def put(folder, files):
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def taken(*paths):
    """{(student, filename): content} of the hand-ins, and the refusals."""
    items = list(gather(paths))
    found = {(i.student, i.filename): i.data for i in items if isinstance(i, CollectedFile)}
    assert len(found) == sum(isinstance(i, CollectedFile) for i in items)
    refused = [i for i in items if isinstance(i, Refusal)]
    assert all(r.reason.endswith(".") and "\n" not in r.reason for r in refused)
    return found, refused


@pytest.mark.parametrize(
    ("name", "cleaned"),
    [
        ("02_grpo_loss.ipynb", "02_grpo_loss.ipynb"),
        ("Copy of 02_grpo_loss (1).ipynb", "02_grpo_loss.ipynb"),
        ("Copy of Copy of 02_grpo_loss.ipynb", "02_grpo_loss.ipynb"),
        ("02_grpo_loss - Copy.ipynb", "02_grpo_loss.ipynb"),
        ("02_grpo_loss-2.ipynb", "02_grpo_loss.ipynb"),
        ("02_grpo_loss.ipynb.txt", "02_grpo_loss.ipynb"),
        ("02_grpo_loss.json", "02_grpo_loss.ipynb"),
        ("02_grpo_loss的副本.ipynb", "02_grpo_loss.ipynb"),
        ("02_grpo_loss 副本.ipynb", "02_grpo_loss.ipynb"),
        ("ada_02_grpo_loss.ipynb", "02_grpo_loss.ipynb"),
        ("hw-2.ipynb", "hw-2.ipynb"),
        ("(1).ipynb", "(1).ipynb"),
    ],
)
def test_a_file_name_loses_what_copying_added(name, cleaned):
    assert clean_name(name) == cleaned


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"Ada Lovelace_12345_assignsubmission_file_/my hw.ipynb": b"1"}, ("Ada_Lovelace", "my hw.ipynb")),
        ({"Ada_12345_assignsubmission_file/sub/02_grpo_loss.ipynb": b"1"}, ("Ada", "02_grpo_loss.ipynb")),
        ({"lovelaceada_123_456_02_grpo_loss.ipynb": b"1"}, ("lovelaceada_123", "02_grpo_loss.ipynb")),
        ({"lovelaceada_LATE_123_456_Copy of 02_grpo_loss-1.ipynb": b"1"}, ("lovelaceada_123", "02_grpo_loss.ipynb")),
        ({"ada/02_grpo_loss.ipynb": b"1", "bob/x.png": b""}, ("ada", "02_grpo_loss.ipynb")),
        ({"class/ada/02_grpo_loss/02_grpo_loss.ipynb": b"1", "class/bob/x.png": b""}, ("ada", "02_grpo_loss.ipynb")),
        ({"ada_02_grpo_loss.ipynb": b"1"}, ("ada", "02_grpo_loss.ipynb")),
        ({"ada.ipynb": b"1"}, ("ada", "ada.ipynb")),
        ({"02_grpo_loss.ipynb": b"1"}, ("here", "02_grpo_loss.ipynb")),
        ({"homework/02_grpo_loss.ipynb": b"1"}, ("here", "02_grpo_loss.ipynb")),
        ({"王小明_7_assignsubmission_file_/02_grpo_loss.ipynb": b"1"}, ("王小明", "02_grpo_loss.ipynb")),
    ],
)
def test_whose_it_is(tmp_path, files, expected):
    in_zip, _ = taken(put(tmp_path, {"here.zip": zipped(files)}) / "here.zip")
    assert in_zip == {expected: b"1"}
    if not any(name.startswith(("class/", "homework/")) for name in files):  # in a folder, each folder is a student
        assert taken(put(tmp_path / "here", files))[0] == {expected: b"1"}


def test_a_file_by_itself_is_of_the_folder_it_lies_in(tmp_path):
    put(tmp_path / "ada", {"02_grpo_loss (3).ipynb": b"1"})
    assert taken(tmp_path / "ada" / "02_grpo_loss (3).ipynb")[0] == {("ada", "02_grpo_loss.ipynb"): b"1"}


def test_of_two_versions_the_newest_is_taken_and_said_so(tmp_path):
    files = [("a/02_grpo_loss (1).ipynb", b"new", JULY), ("a/02_grpo_loss.ipynb", b"old", JUNE), ("b/02_grpo_loss.ipynb", b"b", JUNE)]
    put(tmp_path, {"class.zip": zipped(files)})
    one, two = gather([tmp_path / "class.zip"])
    assert (one.student, one.filename, one.data) == ("a", "02_grpo_loss.ipynb", b"new")
    assert one.notes == (
        "There are 2 versions of 02_grpo_loss.ipynb; the newest, class.zip/a/02_grpo_loss (1).ipynb, was taken, "
        "not class.zip/a/02_grpo_loss.ipynb.",
    )
    assert (two.data, two.notes) == (b"b", ())
    folder = put(tmp_path / "f", {"a/02_grpo_loss.ipynb": b"new", "a/02_grpo_loss-1.ipynb": b"old"})
    os.utime(folder / "a/02_grpo_loss-1.ipynb", (1, 1))
    assert taken(folder)[0] == {("a", "02_grpo_loss.ipynb"): b"new"}


def test_a_students_zip_in_a_class_is_looked_into(tmp_path):
    inner = zipped(
        {"deep/er/02_grpo_loss.ipynb": b"1", "__MACOSX/._02_grpo_loss.ipynb": b"x", ".ipynb_checkpoints/02_grpo_loss.ipynb": b"x"}
    )
    put(tmp_path, {"class.zip": zipped({"Ada L_1_assignsubmission_file_/hw.zip": inner, "Bo_2_assignsubmission_file_/a.ipynb": b"2"})})
    assert taken(tmp_path / "class.zip") == ({("Ada_L", "02_grpo_loss.ipynb"): b"1", ("Bo", "a.ipynb"): b"2"}, [])
    put(tmp_path / "folder", {"ada.zip": zipped({"homework/02_grpo_loss.ipynb": b"1"})})
    assert taken(tmp_path / "folder") == ({("ada", "02_grpo_loss.ipynb"): b"1"}, [])


def test_a_zip_called_notebook_is_looked_into(tmp_path):
    put(tmp_path, {"ada/02_grpo_loss.ipynb": zipped({"02_grpo_loss.ipynb": b"1"})})
    assert taken(tmp_path) == ({("ada", "02_grpo_loss.ipynb"): b"1"}, [])


def test_nobody_hands_in_for_somebody_else(tmp_path):
    inner = zipped({"Bob_2_assignsubmission_file_/02_grpo_loss.ipynb": b"x", "bob_3_4_02_grpo_loss.ipynb": b"x", "bob/03_kl.ipynb": b"3"})
    put(tmp_path, {"ada.zip": inner, "bob.ipynb": b"bob's"})
    found, refused = taken(tmp_path)
    assert found == {("bob", "bob.ipynb"): b"bob's", ("ada", "03_kl.ipynb"): b"3"}
    assert [r.student for r in refused] == ["ada", "ada"]
    assert all("another's hand-in" in r.reason for r in refused)


def test_namesakes_stay_two_people(tmp_path):
    put(tmp_path, {"c.zip": zipped({"Li Wei_1_assignsubmission_file_/a.ipynb": b"1", "Li Wei_2_assignsubmission_file_/a.ipynb": b"2"})})
    assert taken(tmp_path / "c.zip")[0] == {("Li_Wei_1", "a.ipynb"): b"1", ("Li_Wei_2", "a.ipynb"): b"2"}
    put(tmp_path / "f", {"a b/a.ipynb": b"1", "a_b/a.ipynb": b"2"})
    assert len({student for student, _ in taken(tmp_path / "f")[0]}) == 2


@pytest.mark.parametrize(
    "name", ["../../etc/x.ipynb", "/etc/x.ipynb", "..\\..\\x.ipynb", "C:\\Windows\\x.ipynb", "a/../../../x.ipynb", "./x.ipynb"]
)
def test_path_tricks_lead_nowhere(tmp_path, name):
    put(tmp_path / "in", {"eve.zip": zipped({name: b"1"})})
    assert taken(tmp_path / "in") == ({("eve", "x.ipynb"): b"1"}, [])
    found, _ = taken(tmp_path / "in" / "eve.zip")
    for student, filename in found:
        assert not {"/", "\\", ".."} & {student, filename, *student, *filename}
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["eve.zip", "in"]


def test_student_ids_are_safe_as_names_of_folders(tmp_path):
    names = ["..", "a/b", "-rf", "x" * 300, "a\nb", "$(reboot)", "~", " ", "é", "e\u0301"]
    owners = {Owner(name) for name in names}
    ids = platforms._ids(owners)
    for id in ids.values():
        assert id and not id.startswith((".", "-")) and len(id) < 100 and all(c.isalnum() or c in "._@+-" for c in id)


def bomb(zeros):
    return zipped({"02_grpo_loss.ipynb": bytes(zeros)})


def nested(depth):
    data = zipped({"02_grpo_loss.ipynb": b"1"})
    for _ in range(depth):
        data = zipped({"in.zip": data})
    return data


def locked():
    data = bytearray(zipped({"02_grpo_loss.ipynb": b"1"}))
    data[6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    return bytes(data)


def linked():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        info = zipfile.ZipInfo("02_grpo_loss.ipynb")
        info.external_attr = 0o120777 << 16
        archive.writestr(info, "/etc/passwd")
    return buffer.getvalue()


def wrong_checksum():
    return zipped({"02_grpo_loss.ipynb": b"{}"}).replace(zlib.crc32(b"{}").to_bytes(4, "little"), b"\0\0\0\1")


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("ada.zip", bomb(101_000_000), "larger than 100 MB"),
        ("ada.zip", zipped({f"{i:02}_x.ipynb": bytes(60_000_000) for i in range(4)}), "as a zip bomb does"),
        ("ada.zip", nested(5), "is a zip within 3 others"),
        ("ada.zip", locked(), "locked with a password"),
        ("ada.zip", linked(), "is a link"),
        ("ada.zip", wrong_checksum(), "Bad CRC"),
        ("ada.zip", nested(0)[:60], "File is not a zip file"),
        ("ada.zip", zipped({}), "holds no file"),
        ("ada.zip", b"no zip at all", "is no zip"),
        ("ada/report.pdf", b"%PDF", "is no notebook"),
        ("ada/hw.rar", b"Rar!", "is no notebook"),
        ("ada/hw.docx", zipped({"word/document.xml": b""}), "is no notebook"),
    ],
)
def test_what_cannot_be_taken_is_refused_and_the_others_are_taken(tmp_path, name, data, reason):
    put(tmp_path, {name: data, "bob/02_grpo_loss.ipynb": b"2"})
    found, refused = taken(tmp_path)
    assert found.pop(("bob", "02_grpo_loss.ipynb")) == b"2"
    assert {r.student for r in refused} == {"ada"}
    assert any(reason in r.reason for r in refused)
    assert all(name.split("/")[-1] in r.reason for r in refused)


CLONED = {
    "hw-1-submissions/hw-1-ada/02_grpo_loss.ipynb": b"ada's",
    "hw-1-submissions/hw-1-ada/README.md": b"# Homework",
    "hw-1-submissions/hw-1-bo-boon/week 2/my work.ipynb": b"bo's",
    "hw-1-submissions/hw-1-hw-1-cho/02_grpo_loss.ipynb": b"cho's",
    "hw-1-submissions/hw-1-eve/README.md": b"# Homework",
    "hw-1-submissions/hw-1-eve/answer.pdf": b"%PDF",
}


@pytest.mark.parametrize("form", ["folder", "folder around", "zip", "zip of another name"])
def test_what_github_classroom_cloned_is_its_users(tmp_path, form):
    put(tmp_path, CLONED)
    (tmp_path / "hw-1-submissions.zip").write_bytes(zipped(CLONED))
    (tmp_path / "all.zip").write_bytes(zipped(CLONED))
    if form == "folder around":
        for path in tmp_path.glob("*.zip"):
            path.unlink()
    places = {"folder": "hw-1-submissions", "folder around": "", "zip": "hw-1-submissions.zip", "zip of another name": "all.zip"}
    found, refused = taken(tmp_path / places[form])
    assert found == {
        ("ada", "02_grpo_loss.ipynb"): b"ada's",
        ("bo-boon", "my work.ipynb"): b"bo's",
        ("hw-1-cho", "02_grpo_loss.ipynb"): b"cho's",
    }
    assert [(r.student, r.filename) for r in refused] == [("eve", "README.md"), ("eve", "answer.pdf")], (
        "a note beside a notebook is no hand-in"
    )


def test_a_folder_that_is_no_clone_keeps_its_name(tmp_path):
    put(
        tmp_path / "hw-submissions",
        {"kl-ada/02_grpo_loss.ipynb": b"1", "hw/02_grpo_loss.ipynb": b"2", "eve/x-submissions/x-ada/a.ipynb": b"3"},
    )
    assert {student for student, _ in taken(tmp_path / "hw-submissions")[0]} == {"kl-ada", "hw", "eve"}


def test_a_repository_cannot_claim_to_be_anothers(tmp_path):
    put(tmp_path / "hw-submissions", {"hw-eve/hw-submissions/hw-ada/02_grpo_loss.ipynb": b"1", "hw-bo/02_grpo_loss.ipynb": b"2"})
    assert {student for student, _ in taken(tmp_path / "hw-submissions")[0]} == {"eve", "bo"}


def test_links_and_pipes_in_a_folder_are_refused(tmp_path):
    put(tmp_path, {"bob/02_grpo_loss.ipynb": b"bob's", "eve/notes.txt": b""})
    (tmp_path / "eve" / "02_grpo_loss.ipynb").symlink_to(tmp_path / "bob" / "02_grpo_loss.ipynb")
    (tmp_path / "mallory").symlink_to(tmp_path / "bob")
    os.mkfifo(tmp_path / "eve" / "03_kl.ipynb")
    found, refused = taken(tmp_path)
    assert found == {("bob", "02_grpo_loss.ipynb"): b"bob's"}
    assert sum("a link or a device" in r.reason for r in refused) == 2
    assert not any(s == "mallory" for s, _ in found)


@pytest.mark.parametrize("name", ["missing", "empty", "broken.zip"])
def test_a_path_that_gives_nothing_is_refused(tmp_path, name):
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken.zip").write_bytes(nested(0)[:-5])
    found, refused = taken(tmp_path / name)
    assert not found
    assert len(refused) == 1 and name in refused[0].reason


def test_names_written_by_windows_in_china_are_read(tmp_path):
    data = zipped({"abcd/02_grpo_loss.ipynb": b"1", "x/y.png": b""}).replace(b"abcd/", "王明/".encode("gb18030"))
    put(tmp_path, {"c.zip": data})
    assert taken(tmp_path / "c.zip")[0] == {("王明", "02_grpo_loss.ipynb"): b"1"}


def test_a_class_is_read_one_hand_in_at_a_time(tmp_path):
    put(tmp_path, {"c.zip": zipped({f"s{i}/02_grpo_loss.ipynb": b"%d" % i for i in range(3000)})})
    items = gather([tmp_path / "c.zip"])
    assert next(items).data == b"0"
    assert sum(1 for _ in items) == 2999


# One student and the others


def moodle(**work):
    """A class as Moodle gives it: the first student has number 11."""
    return [(f"{name}_{n}_assignsubmission_file_/{file}", data, JUNE) for n, (name, (file, data)) in enumerate(work.items(), 11)]


def odd_compression():
    data = bytearray(zipped({"02_grpo_loss.ipynb": b"1"}))
    data[8] = data[data.index(b"PK\x01\x02") + 10] = 77
    return bytes(data)


@pytest.mark.parametrize("error", [RecursionError, MemoryError, NotImplementedError, AssertionError, zipfile.BadZipFile, zlib.error])
@pytest.mark.parametrize("inner", ["eve.zip", "02_grpo_loss.ipynb"])
def test_whatever_reading_one_hand_in_raises_the_others_are_taken(tmp_path, monkeypatch, error, inner):
    eve = zipped({"02_grpo_loss.ipynb": b"1"}) if inner.endswith("zip") else b"eve"
    put(tmp_path, {"c.zip": zipped(moodle(al=("a.ipynb", b"1"), eve=(inner, eve), hal=("a.ipynb", b"3")))})
    read = archives._whole

    def whole(data):
        if data == eve:
            raise error("two\nlines.")
        return read(data)

    monkeypatch.setattr(archives, "_whole", whole)
    found, refused = taken(tmp_path / "c.zip")
    assert found == {("al", "a.ipynb"): b"1", ("hal", "a.ipynb"): b"3"}
    assert [(r.student, r.reason) for r in refused] == [
        ("eve", f"c.zip/eve_12_assignsubmission_file_/{inner}: cannot be read (two lines).")
    ]


def test_an_odd_compression_is_refused(tmp_path):
    put(tmp_path, {"c.zip": zipped(moodle(eve=("hw.zip", odd_compression()), hal=("a.ipynb", b"3")))})
    found, (refused,) = taken(tmp_path / "c.zip")
    assert found == {("hal", "a.ipynb"): b"3"}
    assert refused.student == "eve" and "compression" in refused.reason


def test_nobodys_bombs_cost_another_a_hand_in(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "MAX_BYTES", 1_000_000)
    files = [(f"Eve_12_assignsubmission_file_/{i:02}_x.ipynb", bytes(990_000), JUNE) for i in range(13)]
    bombs = zipped({f"{i:02}_x.ipynb": bytes(600_000) for i in range(8)})
    files += [("Mal_13_assignsubmission_file_/hw.zip", bombs, JUNE), ("Zed_14_assignsubmission_file_/a.ipynb", b"z" * 10_000, JUNE)]
    (tmp_path / "c.zip").write_bytes(zipped(files))
    *others, zed = gather([tmp_path / "c.zip"])
    assert (zed.student, zed.data) == ("Zed", b"z" * 10_000)
    refused = [item for item in others if isinstance(item, Refusal)]
    assert refused and all(item.student == "Mal" and "as a zip bomb does" in item.reason for item in refused)


def test_dates_of_files_tell_versions_apart_and_never_when_they_were_handed_in(tmp_path):
    early = zipped([("02_grpo_loss.ipynb", b"new", JUNE), ("a/02_grpo_loss.ipynb", b"old", (1980, 1, 1, 0, 0, 0))])
    put(tmp_path, {"c.zip": zipped({"Gus_1_assignsubmission_file_/hw.zip": zipped({"in.zip": early})}, JULY), "f/gus.zip": early})
    for path in ("c.zip", "f"):
        (item,) = gather([tmp_path / path])
        assert (item.data, item.when, item.late) == (b"new", None, False)


def test_a_students_zip_is_opened_once_for_all_that_is_in_it(tmp_path, monkeypatch):
    many = zipped({f"{i}.ipynb": b"1" for i in range(2000)})
    some = zipped({f"{i}.ipynb": b"2" for i in range(0, 2000, 2)}, JULY)  # the newest is now in one zip, now in the other
    put(tmp_path, {"c.zip": zipped([("Eve_1_assignsubmission_file_/w.zip", zipped({"a.zip": many, "b.zip": some}), JUNE)])})
    opened, original = [], zipfile.ZipFile
    monkeypatch.setattr(zipfile, "ZipFile", lambda file: opened.append(file) or original(file))
    items = list(gather([tmp_path / "c.zip"]))
    assert len(items) == 2000 and sum(item.data == b"2" for item in items) == 1000
    assert len(opened) <= 6  # the class, w.zip, then a.zip and b.zip: to see what is in them, and to read it


def test_long_names_in_a_zip_take_no_time(tmp_path):
    began = time.process_time()
    put(tmp_path, {"eve.zip": zipped({"01_a" * 16_000 + ".ipynb": b"1", "_" * 65_000 + "!.ipynb": b"2"})})
    assert sorted(taken(tmp_path)[0].values()) == [b"1", b"2"]
    assert time.process_time() - began < 5


def test_names_that_cannot_be_printed_are_made_so(tmp_path):
    put(tmp_path, {"eve.zip": zipped({"a\x1b[2J\nb.pdf": b"1"})})
    (tmp_path / os.fsdecode(b"\xff.pdf")).write_bytes(b"1")
    _, refused = taken(tmp_path)
    assert len(refused) == 2 and all(r.reason.encode().isascii() and r.filename.isprintable() for r in refused)


def filed(tmp_path, held, notebook, *names):
    """Where the hand-ins of one download are filed; names: "Ada_11". held: of earlier downloads, brought up to date."""
    put(tmp_path, {"c.zip": zipped({f"{name}_assignsubmission_file_/{notebook}.ipynb": b"1" for name in names})})
    where = []
    for item in gather([tmp_path / "c.zip"]):
        student = placed(item, lambda student: held.get((student, notebook), ""))
        held[student, notebook] = item.owner.number
        where.append(student)
    return where


def test_a_namesake_who_comes_later_takes_nobodys_place(tmp_path):
    held = {}
    assert filed(tmp_path, held, "01_a", "Ada L_111", "Bo_112") == ["Ada_L", "Bo"]
    assert filed(tmp_path, held, "01_a", "Ada L_999") == ["Ada_L_999"]
    assert filed(tmp_path, held, "01_a", "Ada L_111") == ["Ada_L"], "the same person again"
    assert filed(tmp_path, held, "01_a", "Ada L_999", "Ada L_111", "Ada L_7") == ["Ada_L_999", "Ada_L", "Ada_L_7"]
    assert filed(tmp_path, held, "02_b", "Ada L_205", "Bo_206") == ["Ada_L", "Bo"], "Moodle numbers people anew in each assignment"


def test_namesakes_who_came_together_keep_their_places(tmp_path):
    held = {}
    assert filed(tmp_path, held, "01_a", "Li Wei_1", "Li Wei_2") == ["Li_Wei_1", "Li_Wei_2"]
    assert filed(tmp_path, held, "01_a", "Li Wei_2") == ["Li_Wei_2"]
    assert filed(tmp_path, held, "01_a", "Li Wei_3", "Li Wei_1") == ["Li_Wei_3", "Li_Wei_1"]


def test_names_that_are_cut_short_stay_different_people():
    ids = [platforms._safe(name) for name in ("x" * 100 + "a", "x" * 100 + "b", "!!!", "???")]
    assert len(set(ids)) == 4


def student_zip(folder, build):
    """A class's zip with one student's own zip in it, and an ordinary hand-in behind it."""
    with zipfile.ZipFile(folder / "class.zip", "w") as archive:
        archive.writestr("mallory_3_4_work.zip", build)
        archive.writestr("zoe_5_6_02_grpo_loss.ipynb", b"{}")
    return [(item.student, getattr(item, "reason", "")) for item in gather([folder / "class.zip"])]


def test_a_students_zip_is_asked_before_anything_of_it_is_unpacked(tmp_path):
    packed, zeros = io.BytesIO(), bytes(2**22)
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("02_grpo_loss.ipynb", zeros)
    (_, reason), zoe = student_zip(tmp_path, packed.getvalue())
    assert "another compression" in reason and zoe == ("zoe_5", "")

    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.ipynb", zeros)
        archive.filelist.append(archive.filelist[0])  # the directory names the same bytes twice
    (_, reason), zoe = student_zip(tmp_path, packed.getvalue())
    assert "overlap" in reason and zoe == ("zoe_5", "")

    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("a.ipynb", b"{}")
    data = bytearray(packed.getvalue())
    data[-10:-6] = (2**31).to_bytes(4, "little")  # a directory of two gigabytes, it says
    (_, reason), zoe = student_zip(tmp_path, bytes(data))
    assert "holds more than 50000 files" in reason and zoe == ("zoe_5", "")


# What each platform writes


def local(*when):
    return time.mktime((*when, 0, 0, -1))


def written(submissions):
    """Gradescope's submission_metadata.yml. submissions: {number: [(name, sid), ...]}."""
    lines = ["---"]
    for number, people in submissions.items():
        lines += [f"submission_{number}:", "  :submitters:"]
        lines += [f"  - :name: {name}\n    :sid: '{sid}'\n    :email: {sid}@x.org" for name, sid in people]
        lines += [
            "  :created_at: 2026-11-20 01:00:00.938335000 Z",
            "  :score: 0.0",
            "  :results: !ruby/object:Some::Class",
            "    tests: []",
        ]
    return "\n".join(lines).encode()


@pytest.mark.parametrize(
    ("name", "student", "words", "facts"),
    [
        ("larkada_123_456_{}", "larkada_123", ("larkada",), {"attempt": 456}),
        ("larkada_LATE_123_456_{}", "larkada_123", ("larkada",), {"attempt": 456, "late": True}),
        ("vandermeer_anna_123_456_{}", "vandermeer_anna_123", ("vandermeer_anna",), {"attempt": 456}),
        ("anon_xK3aB_456_{}", "anon_xK3aB", ("anon_xK3aB",), {"attempt": 456, "hidden": True}),
        ("LATE_anon_9fQ2z_457_{}", "anon_9fQ2z", ("anon_9fQ2z",), {"attempt": 457, "late": True, "hidden": True}),
        ("张三_2023001_{}", "张三_2023001", (), {}),
        ("2023002_李四_{}", "2023002_李四", (), {}),
        ("Ada Lark_12_assignsubmission_file_/{}", "Ada_Lark", ("Ada Lark",), {"number": "12"}),
        ("Ada Lark_12_assignsubmission_file_{}", "Ada_Lark", ("Ada Lark",), {"number": "12"}),
        ("Participant_12_assignsubmission_file_/{}", "Participant_12", (), {"number": "12", "hidden": True}),
        ("Homework 2_ada42_attempt_2026-11-20-10-00-05_{}", "ada42", ("ada42", "ada42"), {"when": local(2026, 11, 20, 10, 0, 5)}),
        (
            "12345-67890 - Ada Lark - Nov 20, 2026 1012 AM - {}",
            "Ada_Lark_12345",
            ("12345", "Ada Lark"),
            {"when": local(2026, 11, 20, 10, 12, 0)},
        ),
        ("12345-67890 - Ada Lark- Nov 2, 2026 912 PM/{}", "Ada_Lark_12345", ("12345", "Ada Lark"), {"when": local(2026, 11, 2, 21, 12, 0)}),
    ],
)
def test_the_names_of_every_platform_are_understood(tmp_path, name, student, words, facts):
    put(tmp_path, {"c.zip": zipped({name.format("Copy of 02_grpo_loss.ipynb"): b"1"})})
    (item,) = gather([tmp_path / "c.zip"])
    assert (item.student, item.filename, item.owner.words) == (student, "02_grpo_loss.ipynb", words)
    own = {"when": item.when, "late": item.late, "attempt": item.attempt, "number": item.owner.number, "hidden": item.owner.hidden}
    expected = {"when": None, "late": False, "attempt": 0, "hidden": False} | facts
    assert {fact: own[fact] for fact in expected} == expected


PHRASES = [
    "Copy of {}", "Kopie von {}", "Copie de {}", "Copia de {}", "Cópia de {}", "Copia di {}", "Kopie van {}", "Kopia {}", "Копия {}",
    "「{}」的副本", "“{}”的副本", "{} 的副本", "{}的副本", "副本 {}", "{} のコピー", "{}의 사본",
    "{} (2)", "{} - Copy", "Copy of Copy of {}",
]  # fmt: skip


@pytest.mark.parametrize("phrase", PHRASES)
@pytest.mark.parametrize("ending", ["", ".ipynb"])
def test_a_copy_in_any_language_is_read_by_what_is_in_it_and_takes_nobodys_name(tmp_path, phrase, ending):
    for inside in ("02_grpo_loss.ipynb", "02_grpo_loss"):
        copy = phrase.format(inside) + ending
        put(tmp_path / copy, {f"ada/{copy}": b'{"cells": []}', f"class/Bo Boon - {copy}": b'\xef\xbb\xbf\n{"cells": []}'})
        assert [(item.student, item.filename) for item in gather([tmp_path / copy / "ada"])] == [("ada", "02_grpo_loss.ipynb")]
        assert [(item.student, item.filename) for item in gather([tmp_path / copy / "class"])] == [("Bo_Boon", "02_grpo_loss.ipynb")]


def test_among_a_class_a_file_that_names_nobody_is_refused(tmp_path):
    put(tmp_path, {"Copy of 02_grpo_loss.ipynb": b"{}", "ada_02_grpo_loss.ipynb": b"{}", "「02_grpo_loss.ipynb」的副本": b"{}"})
    found, refused = taken(tmp_path)
    assert found.keys() == {("ada", "02_grpo_loss.ipynb")}
    assert len(refused) == 2 and all(r.student == "" and "put the student's name before" in r.reason for r in refused)


@pytest.mark.parametrize("root", ["", "assignment_1_export/"])
@pytest.mark.parametrize("form", ["zip", "folder"])
def test_gradescopes_hand_ins_are_of_all_who_handed_them_in(tmp_path, root, form):
    people = {7: [("Ada Lark", "123")], 8: [("Bo Boon", "124"), ("Cho Kim", "125")]}
    files = {f"{root}submission_{n}/a/02_grpo_loss.ipynb": b"%d" % n for n in people}
    files[f"{root}submission_metadata.yml"] = written(people)
    path = put(tmp_path, {"c.zip": zipped(files)}) / "c.zip" if form == "zip" else put(tmp_path / "c", files)
    found = [item for item in gather([path]) if isinstance(item, CollectedFile)]
    assert {(item.student, item.data) for item in found} == {("123", b"7"), ("124", b"8"), ("125", b"8")}
    assert {int(item.when) for item in found} == {1795136400}
    assert {item.owner.words for item in found} >= {("125@x.org", "125", "Cho Kim")}


def test_what_a_student_calls_metadata_is_a_file_like_any_other(tmp_path):
    theirs = written({1: [("Bo Boon", "bo")]})
    files = {
        "Eve_5_assignsubmission_file_/submission_metadata.yml": theirs,
        "Eve_5_assignsubmission_file_/submission_1/02_grpo_loss.ipynb": b"1",
        "Eve_5_assignsubmission_file_/timestamp.txt": b"2000-01-01 00:00:00 UTC",
    }
    put(
        tmp_path,
        {
            "c.zip": zipped(files),
            "d.zip": zipped({"mal_1_2_w.zip": zipped({"submission_metadata.yml": theirs, "submission_1/a.ipynb": b""})}),
        },
    )
    found, _ = taken(tmp_path / "c.zip")
    assert found == {("Eve", "02_grpo_loss.ipynb"): b"1"}
    assert {item.student for item in gather([tmp_path / "c.zip", tmp_path / "d.zip"])} == {"Eve", "mal_1"}
    assert not any(item.when for item in gather([tmp_path / "c.zip"]) if isinstance(item, CollectedFile))


@pytest.mark.parametrize("metadata", [None, b"- 1", b"{", b"submission_1: 5", b"\xff\xfe\x00", b"submission_1:\n  :submitters: []"])
def test_without_gradescopes_metadata_a_submissions_number_is_no_student(tmp_path, metadata):
    files = {"submission_1/02_grpo_loss.ipynb": b"1", **({"submission_metadata.yml": metadata} if metadata is not None else {})}
    put(tmp_path, {"c.zip": zipped(files)})
    found, refused = taken(tmp_path / "c.zip")
    assert not found and len(refused) == 1 and "metadata.yml" in refused[0].reason


def test_what_platforms_write_beside_hand_ins_is_passed_over(tmp_path):
    attempt = "Homework 2_ada42_attempt_2026-11-20-10-00-05"
    put(tmp_path, {"b.zip": zipped({f"{attempt}.txt": b"Name: Ada", f"{attempt}_02_grpo_loss.ipynb": b"1"})})
    put(tmp_path, {"d.zip": zipped({"index.html": b"<html>", "1-2 - Ada - Nov 20, 2026 1012 AM - 02_grpo_loss.ipynb": b"1"})})
    for name in ("b.zip", "d.zip"):
        found, refused = taken(tmp_path / name)
        assert len(found) == 1 and not refused


def test_of_uploads_the_platforms_last_counts_whatever_their_dates(tmp_path):
    canvas = [("a_1_20_02_grpo_loss.ipynb", b"last", JUNE), ("a_1_10_02_grpo_loss.ipynb", b"first", JULY)]
    board = [(f"H_ada_attempt_2026-11-2{day}-10-00-00_02_grpo_loss.ipynb", b"last" if day == 9 else b"first", JUNE) for day in (9, 1, 5)]
    for files in (canvas, canvas[::-1], board):
        (tmp_path / "c.zip").write_bytes(zipped(files))
        assert list(taken(tmp_path / "c.zip")[0].values()) == [b"last"]


def test_nbgraders_own_time_is_read(tmp_path):
    put(tmp_path, {"ada/02_grpo_loss/02_grpo_loss.ipynb": b"1", "ada/02_grpo_loss/timestamp.txt": b"2026-11-20 01:00:00.938335 UTC\n"})
    (item,) = gather([tmp_path])
    assert (item.student, int(item.when)) == ("ada", 1795136400)


def test_what_was_typed_into_canvas_is_refused_as_its_students(tmp_path):
    put(tmp_path, {"c.zip": zipped({"boonbo_12350_text.html": b"<p>", "boonbo_LATE_12350_link.html": b"<p>"})})
    _, refused = taken(tmp_path / "c.zip")
    assert [(r.student, "typed in" in r.reason) for r in refused] == [("boonbo_12350", True)] * 2
