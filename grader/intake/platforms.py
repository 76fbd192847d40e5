"""The files, folders and zips that a learning platform gives -> one hand-in for each student and notebook.

Whose a file is, by the first of these that there is:

    Moodle                  Ada Lovelace_12345_assignsubmission_file_/anything.ipynb, or all of it in one name
    Gradescope              submission_4567/anything.ipynb, by the submission_metadata.yml beside it; a group's is each member's
    Brightspace             12345-67890 - Ada Lovelace - Nov 20, 2026 1012 AM - anything.ipynb
    Blackboard              Homework 2_ada42_attempt_2026-11-20-10-00-00_anything.ipynb
    GitHub Classroom        loss-submissions/loss-ada/anything.ipynb, as `gh classroom clone` names what it clones
    Canvas                  lovelaceada_LATE_123_456_02_grpo_loss.ipynb, LATE_anon_xK3aB_456_02_grpo_loss.ipynb
    a folder of its own     ada/02_grpo_loss.ipynb, ada/02_grpo_loss/02_grpo_loss.ipynb
    its file name           ada_02_grpo_loss.ipynb, ada.ipynb, ada.zip, "Ada Lovelace - Copy of 02_grpo_loss.ipynb"
    what it was found in    02_grpo_loss.ipynb in the folder ada or in ada.zip

A zip named to `gather` may hold a whole class (one folder around all the rest is passed over). A zip inside it or inside
a folder is one student's, and nothing in it can claim to be somebody else's.

When it was handed in is what the platform says in a name or beside it, and nothing else: dates of files are the download's.
"""

from __future__ import annotations

import functools
import re
import time
import unicodedata
import zipfile
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from grader.intake.archives import File, Refused, in_zip, open_files, unzipped, why

MAX_DEPTH = 3  # a zip in a zip in a zip

MOODLE = re.compile(r"(?P<name>.+)_(?P<number>\d+)_assignsubmission_(?:file|onlinetext)(?:_(?P<file>.*))?")
HIDDEN = re.compile(r"participant|participante|partecipante|teilnehmer(?:/in|in)?|deelnemer|участник|参加者|参与者", re.IGNORECASE)
GRADESCOPE, METADATA, EXPORT = re.compile(r"submission_\d+"), "submission_metadata.yml", re.compile(r"assignment_\d+_export")
BRIGHTSPACE = re.compile(
    r"(?P<number>\d+)-\d+ ?- ?(?P<name>.+?) ?- ?(?P<time>[^\W\d]+\.? \d{1,2}, \d{4} \d{3,4} ?[AP]M)(?: ?- ?(?P<file>.+))?"
)
BLACKBOARD = re.compile(r".+_(?P<name>[^_]+)_attempt_(?P<time>\d{4}(?:-\d\d){5})(?:_(?P<file>.+)|\.txt)")
CANVAS = re.compile(  # an attempt is no "02" of a file name; text and link: what was typed in
    r"(?P<name>.+?)_(?P<late>LATE_)?(?P<number>\d+)_(?:(?P<attempt>(?!\d\d_[A-Za-z])\d+)_(?P<file>.+)|(?P<typed>(?:text|link)\.html))"
)
CANVAS_ANONYMOUS = re.compile(
    r"(?P<late>LATE_)?(?P<name>anon_[A-Za-z0-9]{5})_(?:(?P<attempt>\d+)_(?P<file>.+)|(?P<typed>(?:text|link)\.html))"
)
GITHUB = re.compile(r"(?P<assignment>[^/]+)-submissions/(?P=assignment)-(?P<name>[^/]+)/")
NOTEBOOK = re.compile(
    r"(?P<name>(?:.*?[ _「“„«\"'-]+)?)(?P<file>\d\d_[A-Za-z]\w*?)(?:-\d{1,2})?"
)  # the course's own file names; Canvas adds -1
BEFORE = (  # what Drive, Colab and systems write before the name of a copy, and behind it
    r"copy[ _]of|kopie[ _](?:von|van|na)|copie[ _]de|c[oó]pia[ _](?:de|di)|kopi[ao]?[ _](?:af|av)|kopio[ _]tiedostosta|kopia|kópia|"
    r"копия|копія|αντίγραφο|salinan|bản[ _]sao[ _]của|副本"
)
BEHIND = r"[ _-]*-[ _]*copy|[ _-]*的?副本|[ _]*のコピー|[ _]*의[ _]사본|[ _]másolata|[ _]kopyası|[ _]*\(\d{1,3}\)"
COPIED = re.compile(rf"^(?:{BEFORE})[ _:-]+|(?:{BEHIND})$|^[「“”„«»\"']+|[」“”«»\"']+$", re.IGNORECASE)
COPY_AT_END = re.compile(rf"(?:^|(?<=[ _-]))(?:(?:{BEFORE})[ _:-]*)+$", re.IGNORECASE)
SUFFIX = re.compile(r"\.ipynb(?:\.(?:txt|json|download|bin))?$|\.json$|\.zip$", re.IGNORECASE)
BLANK = b"\xef\xbb\xbf \t\r\n"


