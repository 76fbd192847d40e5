"""What learning platforms give is told apart by student and notebook; what cannot be taken is named, and nothing is unpacked to disk."""

import io
import os
import zipfile
import zlib

import pytest

from grader import collect
from grader.collect import HandIn, Refusal, clean_name, gather

JUNE, JULY = (2026, 6, 1, 12, 0, 0), (2026, 7, 1, 12, 0, 0)


def zipped(files, when=JUNE):
    """A zip of {name: content}, or of (name, content, date) triples."""
    triples = [(n, d, when) for n, d in files.items()] if isinstance(files, dict) else files
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data, date in triples:
            archive.writestr(zipfile.ZipInfo(name, date), data, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def put(folder, files):
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def taken(*paths):
    """{(student, filename): content} of the hand-ins, and the refusals."""
    items = list(gather(paths))
    found = {(i.student, i.filename): i.data for i in items if isinstance(i, HandIn)}
    assert len(found) == sum(isinstance(i, HandIn) for i in items)
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
    owners = {collect._Owner(name) for name in names}
    ids = collect._ids(owners)
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