@dataclass(frozen=True)
class Owner:
    """Whose a file is, in the words of its name.

    name: the student's id where there is no roster, before it is made fit for a folder. platform: whose way of naming it
    is, "" for none. number: the platform's of the person. words: what a roster may know them by, the surest first; `name`
    where there are none. guessed: from the folder or zip that it was found in. hidden: the platform keeps the name back.
    """

    name: str
    platform: str = ""
    number: str = ""
    words: tuple[str, ...] = ()
    guessed: bool = False
    hidden: bool = False


@dataclass(frozen=True)
class CollectedFile:
    """A notebook of a student. filename: without what copying added. notes: a sentence each.

    when: it was handed in, in seconds since 1970, None where the platform does not say. late: Canvas says so, not by how
    much. attempt: a number that grows with each upload, 0 where there is none.
    """

    student: str
    filename: str
    data: bytes
    owner: Owner
    when: float | None = None
    late: bool = False
    attempt: int = 0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Refusal:
    """A file that was not taken. student: "" where nobody could be made out. reason: one sentence that names the file."""

    student: str
    filename: str
    reason: str
    owner: Owner | None = None


@dataclass(frozen=True)
class _Claim:
    """What a name says. owners: more than one for a group. refused: why it cannot be taken."""

    owners: tuple[Owner, ...]
    filename: str
    when: float | None = None
    late: bool = False
    attempt: int = 0
    refused: str = ""


@dataclass(frozen=True)
class _Found:
    """A notebook, or why a file is none, not yet read."""

    owner: Owner
    claim: _Claim
    file: File
    refused: str = ""

    @property
    def named(self) -> bool:
        """Whether it is a notebook that tells whose it is, by more than a name that any file may have."""
        return not (self.refused or self.owner.guessed or (not self.owner.platform and self.claim.filename == f"{self.owner.name}.ipynb"))

    @property
    def order(self) -> tuple[int, float, float, float]:
        return self.claim.attempt, self.claim.when or 0, self.file.mtime, self.file.saved


_Beside = dict[str, _Claim]  # the folder of a hand-in -> what the platform wrote beside it


def gather(paths: Iterable[Path]) -> Iterator[CollectedFile | Refusal]:
    """Every hand-in in the files, folders and zips, one in memory at a time; of versions with one name, the newest.

    Whatever goes wrong with a file is a Refusal of that file.
    """
    for path in paths:
        with ExitStack() as stack:
            try:
                files, container = open_files(path, stack)
                files = files if path.is_dir() else _without_root(files)
                files, beside = _read_beside(files)
                once = functools.lru_cache(maxsize=MAX_DEPTH)(unzipped)  # once for what is read in a row, and few in memory
                found = [item for file in files for item in _notebooks(file, _stem(container), once, beside)]
            except Exception as e:  # a damaged zip can raise anything
                yield Refusal("", path.name, f"{path}: {why(e)}.")
                continue
            repositories = {item.owner for item in found if item.owner.platform == "github" and item.refused != NO_NOTEBOOK}
            found = [item for item in found if item.refused != NO_NOTEBOOK or item.owner not in repositories]
            if not found:
                yield Refusal("", path.name, f"{path}: holds no file.")
            if any(item.named for item in found):  # the others are not one student's, then
                found = [replace(item, refused=item.refused or NAMELESS) if item.owner.guessed else item for item in found]
            ids = _ids({item.owner for item in found})
            versions: dict[tuple[str, str], list[int]] = defaultdict(list)
            for place, item in enumerate(found):
                if item.refused:
                    nobody = item.refused == NAMELESS
                    yield Refusal("" if nobody else ids[item.owner], item.claim.filename, f"{item.file.shown}: {item.refused}.", item.owner)
                else:
                    versions[ids[item.owner], item.claim.filename.lower()].append(place)
            newest = {max(places, key=lambda n: (*found[n].order, n)): places for places in versions.values()}
            for place in sorted(newest):  # in the order in which they lie, so that each zip is opened once
                item = found[place]
                yield _read(ids[item.owner], item, [found[n] for n in newest[place] if n != place])


NO_NOTEBOOK = "is no notebook; the file to hand in ends in .ipynb"
NAMELESS = "nothing says whose it is; put the student's name before the file's, as in ada_02_grpo_loss.ipynb, or the file in a folder ada"


def placed(item: CollectedFile, held: Callable[[str], str]) -> str:
    """The student id under which to file a hand-in where there is no roster, so that no namesake takes another's place.

    held: student -> Moodle's number of whose hand-in of this notebook is filed there ("": none is). Moodle numbers people
    anew in each of its assignments: a number tells two people apart only within a notebook, and across notebooks there is
    but the name.
    """
    number = item.owner.number
    if item.owner.platform != "moodle" or item.owner.hidden:
        return item.student
    plain = item.student.removesuffix(f"_{number}")
    own = f"{plain}_{number}"
    return next((student for student in (plain, own) if held(student) == number), own if held(item.student) else item.student)


def clean_name(filename: str) -> str:
    """A file name without what downloads and copies add: "Copy of 02_grpo_loss (1).ipynb" -> "02_grpo_loss.ipynb"."""
    stem = _stem(filename)
    match = NOTEBOOK.fullmatch(stem)
    return (match["file"] if match else stem) + ".ipynb"


def _read(student: str, item: _Found, others: list[_Found]) -> CollectedFile | Refusal:
    notes: tuple[str, ...] = ()
    claim = item.claim
    if others:
        older = ", ".join(other.file.shown for other in others)
        notes = (f"There are {len(others) + 1} versions of {claim.filename}; the newest, {item.file.shown}, was taken, not {older}.",)
    try:
        return CollectedFile(student, claim.filename, item.file.read(), item.owner, claim.when, claim.late, claim.attempt, notes)
    except Exception as e:  # a damaged zip can raise anything
        return Refusal(student, claim.filename, f"{item.file.shown}: {why(e)}.", item.owner)


# Whose is it?

_Unzip = Callable[[File], zipfile.ZipFile]


def _without_root(files: list[File]) -> list[File]:
    """The files of a zip, without a folder that is around all of them and no student's."""
    roots = {file.parts[0] for file in files}
    if len(roots) == 1 and all(len(file.parts) > 1 for file in files):
        (root,) = roots
        if not any(pattern.fullmatch(root) for pattern in (MOODLE, BRIGHTSPACE, GRADESCOPE)) and not GITHUB.match("/".join(files[0].parts)):
            return [replace(file, parts=file.parts[1:]) for file in files]
    return files


def _read_beside(files: Sequence[File]) -> tuple[list[File], _Beside]:
    """What platforms write beside hand-ins, and the files without it. Raises Refused."""
    beside: _Beside = {}
    left = []
    for file in files:
        *folders, name = file.parts
        if name == METADATA and (not folders or (len(folders) == 1 and EXPORT.fullmatch(folders[0]))):
            beside |= {"/".join([*folders, submission]): claim for submission, claim in _submitters(file).items()}
        elif name == "timestamp.txt" and folders and _of_platform(file.parts) is None:  # nbgrader's
            with suppress(ValueError, OverflowError):
                text = file.read().decode("utf-8", "replace").strip().removesuffix("UTC").strip()
                when = datetime.fromisoformat(text)
                beside["/".join(folders)] = _Claim((), "", (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp())
        elif not ((BLACKBOARD.fullmatch(name) and name.endswith(".txt")) or (name == "index.html" and not folders)):
            left.append(file)
    return left, beside


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """YAML of Ruby, whose own classes are nothing to us."""


_Loader.add_multi_constructor("!", lambda loader, tag, node: None)


def _submitters(file: File) -> _Beside:
    """Whose the folders of Gradescope's export are. Raises Refused."""
    try:
        facts: dict[str, Any] = yaml.load(file.read(), Loader=_Loader)
        return {folder: _of_gradescope(about) for folder, about in facts.items()}
    except (yaml.YAMLError, AttributeError, KeyError, TypeError, ValueError) as e:
        raise Refused(f"its {METADATA} cannot be read ({type(e).__name__}); download the submissions from Gradescope again") from None


def _of_gradescope(about: dict[str, Any]) -> _Claim:
    owners = []
    for person in about.get(":submitters") or []:
        words = [str(person[key]) for key in (":email", ":sid", ":name") if person.get(key)]
        owners.append(Owner(str(person.get(":sid") or words[0]), "gradescope", words=tuple(words)))
    created = about.get(":created_at")
    when = (created if created.tzinfo else created.replace(tzinfo=UTC)).timestamp() if isinstance(created, datetime) else None
    return _Claim(tuple(owners), "", when)


def _notebooks(
    file: File, container: str, opened: _Unzip, beside: _Beside, outer: _Claim | None = None, depth: int = 0
) -> Iterator[_Found]:
    """The notebook that a file is, or those in the zip that it is. outer: of the zip that the file was found in."""
    claim = outer and replace(outer, filename=clean_name(file.parts[-1]))
    if claim and _of_platform(file.parts):
        claim = replace(claim, refused="is named as another's hand-in; where a zip holds a whole class, name it by itself")
    claim = claim or _claim(file.parts, container, beside)
    suffix = file.parts[-1].lower().rpartition(".")[2]
    refused = claim.refused
    inside: list[File] | None = None
    if not refused and file.start.startswith(b"PK") and suffix in ("zip", "ipynb"):
        try:
            if depth == MAX_DEPTH:
                raise Refused(f"is a zip within {MAX_DEPTH} others")
            inside = in_zip(lambda: opened(file), file.shown, around=file)
            if not inside:
                raise Refused("holds no file")
        except Exception as e:  # a damaged zip can raise anything
            refused = why(e)
    elif not refused and not (suffix != "zip" and (SUFFIX.search(file.parts[-1]) or file.start.lstrip(BLANK).startswith(b"{"))):
        claim = replace(claim, filename=file.parts[-1])
        refused = NO_NOTEBOOK if suffix != "zip" else "is no zip, whatever its name says"
    if inside and not refused:
        for inner in inside:
            yield from _notebooks(inner, container, opened, beside, claim, depth + 1)
    else:
        yield from (_Found(owner, claim, file, refused) for owner in claim.owners)


def _claim(parts: tuple[str, ...], container: str, beside: _Beside) -> _Claim:
    """See the top of this module."""
    *folders, name = parts
    for depth in range(len(folders), 0, -1):
        if (known := beside.get("/".join(folders[:depth]))) and known.owners:
            return replace(known, filename=clean_name(name))
    if claim := _of_platform(parts):
        return claim
    path = "/".join(parts)
    if match := GITHUB.match(path) or GITHUB.match(f"{container}/{path}"):  # at the top: what lies in a repository claims nothing
        return _Claim((Owner(match["name"], "github"),), clean_name(name))
    if number := next(filter(GRADESCOPE.fullmatch, folders), ""):
        owner = Owner(number, "gradescope", hidden=True)
        return _Claim((owner,), clean_name(name), refused=f"{number} is no student; keep Gradescope's {METADATA} beside that folder")
    when = beside["/".join(folders)].when if "/".join(folders) in beside else None
    if own := [folder for folder in folders if not NOTEBOOK.fullmatch(folder)]:
        return _Claim((Owner(own[0]),), clean_name(name), when)
    stem = _stem(name)
    match = NOTEBOOK.fullmatch(stem)
    who = COPY_AT_END.sub("", match["name"]).strip(" _-「“„«\"'") if match else stem
    return _Claim((Owner(who or container, guessed=not who),), clean_name(name), when)


def _of_platform(parts: tuple[str, ...]) -> _Claim | None:
    """What a name says that only a platform writes, None for any other name."""
    *folders, name = parts
    for place, part in enumerate(parts):
        last = place == len(folders)
        if (match := MOODLE.fullmatch(part)) and bool(match["file"]) == last:
            who, number = match["name"], match["number"]
            hidden = bool(HIDDEN.fullmatch(who))
            owner = Owner(f"{who}_{number}" if hidden else who, "moodle", number, () if hidden else (who,), hidden=hidden)
            return _Claim((owner,), clean_name(match["file"] if last else name))
        if (match := BRIGHTSPACE.fullmatch(part)) and bool(match["file"]) == last:
            clock = re.sub(r" (\d{3}) ?([AP]M)$", r" 0\1 \2", match["time"].replace(".", ""))
            owner = Owner(f"{match['name']}_{match['number']}", "brightspace", match["number"], (match["number"], match["name"]))
            return _Claim((owner,), clean_name(match["file"] if last else name), _local_time(clock, "%b %d, %Y %I%M %p"))
    if (match := BLACKBOARD.fullmatch(name)) and match["file"]:
        whole = name[: match.start("time")].removesuffix("_attempt_").split("_")
        words = ("_".join(whole[n:]) for n in range(1, len(whole)))  # an account's name may have a line in it
        owner = Owner(match["name"], "blackboard", words=(*words, match["name"]))
        return _Claim((owner,), clean_name(match["file"]), _local_time(match["time"], "%Y-%m-%d-%H-%M-%S"))
    if match := CANVAS_ANONYMOUS.fullmatch(name) or CANVAS.fullmatch(name):
        hidden = match.re is CANVAS_ANONYMOUS
        number = "" if hidden else match["number"]
        owner = Owner(match["name"] if hidden else f"{match['name']}_{number}", "canvas", number, (match["name"],), hidden=hidden)
        refused = "is what was typed in, not a notebook; the file to hand in ends in .ipynb" if match["typed"] else ""
        filename = match["typed"] or clean_name(match["file"])
        return _Claim((owner,), filename, None, bool(match["late"]), int(match["attempt"] or 0), refused)
    return None


def _local_time(text: str, form: str) -> float | None:
    """Seconds since 1970 of a time that a platform tells without its zone: this machine's."""
    try:
        return time.mktime(time.strptime(text, form))
    except (ValueError, OverflowError):
        return None


def _stem(filename: str) -> str:
    stem = filename
    while (shorter := COPIED.sub("", SUFFIX.sub("", stem)).strip() or SUFFIX.sub("", stem)) not in ("", stem):
        stem = shorter
    return stem


def _ids(owners: set[Owner]) -> dict[Owner, str]:
    """A student id for each: fit to name a folder, and different for different people."""
    plain = {owner: _safe(owner.name) for owner in owners}
    people = {(plain[owner], owner.name, owner.number) for owner in owners}
    count = Counter(id for id, *_ in people)
    return {owner: id if count[id] == 1 else f"{id}_{owner.number or _digest(owner.name)}" for owner, id in plain.items()}


def _safe(name: str) -> str:
    name = unicodedata.normalize("NFC", name)
    safe = re.sub(r"[^\w.@+-]+", "_", name).strip("._- ")
    return safe if 0 < len(safe) <= 80 else f"{safe[:80] or 'unknown'}_{_digest(name)}"  # what was cut off told it from others


def _digest(name: str) -> str:
    return format(zlib.crc32(name.encode("utf-8", "replace")), "08x")
