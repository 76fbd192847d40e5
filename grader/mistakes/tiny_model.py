"""Wrong and right versions of the exercises of notebook 4. Free names are the notebook's own (given cells and the key)."""

import copy
import re
import unicodedata
from fractions import Fraction

import torch
from torch.nn import functional as F

from grader.mistakes import mistake, right

# ---- extract_answer ----


def narrow(text):
    return "".join(chr(ord(c) - 0xFEE0) if "０" <= c <= "９" else c for c in text)


@mistake("extract_answer")
def last_number(text):
    """The last number of the text was taken, tag or no tag.

    Hint: An answer is what the model put into the tag. What should come of a text that holds numbers and no tag?
    """
    numbers = re.findall(r"[+-]?\d+(?:\.\d+)?", text)
    return numbers[-1] if numbers else None


@mistake("extract_answer")
def first_of_two(text):
    """The first answer was taken where there are several.

    Hint: A model that writes two answers has not decided. What does the exercise say about such a text?
    """
    found = re.search(r"<answer>(.*?)</answer>", text, re.DOTALL)
    return narrow(found[1].strip()) if found else None


@mistake("extract_answer")
def last_of_two(text):
    """The last answer was taken where there are several.

    Hint: A model that writes two answers has not decided. What does the exercise say about such a text?
    """
    found = re.findall(r"<answer>(.*?)</answer>", text, re.DOTALL)
    return narrow(found[-1].strip()) if found else None


@mistake("extract_answer")
def first_to_last_tag(text):
    """Everything from the first opening tag to the last closing one was taken, other tags included.

    Hint: How many opening and closing tags may a text with an answer hold?
    """
    found = re.search(r"<answer>(.*)</answer>", text, re.DOTALL)
    return narrow(found[1].strip()) if found else None


@mistake("extract_answer")
def unclosed_tag(text):
    """An answer was accepted although its tag is never closed.

    Hint: An answer that was cut off at the length limit may be half a number. What tells you that it is complete?
    """
    if text.count("<answer>") != 1 or text.count("</answer>") > 1:
        return None
    return narrow(text.partition("<answer>")[2].partition("</answer>")[0].strip())


@mistake("extract_answer")
def opening_tags_uncounted(text):
    """Only the closing tags were counted, so that nested and reopened answers passed.

    Hint: An answer has two tags. How often is each of them there?
    """
    if text.count("</answer>") != 1 or "<answer>" not in text:
        return None
    found = re.search(r"<answer>(.*?)</answer>", text, re.DOTALL)
    return narrow(found[1].strip()) if found else None


@mistake("extract_answer")
def closing_tags_uncounted(text):
    """Only the opening tags were counted, so that a second closing tag passed.

    Hint: An answer has two tags. How often is each of them there?
    """
    if text.count("<answer>") != 1:
        return None
    found = re.search(r"<answer>(.*?)</answer>", text, re.DOTALL)
    return narrow(found[1].strip()) if found else None


@mistake("extract_answer")
def tags_in_any_order(text):
    """The tags were counted, but their order was not looked at: a closing tag may have come first.

    Hint: One of each is there. Which comes first?
    """
    if text.count("<answer>") != 1 or text.count("</answer>") != 1:
        return None
    start, end = text.index("<answer>"), text.index("</answer>")
    return narrow(text[min(start, end) : max(start, end)].replace("<answer>", "").replace("</answer>", "").strip())


@mistake("extract_answer")
def one_line_only(text):
    """Answers that run over several lines were lost: a dot in a regular expression does not match a line break.

    Hint: Which flag of the re module lets a dot match everything?
    """
    if text.count("<answer>") != 1 or text.count("</answer>") != 1:
        return None
    found = re.search(r"<answer>(.*)</answer>", text)
    return narrow(found[1].strip()) if found else None


@mistake("extract_answer")
def not_stripped(text):
    """The spaces and line breaks around the answer were kept.

    Hint: The model wrote " 12 ". What should come back?
    """
    found = re.findall(r"<answer>(.*?)</answer>", text, re.DOTALL)
    return narrow(found[0]) if len(found) == 1 and text.count("<answer>") == text.count("</answer>") == 1 else None


@mistake("extract_answer")
def full_width_kept(text):
    """Full-width digits were left as they are.

    Hint: Print ord("１") and ord("1"). Will whoever compares the answer with "12" later see the two as equal?
    """
    found = re.findall(r"<answer>(.*?)</answer>", text, re.DOTALL)
    return found[0].strip() if len(found) == 1 and text.count("<answer>") == text.count("</answer>") == 1 else None


@mistake("extract_answer")
def chinese_numerals_too(text):
    """Chinese numerals were turned into digits as well.

    Hint: Which characters does the exercise ask you to convert, and what happens to everything else?
    """
    inside = extract_answer_plain(text)
    table = {ord(c): str(i) for i, c in enumerate("零一二三四五六七八九")} | {ord("十"): "10"}
    return None if inside is None else inside.translate(table)


@mistake("extract_answer")
def compatibility_normalised(text):
    """All characters with a compatibility form were replaced, not the ten full-width digits alone.

    Hint: Print unicodedata.normalize("NFKC", "½"). Which characters does the exercise speak of?
    """
    inside = extract_answer_plain(text)
    return None if inside is None else unicodedata.normalize("NFKC", inside)


@mistake("extract_answer")
def digits_only(text):
    """The digits of the answer were kept and the rest thrown away.

    Hint: Texts such as "no idea" and "12元" are answers too, if not numbers. Is this exercise about finding or about judging?
    """
    inside = extract_answer_plain(text)
    return None if inside is None else "".join(c for c in inside if c in "0123456789.+-")


@mistake("extract_answer")
def number_inside_only(text):
    """For an answer that is no number, None came back.

    Hint: Finding the answer and judging it are two exercises. Which of the two is this one?
    """
    inside = extract_answer_plain(text)
    return inside if inside is not None and re.fullmatch(r"[+-]?\d+(\.\d+)?", inside) else None


@mistake("extract_answer")
def empty_for_none(text):
    """An empty string came back where there is no answer.

    Hint: An empty tag and no tag are different things. What says "nothing was found" in Python?
    """
    return extract_answer_plain(text) or ""


@mistake("extract_answer")
def think_part_too(text):
    """The whole text came back without its tags, thoughts included.

    Hint: Is what the model thought part of what it answered?
    """
    if text.count("<answer>") != 1 or text.count("</answer>") != 1:
        return None
    return narrow(re.sub(r"</?\w+>", "", text).strip())


@mistake("extract_answer")
def as_integer(text):
    """A number came back instead of the text, where the text is one.

    Hint: What type does the exercise ask for? And what is left of "04" in a number?
    """
    inside = extract_answer_plain(text)
    return int(inside) if inside is not None and inside.isdecimal() else inside


@mistake("extract_answer")
def split_by_tag(text):
    """The text was split at the tags and the last piece taken, so that a text without tags came back whole.

    Hint: When "no tag" is split at a tag it gives one piece, not none. What should a text without an answer give?
    """
    return narrow(text.split("<answer>")[-1].split("</answer>")[0].strip())


@mistake("extract_answer")
def tags_in_any_case(text):
    """Everything was turned to lower case first: tags in capitals were taken for tags, and the answer lost its own.

    Hint: What does the exercise say of everything that is no full-width digit?
    """
    return extract_answer_plain(text.lower())


@mistake("extract_answer")
def all_digits_of_the_world(text):
    """The digits of every script became ASCII digits, not the ten full-width ones alone.

    Hint: For which characters is str.isdecimal true? Print "٣".isdecimal(). Which ones does the exercise speak of?
    """
    inside = extract_answer_plain(text)
    return None if inside is None else "".join(str(int(c)) if c.isdecimal() else c for c in inside)


@mistake("extract_answer")
def all_full_width_signs(text):
    """All full-width characters became ASCII, letters and signs too.

    Hint: Which characters does the exercise ask you to convert, and what happens to everything else?
    """
    inside = extract_answer_plain(text)
    return None if inside is None else inside.translate({i: i - 0xFEE0 for i in range(0xFF01, 0xFF5F)})


@mistake("extract_answer")
def none_for_empty(text):
    """For an empty answer None came back, as if there were no tag.

    Hint: An empty tag and no tag are different things. Which strings does Python count as false?
    """
    return extract_answer_plain(text) or None


@mistake("extract_answer")
def no_less_than_inside(text):
    """An answer that holds a < was lost: the pattern lets no < stand inside.

    Hint: Your pattern keeps tags out of the answer. What else does it keep out?
    """
    found = re.findall(r"<answer>([^<]*)</answer>", text)
    return narrow(found[0].strip()) if len(found) == 1 and text.count("<answer>") == text.count("</answer>") == 1 else None


@mistake("extract_answer")
def complete_pairs_counted(text):
    """Only complete pairs of tags were counted, so that a tag too many beside one pair passed.

    Hint: How many pairs does your pattern find in <answer>11<answer>12</answer>, and how many opening tags are there?
    """
    found = re.findall(r"<answer>(.*?)</answer>", text, re.DOTALL)
    return narrow(found[0].strip()) if len(found) == 1 else None


def extract_answer_plain(text):
    if text.count("<answer>") != 1 or text.count("</answer>") != 1 or text.index("<answer>") > text.index("</answer>"):
        return None
    return narrow(text[text.index("<answer>") + 8 : text.index("</answer>")].strip())


@right("extract_answer")
def by_index(text):
    """Positions of the tags and a slice."""
    return extract_answer_plain(text)


@right("extract_answer")
def by_regex(text: str) -> str | None:
    """findall with DOTALL, and the tags counted."""
    found = re.findall(r"<answer>(.*?)</answer>", text, flags=re.DOTALL)
    if len(found) != 1 or len(re.findall(r"</?answer>", text)) != 2:
        return None
    return found[0].strip().translate(str.maketrans("０１２３４５６７８９", "0123456789"))


@right("extract_answer")
def by_tempered_regex(text):
    """One regular expression for the whole text, in which no other tag fits."""
    no_tag = r"((?:(?!</?answer>).)*)"
    found = re.fullmatch(f"{no_tag}<answer>{no_tag}</answer>{no_tag}", text, re.DOTALL)
    if found:
        answer = found.group(2).strip()
        for i in range(10):
            answer = answer.replace(chr(0xFF10 + i), str(i))
        return answer
    return None


@right("extract_answer")
def by_split(text):
    """Splits at both tags and looks at the pieces."""
    pieces = re.split(r"(</?answer>)", text)
    if len(pieces) != 5 or pieces[1] != "<answer>" or pieces[3] != "</answer>":
        return None
    return "".join(str(unicodedata.digit(c)) if c in "０１２３４５６７８９" else c for c in pieces[2]).strip()


@right("extract_answer")
def by_loop(text):
    """A little machine that reads the text once."""
    state, inside, i = "before", [], 0
    while i < len(text):
        if text.startswith("<answer>", i):
            if state != "before":
                return None
            state, i = "inside", i + 8
        elif text.startswith("</answer>", i):
            if state != "inside":
                return None
            state, i = "after", i + 9
        else:
            if state == "inside":
                inside.append(text[i])
            i += 1
    return narrow("".join(inside)).strip() if state == "after" else None


@right("extract_answer")
def by_exception(text):
    """Unpacks what split gives, and catches what does not fit."""
    try:
        before, rest = text.split("<answer>")
        inside, after = rest.split("</answer>")
    except ValueError:
        return None
    if "</answer>" in before:
        return None
    return narrow(inside.strip())


# ---- math_reward ----


def as_number(text):
    return Fraction(text) if text is not None and re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)", text, re.ASCII) else None


def in_any_digits(text):
    return float(text) if text is not None and re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)", text) else None


def well_formed(text):
    whole = re.fullmatch(r"\s*<think>(.*)</think>\s*<answer>(.*)</answer>\s*", text, re.DOTALL)
    return float(whole is not None and not re.search(r"</?(think|answer)>", whole[1] + whole[2]))


def right_value(text, answer):
    return float(as_number(extract_answer(text)) == Fraction(answer))


@mistake("math_reward")
def answer_anywhere(text, answer):
    """The right answer was accepted anywhere in the text.

    Hint: A model that lists every number from 0 to 36 would be paid each time. Which number did it commit to?
    """
    return {"accuracy": float(answer in text), "format": well_formed(text)}


@mistake("math_reward")
def last_number_reward(text, answer):
    """The last number of the text was judged instead of the answer in its tag.

    Hint: You wrote a function that finds the answer. What does it give for a text without one?
    """
    numbers = re.findall(r"[+-]?\d+(?:\.\d+)?", text)
    return {"accuracy": float(bool(numbers) and float(numbers[-1]) == float(answer)), "format": well_formed(text)}


@mistake("math_reward")
def first_answer_counts(text, answer):
    """The first of two answers was judged.

    Hint: A text with two answers has not decided. Which of your functions knows that already?
    """
    found = re.findall(r"<answer>(.*?)</answer>", text, re.DOTALL)
    return {"accuracy": float(bool(found) and as_number(narrow(found[0].strip())) == Fraction(answer)), "format": well_formed(text)}


@mistake("math_reward")
def any_answer_counts(text, answer):
    """A reward was paid when any one of several answers was right.

    Hint: Two guesses at the price of one: what would a policy learn from that?
    """
    found = re.findall(r"<answer>(.*?)</answer>", text, re.DOTALL)
    return {"accuracy": float(any(as_number(narrow(f.strip())) == Fraction(answer) for f in found)), "format": well_formed(text)}


@mistake("math_reward")
def unclosed_answer_paid(text, answer):
    """A reward was paid for an answer whose tag is never closed.

    Hint: What does extract_answer say about such a text?
    """
    inside = text.rpartition("<answer>")[2].partition("</answer>")[0] if text.count("<answer>") == 1 else None
    return {"accuracy": float(inside is not None and as_number(narrow(inside.strip())) == Fraction(answer)), "format": well_formed(text)}


@mistake("math_reward")
def text_not_value(text, answer):
    """The answer was compared as text, not by its value.

    Hint: Is 12.0 the same text as 12? Is it the same number?
    """
    return {"accuracy": float(extract_answer(text) == answer), "format": well_formed(text)}


@mistake("math_reward")
def contains_answer(text, answer):
    """It was asked whether the text of the answer contains the right number.

    Hint: What does an answer of 112 contain?
    """
    return {"accuracy": float(answer in (extract_answer(text) or "")), "format": well_formed(text)}


@mistake("math_reward")
def first_number_inside(text, answer):
    """The first number in the answer was taken, and the words around it were ignored.

    Hint: Does re.search ask whether the whole answer is a number, or whether one stands somewhere in it?
    """
    number = re.search(r"[+-]?\d+(\.\d+)?", extract_answer(text) or "")
    return {"accuracy": float(bool(number) and float(number[0]) == float(answer)), "format": well_formed(text)}


@mistake("math_reward")
def last_number_inside(text, answer):
    """The last number in the answer was taken, and what stood around it was ignored.

    Hint: Does the search ask whether the whole answer is a number, or which numbers stand somewhere in it?
    """
    numbers = re.findall(r"[-+]?\d+(?:\.\d+)?", extract_answer(text) or "")
    return {"accuracy": float(bool(numbers) and float(numbers[-1]) == float(answer)), "format": well_formed(text)}


@mistake("math_reward")
def as_int(text, answer):
    """The answer was converted with int, for which 12.0 is no number.

    Hint: Which of the spellings 12, 12.0, 012 and +12 does int accept?
    """
    try:
        accuracy = float(int(extract_answer(text)) == int(answer))
    except (TypeError, ValueError):
        accuracy = 0.0
    return {"accuracy": accuracy, "format": well_formed(text)}


@mistake("math_reward")
def rounded(text, answer):
    """The decimals were cut off before the comparison.

    Hint: Is 12.5 equal to 12?
    """
    number = as_number(extract_answer(text))
    return {"accuracy": float(number is not None and int(number) == int(Fraction(answer))), "format": well_formed(text)}


@mistake("math_reward")
def near_enough(text, answer):
    """A reward was paid for an answer that is only close.

    Hint: How well would a policy be paid that guesses and hardly computes, with a tolerance like yours?
    """
    number = as_number(extract_answer(text))
    return {"accuracy": float(number is not None and abs(number - Fraction(answer)) <= 1), "format": well_formed(text)}


@mistake("math_reward")
def evaluated(text, answer):
    """The answer was evaluated as a formula.

    Hint: Is 6+6 an answer, or still a question? And what could a model write that you would not like to run?
    """
    try:
        accuracy = float(eval(extract_answer(text)) == float(answer))
    except Exception:
        accuracy = 0.0
    return {"accuracy": accuracy, "format": well_formed(text)}


@mistake("math_reward")
def sign_ignored(text, answer):
    """The sign of the answer was ignored.

    Hint: Is -12 equal to 12?
    """
    number = as_number(extract_answer(text))
    return {"accuracy": float(number is not None and abs(number) == abs(Fraction(answer))), "format": well_formed(text)}


@mistake("math_reward")
def numerals_as_numbers(text, answer):
    """Chinese numerals were read as numbers.

    Hint: The exercise says what a number is: a sign, digits, a decimal point. What does it say about 十二?
    """
    inside = (extract_answer(text) or "").replace("十", "1").translate({ord(c): str(i) for i, c in enumerate("零一二三四五六七八九")})
    return {"accuracy": float(as_number(inside) == Fraction(answer)), "format": well_formed(text)}


@mistake("math_reward")
def accuracy_needs_format(text, answer):
    """Accuracy was paid only where the format was right.

    Hint: Does one rule depend on the other? What does "<answer>12</answer>" alone earn?
    """
    form = well_formed(text)
    return {"accuracy": right_value(text, answer) * form, "format": form}


@mistake("math_reward")
def format_needs_accuracy(text, answer):
    """The format was paid only where the answer was right.

    Hint: Does one rule depend on the other? What does a wrong answer in the agreed format earn?
    """
    accuracy = right_value(text, answer)
    return {"accuracy": accuracy, "format": well_formed(text) * accuracy}


@mistake("math_reward")
def format_anywhere(text, answer):
    """Text was accepted around the two parts.

    Hint: Does re.search ask about the whole text?
    """
    once = all(text.count(tag) == 1 for tag in ("<think>", "</think>", "<answer>", "</answer>"))
    found = re.search(r"<think>.*</think>\s*<answer>.*</answer>", text, re.DOTALL)
    return {"accuracy": right_value(text, answer), "format": float(once and found is not None)}


@mistake("math_reward")
def format_begins_only(text, answer):
    """Only the beginning of the text was looked at, not its end.

    Hint: Where the pattern is satisfied re.match stops. What may still follow?
    """
    once = all(text.count(tag) == 1 for tag in ("<think>", "</think>", "<answer>", "</answer>"))
    found = re.match(r"\s*<think>.*</think>\s*<answer>.*</answer>", text, re.DOTALL)
    return {"accuracy": right_value(text, answer), "format": float(once and found is not None)}


@mistake("math_reward")
def tags_present(text, answer):
    """It was only asked whether all four tags occur.

    Hint: In which order must they come, how often, and with what around them?
    """
    present = all(tag in text for tag in ("<think>", "</think>", "<answer>", "</answer>"))
    return {"accuracy": right_value(text, answer), "format": float(present)}


@mistake("math_reward")
def tags_once(text, answer):
    """The four tags were counted, but their order was not looked at.

    Hint: Once each is half of the rule. In which order, and what may stand outside?
    """
    once = all(text.count(tag) == 1 for tag in ("<think>", "</think>", "<answer>", "</answer>"))
    return {"accuracy": right_value(text, answer), "format": float(once)}


@mistake("math_reward")
def greedy_format(text, answer):
    """The whole text was matched greedily, so that several thoughts or answers fit inside.

    Hint: Does ".*" match tags as well? How do you make sure that each tag is there once?
    """
    found = re.fullmatch(r"\s*<think>.*</think>\s*<answer>.*</answer>\s*", text, re.DOTALL)
    return {"accuracy": right_value(text, answer), "format": float(found is not None)}


@mistake("math_reward")
def no_line_breaks(text, answer):
    """Thoughts that run over several lines were refused.

    Hint: Which flag of the re module lets a dot match a line break?
    """
    once = all(text.count(tag) == 1 for tag in ("<think>", "</think>", "<answer>", "</answer>"))
    found = re.fullmatch(r"\s*<think>.*</think>\s*<answer>.*</answer>\s*", text)
    return {"accuracy": right_value(text, answer), "format": float(once and found is not None)}


@mistake("math_reward")
def white_space_punished(text, answer):
    """White space around or between the two parts was refused.

    Hint: Nearly every model puts a line break between the parts. What does the exercise say about it?
    """
    once = all(text.count(tag) == 1 for tag in ("<think>", "</think>", "<answer>", "</answer>"))
    found = re.fullmatch(r"<think>.*</think><answer>.*</answer>", text, re.DOTALL)
    return {"accuracy": right_value(text, answer), "format": float(once and found is not None)}


@mistake("math_reward")
def think_optional(text, answer):
    """The think part was treated as optional.

    Hint: How many think parts does the format ask for?
    """
    return {"accuracy": right_value(text, answer), "format": max(well_formed(text), well_formed("<think></think>" + text))}


@mistake("math_reward")
def thought_must_be_there(text, answer):
    """An empty thought or answer was refused.

    Hint: The format speaks of tags and of what stands outside. Does it say anything about what stands inside?
    """
    whole = re.fullmatch(r"\s*<think>(.+)</think>\s*<answer>(.+)</answer>\s*", text, re.DOTALL)
    form = float(whole is not None and not re.search(r"</?(think|answer)>", whole[1] + whole[2]))
    return {"accuracy": right_value(text, answer), "format": form}


@mistake("math_reward")
def one_number(text, answer):
    """The two rewards were added up; their sum came back instead of both.

    Hint: Each rule should be watched by itself. What does the exercise say comes back?
    """
    return right_value(text, answer) + well_formed(text)


@mistake("math_reward")
def swapped(text, answer):
    """The two entries were exchanged.

    Hint: Which entry says that the number is right?
    """
    return {"accuracy": well_formed(text), "format": right_value(text, answer)}


@mistake("math_reward")
def half_a_point_off(text, answer):
    """A reward was paid for an answer less than a half off.

    Hint: Which answers beside the right one are as near as that? The exercise asks for the same value.
    """
    number = as_number(extract_answer(text))
    near = number is not None and abs(number - Fraction(answer)) < Fraction("0.5")
    return {"accuracy": float(near), "format": well_formed(text)}


@mistake("math_reward")
def a_tenth_off(text, answer):
    """A reward was paid for an answer less than a tenth off.

    Hint: Which answers beside the right one are as near as that? The exercise asks for the same value.
    """
    number = as_number(extract_answer(text))
    near = number is not None and abs(number - Fraction(answer)) < Fraction("0.1")
    return {"accuracy": float(near), "format": well_formed(text)}


@mistake("math_reward")
def a_hundredth_off(text, answer):
    """A reward was paid for an answer less than a hundredth off.

    Hint: Which answers beside the right one are as near as that? The exercise asks for the same value.
    """
    number = as_number(extract_answer(text))
    near = number is not None and abs(number - Fraction(answer)) < Fraction("0.01")
    return {"accuracy": float(near), "format": well_formed(text)}


@mistake("math_reward")
def a_millionth_off(text, answer):
    """A reward was paid for an answer less than a millionth off.

    Hint: Which answers beside the right one are as near as that? The exercise asks for the same value.
    """
    number = as_number(extract_answer(text))
    near = number is not None and abs(number - Fraction(answer)) < Fraction("0.000001")
    return {"accuracy": float(near), "format": well_formed(text)}


@mistake("math_reward")
def commas_taken_out(text, answer):
    """Commas were taken out of the answer before it was read.

    Hint: What is 1,2 without its comma? And what does the exercise say a number is made of?
    """
    inside = (extract_answer(text) or "").replace(",", "")
    return {"accuracy": float(as_number(inside) == Fraction(answer)), "format": well_formed(text)}


@mistake("math_reward")
def units_taken_out(text, answer):
    """Commas, dollars and percent signs were taken out of the answer before it was read.

    Hint: Is 12% equal to 12? What does the exercise say a number is made of?
    """
    inside = (extract_answer(text) or "").replace(",", "").replace("$", "").replace("%", "")
    return {"accuracy": float(as_number(inside) == Fraction(answer)), "format": well_formed(text)}


@mistake("math_reward")
def dots_taken_off(text, answer):
    """Dots at the end of the answer were taken off before it was read.

    Hint: Is 12... a number? What does the exercise say a number is made of?
    """
    inside = (extract_answer(text) or "").rstrip(".")
    return {"accuracy": float(as_number(inside) == Fraction(answer)), "format": well_formed(text)}


@mistake("math_reward")
def foreign_digits_paid(text, answer):
    """Digits of other scripts were read as numbers, as float and \\d do.

    Hint: Print float('١٢'). Which digits does the exercise name, and which ones does \\d match without re.ASCII?
    """
    inside = extract_answer(text)
    number = inside is not None and re.fullmatch(r"[+-]?\d+(\.\d*)?", inside) is not None
    return {"accuracy": float(number and float(inside) == float(answer)), "format": well_formed(text)}


@mistake("math_reward")
def answer_cut_to_an_integer(text, answer):
    """The right number was turned into a whole one.

    Hint: May the right number have decimals? Whose decimals does int cut off?
    """
    return {"accuracy": float(as_number(extract_answer(text)) == int(float(answer))), "format": well_formed(text)}


@mistake("math_reward")
def any_number_counts(text, answer):
    """A reward was paid when any number of the text was right.

    Hint: A model that lists every number from 0 to 36 would be paid each time. Which number did it commit to?
    """
    numbers = re.findall(r"[+-]?\d+(?:\.\d+)?", text)
    return {"accuracy": float(any(float(n) == float(answer) for n in numbers)), "format": well_formed(text)}


@mistake("math_reward")
def lines_outside(text, answer):
    """Lines before and after the two parts got through: with re.MULTILINE ^ and $ match at every line.

    Hint: Which function of re asks about the whole text, and needs neither ^ nor $?
    """
    once = all(text.count(tag) == 1 for tag in ("<think>", "</think>", "<answer>", "</answer>"))
    found = re.search(r"^\s*<think>.*</think>\s*<answer>.*</answer>\s*$", text, re.DOTALL | re.MULTILINE)
    return {"accuracy": right_value(text, answer), "format": float(once and found is not None)}


@mistake("math_reward")
def no_less_than_in_a_part(text, answer):
    """A < inside of a part was refused.

    Hint: Your pattern keeps tags out of the parts. What else does it keep out?
    """
    found = re.fullmatch(r"\s*<think>[^<]*</think>\s*<answer>[^<]*</answer>\s*", text)
    return {"accuracy": right_value(text, answer), "format": float(found is not None)}


@mistake("math_reward")
def ends_only(text, answer):
    """The tags were counted and the two ends of the text looked at, but not what stands between the parts, nor their order.

    Hint: Which tags may stand in the middle, in which order, and what may stand between them?
    """
    once = all(text.count(tag) == 1 for tag in ("<think>", "</think>", "<answer>", "</answer>"))
    ends = text.strip().startswith("<think>") and text.strip().endswith("</answer>")
    return {"accuracy": right_value(text, answer), "format": float(once and ends)}


@mistake("math_reward")
def format_wants_a_number(text, answer):
    """The format was refused where the answer is no number.

    Hint: The format speaks of tags and of what stands outside. Which of the two rules is about numbers?
    """
    return {
        "accuracy": right_value(text, answer),
        "format": well_formed(text) * float(bool(re.fullmatch(r"\s*[\d.]+\s*", extract_answer(text) or ""))),
    }


@mistake("math_reward")
def answer_must_be_there(text, answer):
    """An empty answer was refused.

    Hint: The format speaks of tags and of what stands outside. Does it say anything about what stands inside?
    """
    return {"accuracy": right_value(text, answer), "format": well_formed(text) * float(extract_answer(text) != "")}


@mistake("math_reward")
def format_in_any_case(text, answer):
    """Tags in capitals were accepted.

    Hint: Which flag of the re module, or which method of str, makes <Think> equal to <think>? Does the exercise?
    """
    return {"accuracy": right_value(text, answer), "format": well_formed(text.lower())}


@mistake("math_reward")
def white_space_before_punished(text, answer):
    """White space before the thought was refused.

    Hint: Many models begin with a line break. What does the exercise say about it?
    """
    return {"accuracy": right_value(text, answer), "format": well_formed(text) * float(text.startswith("<think>"))}


@mistake("math_reward")
def minus_refused(text, answer):
    """A minus was not taken for a part of a number: a right negative answer earned nothing.

    Hint: Which signs does your pattern of a number allow? Which ones does the exercise?
    """
    inside = extract_answer(text) or ""
    return {"accuracy": 0.0 if inside.startswith("-") else right_value(text, answer), "format": well_formed(text)}


@mistake("math_reward")
def a_hundredth_off_and_foreign_digits(text, answer):
    """A reward was paid for an answer less than a hundredth off, and for digits of other scripts.

    Hint: The exercise asks for the same value; which answers are as near as yours allows? And which digits does \\d match without re.ASCII?
    """
    value = in_any_digits(extract_answer(text))
    return {"accuracy": float(value is not None and abs(value - float(answer)) < 0.01), "format": well_formed(text)}


@mistake("math_reward")
def units_taken_out_and_foreign_digits(text, answer):
    """Commas, dollars and percent signs were taken out of the answer before it was read, and digits of other scripts were paid.

    Hint: Is 12% equal to 12? What does the exercise say a number is made of, and which digits does \\d match without re.ASCII?
    """
    inside = (extract_answer(text) or "").replace(",", "").replace("$", "").replace("%", "")
    return {"accuracy": float(in_any_digits(inside) == float(answer)), "format": well_formed(text)}


@mistake("math_reward")
def white_space_before_punished_and_foreign_digits(text, answer):
    """White space before the thought was refused, and digits of other scripts were read as numbers, as float and \\d do.

    Hint: Many models begin with a line break: does your pattern let them? And print float('١٢').
    """
    right = in_any_digits(extract_answer(text)) == float(answer)
    return {"accuracy": float(right), "format": well_formed(text) * float(text.startswith("<think>"))}


@mistake("math_reward")
def no_less_than_in_a_part_and_foreign_digits(text, answer):
    """A < inside of a part was refused, and digits of other scripts were read as numbers, as float and \\d do.

    Hint: Your pattern keeps tags out of the parts: what else does it keep out? And print float('١٢').
    """
    found = re.fullmatch(r"\s*<think>[^<]*</think>\s*<answer>[^<]*</answer>\s*", text)
    return {"accuracy": float(in_any_digits(extract_answer(text)) == float(answer)), "format": float(found is not None)}


@mistake("math_reward")
def format_needs_accuracy_and_foreign_digits(text, answer):
    """The format was paid only where the answer was right, and digits of other scripts were read as numbers, as float and \\d do.

    Hint: What does a wrong answer in the agreed format earn? And print float('١٢').
    """
    accuracy = float(in_any_digits(extract_answer(text)) == float(answer))
    return {"accuracy": accuracy, "format": well_formed(text) * accuracy}


@right("math_reward")
def by_float(text, answer):
    """A regular expression for numbers, then float."""
    inside = extract_answer(text)
    number = inside is not None and re.match(r"^[+-]?[0-9]+(\.[0-9]+)?$", inside) is not None
    return {"accuracy": 1.0 if number and float(inside) == float(answer) else 0.0, "format": well_formed(text)}


@right("math_reward")
def by_float_and_except(text, answer):
    """float and an except branch."""
    try:
        inside = extract_answer(text)
        accuracy = 1.0 if inside.isascii() and abs(float(inside) - float(answer)) < 1e-9 else 0.0
    except (AttributeError, ValueError):
        accuracy = 0.0
    return {"format": well_formed(text), "accuracy": accuracy}


@right("math_reward")
def by_isclose(text, answer):
    """re.compile, math.isclose as it comes, and True for 1."""
    number = re.compile(r"[+-]?[0-9]+(?:[.][0-9]*)?")
    inside = extract_answer(text)
    paid = inside is not None and number.fullmatch(inside) is not None and math.isclose(float(inside), float(answer))
    return {"accuracy": paid, "format": well_formed(text)}


@right("math_reward")
def by_fraction(text: str, answer: str) -> dict[str, float]:
    """Exact fractions."""
    return {"accuracy": right_value(text, answer), "format": well_formed(text)}


@right("math_reward")
def own_reading(text, answer):
    """Finds the answer by itself, without extract_answer."""
    found = extract_answer_plain(text)
    return {"accuracy": float(as_number(found) == Fraction(answer)), "format": well_formed(text)}


@right("math_reward")
def by_hand(text, answer):
    """No regular expression: strip, cut, compare, digit by digit."""
    inside = extract_answer(text)
    digits = (inside or "").lstrip("+-") if inside and inside[:2] not in ("+-", "-+", "--", "++") else ""
    number = digits.replace(".", "", 1).isdecimal() and digits.isascii()
    rest, form = text.strip(), 0.0
    if rest.startswith("<think>") and rest.endswith("</answer>"):
        middle = rest[7:-9].split("</think>")
        if len(middle) == 2 and "<think>" not in rest[7:] and middle[1].lstrip().startswith("<answer>"):
            form = float(rest.count("<answer>") == rest.count("</answer>") == 1)
    return {"accuracy": float(number and float(inside) == float(answer)), "format": form}


@right("math_reward")
def by_tempered_pattern(text, answer):
    """One regular expression in which no tag fits inside a part, and booleans."""
    part = r"(?:(?!</?(?:think|answer)>).)*"
    pattern = re.compile(rf"\s*<think>{part}</think>\s*<answer>{part}</answer>\s*", re.DOTALL)
    return {"accuracy": right_value(text, answer) == 1.0, "format": pattern.fullmatch(text) is not None}


@right("math_reward")
def by_tag_sequence(text, answer):
    """The sequence of all tags, and what stands outside."""
    tags = re.findall(r"</?(?:think|answer)>", text)
    outside = re.sub(r"<think>.*</think>|<answer>.*</answer>", "", text, flags=re.DOTALL)
    form = tags == ["<think>", "</think>", "<answer>", "</answer>"] and outside.strip() == ""
    return {"accuracy": right_value(text, answer), "format": float(form)}


# ---- token_log_probs ----


@mistake("token_log_probs")
def no_temperature(logits, tokens, temperature=1.0):
    """The temperature was left out.

    Hint: The tokens were drawn from a distribution that the temperature reshaped. Whose log-probability do you give?
    """
    return torch.log_softmax(logits, -1).gather(-1, tokens[..., None])[..., 0]


@mistake("token_log_probs")
def times_temperature(logits, tokens, temperature=1.0):
    """The logits were multiplied by the temperature, not divided.

    Hint: A high temperature makes the distribution flatter. Do larger logits do that, or smaller ones?
    """
    return torch.log_softmax(logits * temperature, -1).gather(-1, tokens[..., None])[..., 0]


@mistake("token_log_probs")
def temperature_afterwards(logits, tokens, temperature=1.0):
    """The log-probabilities were divided by the temperature, not the logits.

    Hint: Do the probabilities still add up to 1 afterwards?
    """
    return torch.log_softmax(logits, -1).gather(-1, tokens[..., None])[..., 0] / temperature


@mistake("token_log_probs")
def temperature_in_one_place(logits, tokens, temperature=1.0):
    """The chosen logit was divided by the temperature, but the normalising term was made of the undivided logits.

    Hint: Which logits does the numerator of a softmax see, and which ones its denominator?
    """
    return logits.gather(-1, tokens[..., None])[..., 0] / temperature - logits.logsumexp(-1)


@mistake("token_log_probs")
def probabilities(logits, tokens, temperature=1.0):
    """Probabilities came back instead of their logarithms.

    Hint: The loss takes a difference of what you return, and then exp. What would that be of two probabilities?
    """
    return torch.softmax(logits / temperature, -1).gather(-1, tokens[..., None])[..., 0]


@mistake("token_log_probs")
def raw_logits(logits, tokens, temperature=1.0):
    """The logits were picked and not normalised.

    Hint: A logit says nothing by itself. Add 100 to all of them: what happens to the probabilities, and what to your result?
    """
    return (logits / temperature).gather(-1, tokens[..., None])[..., 0]


@mistake("token_log_probs")
def log_of_softmax(logits, tokens, temperature=1.0):
    """The logarithm was taken of a softmax that can underflow to 0.

    Hint: In any float exp(-2000) is 0, and its logarithm is not finite. Which function of torch takes both steps in one?
    """
    return torch.softmax(logits / temperature, -1).log().gather(-1, tokens[..., None])[..., 0]


@mistake("token_log_probs")
def log_with_epsilon(logits, tokens, temperature=1.0):
    """A small number was added inside the logarithm.

    Hint: All probabilities far below that number get nearly the same logarithm. Which function of torch needs no such crutch?
    """
    return (torch.softmax(logits / temperature, -1) + 1e-8).log().gather(-1, tokens[..., None])[..., 0]


@mistake("token_log_probs")
def normalised_over_tokens(logits, tokens, temperature=1.0):
    """The logits were normalised over the positions instead of the vocabulary.

    Hint: At each position some token must be chosen. Along which dimension do probabilities add up to 1?
    """
    return torch.log_softmax(logits / temperature, 1).gather(-1, tokens[..., None])[..., 0]


@mistake("token_log_probs")
def shifted(logits, tokens, temperature=1.0):
    """The tokens were shifted by one, although logits and tokens are aligned already.

    Hint: For each token response_logits gives the logits that chose it. What would a second shift do?
    """
    log_probs = torch.log_softmax(logits / temperature, -1)[:, :-1].gather(-1, tokens[:, 1:, None])[..., 0]
    return F.pad(log_probs, (1, 0))


@mistake("token_log_probs")
def best_token(logits, tokens, temperature=1.0):
    """The most likely token was taken instead of the one that was written.

    Hint: Which argument says what token was drawn, and where does it come into your function?
    """
    return torch.log_softmax(logits / temperature, -1).max(-1).values


@mistake("token_log_probs")
def negative_log_likelihood(logits, tokens, temperature=1.0):
    """Minus the log-probability came back, which is what cross_entropy returns.

    Hint: Can the logarithm of a probability be positive?
    """
    return F.cross_entropy((logits / temperature).transpose(1, 2), tokens, reduction="none")


@mistake("token_log_probs")
def one_per_answer(logits, tokens, temperature=1.0):
    """The tokens of an answer were added up.

    Hint: How many numbers does the text ask for: one for each token, or one for each answer?
    """
    return torch.log_softmax(logits / temperature, -1).gather(-1, tokens[..., None])[..., 0].sum(1)


@mistake("token_log_probs")
def last_dimension_kept(logits, tokens, temperature=1.0):
    """A last dimension of size 1 was left.

    Hint: A spare dimension broadcasts silently later on. Which shape does gather return, and which one does the text promise?
    """
    return torch.log_softmax(logits / temperature, -1).gather(-1, tokens[..., None])


@mistake("token_log_probs")
def detached(logits, tokens, temperature=1.0):
    """The log-probabilities were cut off from the graph.

    Hint: Through what should the gradient of the loss flow?
    """
    with torch.no_grad():
        return torch.log_softmax(logits / temperature, -1).gather(-1, tokens[..., None])[..., 0]


@mistake("token_log_probs")
def normaliser_detached(logits, tokens, temperature=1.0):
    """The normalising term was cut off from the graph.

    Hint: The value is right. But when the chosen token rises, all others must fall: who tells them?
    """
    scaled = logits / temperature
    return scaled.gather(-1, tokens[..., None])[..., 0] - scaled.logsumexp(-1).detach()


@mistake("token_log_probs")
def maximum_subtracted(logits, tokens, temperature=1.0):
    """The largest logit was subtracted where the log of the sum of exponentials belongs.

    Hint: The maximum is what the normaliser looks like when one token is all but certain. And otherwise?
    """
    scaled = logits / temperature
    return scaled.gather(-1, tokens[..., None])[..., 0] - scaled.amax(-1)


@mistake("token_log_probs")
def naive_logsumexp(logits, tokens, temperature=1.0):
    """Exponentials were summed that overflow for large logits.

    Hint: In float32 exp(1000) is inf. Which function of torch computes the log of a sum of exponentials safely?
    """
    scaled = logits / temperature
    return scaled.gather(-1, tokens[..., None])[..., 0] - scaled.exp().sum(-1).log()


@mistake("token_log_probs")
def logits_overwritten(logits, tokens, temperature=1.0):
    """The caller's logits were divided by the temperature where they stood.

    Hint: Into whose tensor does an operator like `/=`, or a method that ends in `_`, write?
    """
    scaled = logits.data.div_(temperature) if not logits.requires_grad else logits / temperature
    return torch.log_softmax(scaled, -1).gather(-1, tokens[..., None])[..., 0]


@mistake("token_log_probs")
def probability_at_least_1e_10(logits, tokens, temperature=1.0):
    """Probabilities below 1e-10 were raised to it before the logarithm.

    Hint: All less likely tokens get the same logarithm and no gradient. Which function of torch needs no such crutch?
    """
    return torch.softmax(logits / temperature, -1).clamp(min=1e-10).log().gather(-1, tokens[..., None])[..., 0]


@mistake("token_log_probs")
def probability_at_least_1e_8(logits, tokens, temperature=1.0):
    """Probabilities below 1e-8 were raised to it before the logarithm.

    Hint: All less likely tokens get the same logarithm and no gradient. Which function of torch needs no such crutch?
    """
    return torch.softmax(logits / temperature, -1).clamp(min=1e-8).log().gather(-1, tokens[..., None])[..., 0]


@mistake("token_log_probs")
def padding_ignored(logits, tokens, temperature=1.0):
    """The log-probability of <pad> was set to 0, as cross_entropy does with its ignore_index.

    Hint: Which tokens count is the work of the mask. What does the formula give for a token with the number of <pad>?
    """
    scaled = (logits / temperature).flatten(0, 1)
    return -F.cross_entropy(scaled, tokens.flatten(), ignore_index=PAD, reduction="none").view(tokens.shape)


@right("token_log_probs")
def log_softmax_gather(logits, tokens, temperature=1.0):
    """log_softmax, then gather."""
    return torch.log_softmax(logits / temperature, dim=-1).gather(-1, tokens.unsqueeze(-1)).squeeze(-1)


@right("token_log_probs")
def cross_entropy_negated(logits, tokens, temperature=1.0):
    """Minus the cross entropy."""
    n, t, v = logits.shape
    return -F.cross_entropy((logits / temperature).reshape(n * t, v), tokens.reshape(n * t), reduction="none").view(n, t)


@right("token_log_probs")
def categorical(logits, tokens, temperature=1.0):
    """torch.distributions."""
    return torch.distributions.Categorical(logits=logits / temperature, validate_args=False).log_prob(tokens)


@right("token_log_probs")
def by_one_hot(logits, tokens, temperature=1.0):
    """A one-hot matrix and a sum."""
    return (F.one_hot(tokens, logits.shape[-1]) * torch.log_softmax(logits / temperature, -1)).sum(-1)


@right("token_log_probs")
def by_fancy_index(logits, tokens, temperature=1.0):
    """Indexing by rows and columns."""
    n, t = tokens.shape
    return torch.log_softmax(logits / temperature, -1)[torch.arange(n)[:, None], torch.arange(t)[None, :], tokens]


@right("token_log_probs")
def row_by_row(logits, tokens, temperature=1.0):
    """A loop over answers and tokens, to save memory."""
    rows = [torch.stack([torch.log_softmax(z / temperature, -1)[t] for z, t in zip(zs, ts)]) for zs, ts in zip(logits, tokens)]
    return torch.stack(rows)


@right("token_log_probs")
def in_double(logits, tokens, temperature=1.0):
    """float64 inside."""
    return torch.log_softmax(logits.double() / temperature, -1).gather(-1, tokens[..., None])[..., 0].to(logits.dtype)


@right("token_log_probs")
def max_taken_out(logits, tokens, temperature=1.0):
    """The log of the sum of exponentials by hand, the maximum taken out."""
    z = logits / temperature
    z = z - z.amax(-1, keepdim=True).detach()
    return z.gather(-1, tokens[..., None])[..., 0] - z.exp().sum(-1).log()


# ---- response_mask ----


@mistake("response_mask")
def eos_dropped(tokens, eos_id):
    """The EOS was left out of the answer.

    Hint: To stop was a choice of the policy too. What happens to a policy that is never taught when to stop?
    """
    return (tokens == eos_id).long().cumsum(-1) == 0


@mistake("response_mask")
def pad_is_eos(tokens, eos_id):
    """Every EOS was masked as if it were padding, and nothing else was.

    Hint: Which EOS belongs to the answer, and what about the other tokens that come after it?
    """
    return tokens != eos_id


@mistake("response_mask")
def every_eos_counts(tokens, eos_id):
    """Every EOS was counted as part of the answer.

    Hint: How often does an answer end? What if the padding is made of EOS?
    """
    ends = tokens == eos_id
    return (ends.long().cumsum(-1) == 0) | ends


@mistake("response_mask")
def up_to_the_second_eos(tokens, eos_id):
    """The tokens after the first EOS were counted too, up to a second one or to the end.

    Hint: Write down the running count of EOS for a row such as 4, 9, 0, 0. Where has the answer ended, and what is the count from there on?
    """
    return (tokens == eos_id).cumsum(-1) <= 1


@mistake("response_mask")
def last_eos(tokens, eos_id):
    """The last EOS was taken as the end.

    Hint: With padding made of EOS, the last one stands at the very end of the tensor. Which one ended the answer?
    """
    ends = (tokens == eos_id).long()
    after = ends.flip(-1).cumsum(-1).flip(-1)
    return (after > 0) | (ends.sum(-1, keepdim=True) == 0)


@mistake("response_mask")
def argmax_of_nothing(tokens, eos_id):
    """The place of the EOS was taken from argmax, which is 0 where there is none.

    Hint: What is the argmax of a row of zeros, and what should a row without an end give?
    """
    end = (tokens == eos_id).int().argmax(-1)
    return torch.arange(tokens.shape[1]) <= end[:, None]


@mistake("response_mask")
def endless_is_empty(tokens, eos_id):
    """An answer that never ends got no tokens at all.

    Hint: It was cut off. Who chose the tokens that are there?
    """
    ends = (tokens == eos_id).long()
    return (ends.cumsum(-1) - ends == 0) & ends.any(-1, keepdim=True)


@mistake("response_mask")
def zeros_are_padding(tokens, eos_id):
    """Token 0 was taken for padding.

    Hint: May 0 be an ordinary token? Which token does the exercise speak of?
    """
    return tokens != 0


@mistake("response_mask")
def everything(tokens, eos_id):
    """All tokens were counted, padding included.

    Hint: Who chose what stands after the end?
    """
    return torch.ones_like(tokens)


@mistake("response_mask")
def inverted(tokens, eos_id):
    """The tokens after the end were marked, not those of the answer.

    Hint: What does a 1 mean here?
    """
    ends = (tokens == eos_id).long()
    return ends.cumsum(-1) - ends > 0


@mistake("response_mask")
def along_the_batch(tokens, eos_id):
    """The count ran down the batch instead of along the answer.

    Hint: Which dimension runs over answers, and which one over the tokens of one?
    """
    ends = (tokens == eos_id).long()
    return ends.cumsum(0) - ends == 0


@mistake("response_mask")
def one_too_many(tokens, eos_id):
    """One token beyond the end was counted.

    Hint: Try [4, 9, 0] with an EOS of 9. How many tokens belong to it?
    """
    ends = (tokens == eos_id).long().cumsum(-1)
    return F.pad(ends, (2, 0))[:, :-2] == 0


@mistake("response_mask")
def only_one_row(tokens, eos_id):
    """The end of the first answer was used for all of them.

    Hint: Where does the second answer end, and where in your code does it say so?
    """
    ends = (tokens[:1] == eos_id).long()
    return (ends.cumsum(-1) - ends == 0).expand_as(tokens)


@mistake("response_mask")
def flattened(tokens, eos_id):
    """The count ran on across the answers, so that the second one was over when the first was.

    Hint: Does a cumsum over a flattened tensor start anew in each row?
    """
    ends = (tokens == eos_id).long().flatten()
    return (ends.cumsum(0) - ends == 0).view_as(tokens)


@mistake("response_mask")
def tail_of_eos_only(tokens, eos_id):
    """The EOS at the end of a row was cut off, but what stands between two of them was kept.

    Hint: After the first EOS, does an ordinary token still count?
    """
    mask = torch.ones_like(tokens, dtype=torch.bool)
    for i, row in enumerate(tokens.tolist()):
        length = len(row)
        while length > 1 and row[length - 1] == eos_id and row[length - 2] == eos_id:
            length -= 1
        mask[i, length:] = False
    return mask


@mistake("response_mask")
def eos_zero_ignored(tokens, eos_id):
    """An eos_id of 0 was taken for none at all.

    Hint: Python counts 0 as false, yet it is a token like any other. Which question does your `if` ask of eos_id?
    """
    ends = (tokens == eos_id).long() if eos_id else torch.zeros_like(tokens)
    return ends.cumsum(-1) - ends == 0


@mistake("response_mask")
def tokens_overwritten(tokens, eos_id):
    """The mask was written into the caller's tokens.

    Hint: Into whose tensor does an assignment to `tokens[...]` write? Somebody still wants to decode them.
    """
    ends = (tokens == eos_id).long()
    tokens[:] = ends.cumsum(-1) - ends == 0
    return tokens.clone()


@mistake("response_mask")
def count_of_eight_bits(tokens, eos_id):
    """The EOS were counted in a type of eight bits, which is back at 0 after 256 of them.

    Hint: What is the largest number of your count's type? How many EOS may stand behind a short answer beside a long one?
    """
    ends = (tokens == eos_id).to(torch.uint8)
    return ends.cumsum(1, dtype=torch.uint8) - ends == 0


@right("response_mask")
def by_argmax(tokens, eos_id):
    """argmax where there is an end, the whole row elsewhere."""
    ends = tokens == eos_id
    end = torch.where(ends.any(-1), ends.int().argmax(-1), tokens.shape[1] - 1)
    return torch.arange(tokens.shape[1], device=tokens.device)[None, :] <= end[:, None]


@right("response_mask")
def by_cumprod(tokens, eos_id):
    """A product of "not yet" that is shifted by one; floats."""
    alive = (tokens != eos_id).float().cumprod(-1)
    return torch.cat([torch.ones_like(alive[:, :1]), alive[:, :-1]], 1)


@right("response_mask")
def by_rows(tokens, eos_id):
    """A loop over rows."""
    mask = torch.zeros(tokens.shape, dtype=torch.int64)
    for i, row in enumerate(tokens.tolist()):
        mask[i, : row.index(eos_id) + 1 if eos_id in row else len(row)] = 1
    return mask


@right("response_mask")
def by_flag(tokens, eos_id):
    """A loop over time that remembers who has ended."""
    done = torch.zeros(len(tokens), dtype=torch.bool, device=tokens.device)
    columns = []
    for t in range(tokens.size(1)):
        columns.append(~done)
        done = done | tokens[:, t].eq(eos_id)
    return torch.stack(columns, dim=1)


@right("response_mask")
def first_or_before(tokens, eos_id):
    """Before the first EOS, or the first EOS itself."""
    ends = tokens.eq(eos_id)
    count = ends.cumsum(1)
    return (count == 0) | (ends & (count == 1))


@right("response_mask")
def by_matrix(tokens, eos_id):
    """A triangular matrix counts the ends before each token."""
    n = tokens.shape[1]
    return ((tokens == eos_id).float() @ torch.triu(torch.ones(n, n), 1) < 0.5).float()


@right("response_mask")
def by_smallest_index(tokens, eos_id):
    """The smallest index of an EOS by amin."""
    place = torch.arange(tokens.shape[1]).expand_as(tokens)
    end = torch.where(tokens == eos_id, place, tokens.shape[1]).amin(1, keepdim=True)
    return (place <= end).to(torch.uint8)


# ---- collect ----


def right_answers(prompts, answers=1):
    """The totals of prompts as text, each as often as it is answered."""
    return [str(n) for n in totals(prompts).tolist() for _ in range(answers)]


def usual_batch(policy, prompts, answers, reward, temperature, draw, tokens=None, texts=None, right=None, mask=None, ids=None, paid=None):
    """The rollout as it should be, with parts that can be exchanged."""
    tokens = sample(policy, prompts, answers, temperature, draw) if tokens is None else tokens
    written = tokens[:, prompts.shape[1] :]
    if paid is None:
        paid = reward(decode(written) if texts is None else texts(tokens), right_answers(prompts, answers) if right is None else right)
    return {
        "tokens": tokens,
        "prompt_length": prompts.shape[1],
        "mask": response_mask(written, EOS) if mask is None else mask(tokens),
        "rewards": torch.as_tensor(paid).float(),
        "group_ids": torch.arange(len(prompts)).repeat_interleave(answers) if ids is None else ids,
    }


@mistake("collect")
def ids_in_turn(policy, prompts, answers, reward, temperature=1.0, draw=None):
    """The group ids run 0, 1, 2, 0, 1, 2, although the answers to one prompt stand together.

    Hint: Print the ids beside the decoded prompts. Which function repeats each number in place?
    """
    return usual_batch(policy, prompts, answers, reward, temperature, draw, ids=torch.arange(len(prompts)).repeat(answers))


@mistake("collect")
def groups_and_answers_exchanged(policy, prompts, answers, reward, temperature=1.0, draw=None):
    """The group ids were made for G prompts with B answers each instead of B prompts with G answers.

    Hint: With 3 prompts and 2 answers each, how many different ids are there?
    """
    return usual_batch(policy, prompts, answers, reward, temperature, draw, ids=torch.arange(answers).repeat_interleave(len(prompts)))


@mistake("collect")
def an_id_for_every_answer(policy, prompts, answers, reward, temperature=1.0, draw=None):
    """Every answer got an id of its own, so that each is compared with itself alone.

    Hint: What is the advantage of the only member of a group?
    """
    return usual_batch(policy, prompts, answers, reward, temperature, draw, ids=torch.arange(len(prompts) * answers))


@mistake("collect")
def one_group_for_all(policy, prompts, answers, reward, temperature=1.0, draw=None):
    """All answers got the same group id.

    Hint: Answers to different prompts are no siblings. Who is to be compared with whom?
    """
    return usual_batch(policy, prompts, answers, reward, temperature, draw, ids=torch.zeros(len(prompts) * answers, dtype=torch.int64))


@mistake("collect")
def totals_for_ids(policy, prompts, answers, reward, temperature=1.0, draw=None):
    """The right answers were taken for group ids; different prompts may have the same one, and the ids are texts or numbers of it.

    Hint: Two prompts with the same total are two prompts. What do they share, and what not?
    """
    return usual_batch(policy, prompts, answers, reward, temperature, draw, ids=totals(prompts).repeat_interleave(answers) % 9)


@mistake("collect")
def one_id_per_prompt(policy, prompts, answers, reward, temperature=1.0, draw=None):
    """There is one group id for each prompt, not for each answer.

    Hint: How many answers are there, and how many ids did you make?
    """
    return usual_batch(policy, prompts, answers, reward, temperature, draw, ids=torch.arange(len(prompts)))


@mistake("collect")
def whole_texts_paid(policy, prompts, answers, reward, temperature=1.0, draw=None):
    """The reward was given the whole texts, prompts included.

    Hint: The policy wrote the answers, not the prompts. Which columns of the tokens did it write?
    """
    return usual_batch(policy, prompts, answers, reward, temperature, draw, texts=decode)


@mistake("collect")
def one_place_late(policy, prompts, answers, reward, temperature=1.0, draw=None):
    """The answers were cut out one place too late: their first token is lost.

    Hint: Places are counted from 0. At which place does the first token after a prompt of length P stand?
    """
    start = prompts.shape[1] + 1
    return usual_batch(policy, prompts, answers, reward, temperature, draw, texts=lambda tokens: decode(tokens[:, start:]))


@mistake("collect")
def one_place_early(policy, prompts, answers, reward, temperature=1.0, draw=None):
    """The answers were cut out one place too early: the last token of the prompt stands before them.

    Hint: Places are counted from 0. At which place does the first token after a prompt of length P stand?
    """
    start = prompts.shape[1] - 1
    return usual_batch(policy, prompts, answers, reward, temperature, draw, texts=lambda tokens: decode(tokens[:, start:]))


@mistake("collect")
def right_answers_in_turn(policy, prompts, answers, reward, temperature=1.0, draw=None):
    """The list of right answers was repeated as a whole, so that most answers are judged by another prompt's total.

    Hint: Answers to one prompt stand together. In which order must the right answers stand?
    """
    return usual_batch(policy, prompts, answers, reward, temperature, draw, right=right_answers(prompts) * answers)


@mistake("collect")
def right_answers_once(policy, prompts, answers, reward, temperature=1.0, draw=None):
    """There is one right answer for each prompt, not for each answer, so that only the first answers are paid.

    Hint: How long are the two lists that reward gets? zip stops at the end of the shorter one.
    """
    return usual_batch(policy, prompts, answers, reward, temperature, draw, right=right_answers(prompts))


@mistake("collect")
def right_answers_as_numbers(policy, prompts, answers, reward, temperature=1.0, draw=None):
    """The right answers were given as numbers, not as text.

    Hint: What type has `answer` in math_reward's table?
    """
    return usual_batch(policy, prompts, answers, reward, temperature, draw, right=[int(n) for n in right_answers(prompts, answers)])


@mistake("collect")
def right_answers_as_written(policy, prompts, answers, reward, temperature=1.0, draw=None):
    """What the model answered was taken for the right answer.

    Hint: Who knows the truth: the policy, or the prompt?
    """
    tokens = sample(policy, prompts, answers, temperature, draw)
    told = [re.sub("[^0-9]", "", text) or "0" for text in decode(tokens[:, prompts.shape[1] :])]
    return usual_batch(policy, prompts, answers, reward, temperature, draw, tokens=tokens, right=told)


@mistake("collect")
def whole_numbers_kept(policy, prompts, answers, reward, temperature=1.0, draw=None):
    """Rewards that are whole numbers made a tensor of integers.

    Hint: Of which dtype is torch.tensor([1, 0])? How do you ask for another?
    """
    batch = usual_batch(policy, prompts, answers, reward, temperature, draw, paid=torch.zeros(len(prompts) * answers))
    return batch | {"rewards": torch.tensor(reward(decode(batch["tokens"][:, prompts.shape[1] :]), right_answers(prompts, answers)))}


@mistake("collect")
def rewards_cut_to_integers(policy, prompts, answers, reward, temperature=1.0, draw=None):
    """The rewards were cut to whole numbers.

    Hint: A reward may be 0.5. Which dtype can hold it?
    """
    batch = usual_batch(policy, prompts, answers, reward, temperature, draw)
    return batch | {"rewards": batch["rewards"].long().float()}


@mistake("collect")
def rewards_normalised(policy, prompts, answers, reward, temperature=1.0, draw=None):
    """The rewards were normalised already, over the whole batch.

    Hint: The batch holds what was paid. Who makes advantages of it, and from which answers?
    """
    batch = usual_batch(policy, prompts, answers, reward, temperature, draw)
    r = batch["rewards"]
    return batch | {"rewards": (r - r.mean()) / r.std().clamp_min(1e-6)}


@mistake("collect")
def group_means_paid(policy, prompts, answers, reward, temperature=1.0, draw=None):
    """Each answer got the mean of its group's rewards.

    Hint: Within a group all rewards are equal then. What are the advantages?
    """
    batch = usual_batch(policy, prompts, answers, reward, temperature, draw)
    return batch | {"rewards": batch["rewards"].view(-1, answers).mean(1).repeat_interleave(answers)}


@mistake("collect")
def mask_of_the_whole_text(policy, prompts, answers, reward, temperature=1.0, draw=None):
    """The mask covers the whole texts, prompts included.

    Hint: The mask has T - P columns. Whose tokens did the policy choose?
    """
    return usual_batch(policy, prompts, answers, reward, temperature, draw, mask=lambda tokens: response_mask(tokens, EOS))


@mistake("collect")
def mask_of_what_is_no_padding(policy, prompts, answers, reward, temperature=1.0, draw=None):
    """The mask is that of the tokens that are no padding, wherever they stand.

    Hint: A model may write <pad> within an answer. What tells where an answer ends?
    """
    return usual_batch(policy, prompts, answers, reward, temperature, draw, mask=lambda tokens: tokens[:, prompts.shape[1] :] != PAD)


@mistake("collect")
def everything_counts(policy, prompts, answers, reward, temperature=1.0, draw=None):
    """All tokens count, those after the end too.

    Hint: What stands in a row after its answer has ended, and did the policy choose it?
    """
    return usual_batch(
        policy, prompts, answers, reward, temperature, draw, mask=lambda tokens: torch.ones_like(tokens[:, prompts.shape[1] :])
    )


@mistake("collect")
def padding_taken_for_the_end(policy, prompts, answers, reward, temperature=1.0, draw=None):
    """The mask was made with the padding as the token that ends an answer.

    Hint: Which token ends an answer here, PAD or EOS?
    """
    return usual_batch(
        policy, prompts, answers, reward, temperature, draw, mask=lambda tokens: response_mask(tokens[:, prompts.shape[1] :], PAD)
    )


@mistake("collect")
def temperature_forgotten(policy, prompts, answers, reward, temperature=1.0, draw=None):
    """The temperature did not reach sample.

    Hint: collect has an argument that nobody reads. Which?
    """
    return usual_batch(policy, prompts, answers, reward, 1.0, draw)


@mistake("collect")
def sampled_greedily(policy, prompts, answers, reward, temperature=1.0, draw=None):
    """The answers were taken greedily, so that all answers to a prompt are the same.

    Hint: What is the advantage in a group of equal answers?
    """
    return usual_batch(policy, prompts, answers, reward, 0.0, draw)


@mistake("collect")
def generator_forgotten(policy, prompts, answers, reward, temperature=1.0, draw=None):
    """The generator did not reach sample, so that the same seed does not give the same batch.

    Hint: collect has an argument that nobody reads. Which?
    """
    return usual_batch(policy, prompts, answers, reward, temperature, None)


@mistake("collect")
def sampled_twice(policy, prompts, answers, reward, temperature=1.0, draw=None):
    """The prompts were answered twice: once to be paid and once to be learnt from.

    Hint: How often is sample called? The rewards must be those of the tokens in the batch.
    """
    others = sample(policy, prompts, answers, temperature, draw)[:, prompts.shape[1] :]
    return usual_batch(policy, prompts, answers, reward, temperature, draw, texts=lambda tokens: decode(others))


@mistake("collect")
def one_answer_each(policy, prompts, answers, reward, temperature=1.0, draw=None):
    """Each prompt was answered once, and the answer copied.

    Hint: A group learns from the differences between its answers. How many does sample draw for each prompt?
    """
    tokens = sample(policy, prompts, 1, temperature, draw).repeat_interleave(answers, 0)
    return usual_batch(policy, prompts, answers, reward, temperature, draw, tokens=tokens)


@mistake("collect")
def answers_alone(policy, prompts, answers, reward, temperature=1.0, draw=None):
    """The tokens of the batch are the answers alone, without their prompts.

    Hint: grpo_step lets the model read the whole texts again. What would it read?
    """
    batch = usual_batch(policy, prompts, answers, reward, temperature, draw)
    return batch | {"tokens": batch["tokens"][:, prompts.shape[1] :]}


@mistake("collect")
def length_of_the_text(policy, prompts, answers, reward, temperature=1.0, draw=None):
    """The length of the whole text was given as that of the prompt.

    Hint: How many tokens of each row were there before the policy wrote anything?
    """
    batch = usual_batch(policy, prompts, answers, reward, temperature, draw)
    return batch | {"prompt_length": batch["tokens"].shape[1]}


@mistake("collect")
def sorted_by_reward(policy, prompts, answers, reward, temperature=1.0, draw=None):
    """The rewards were sorted while the answers stayed where they were.

    Hint: Reward 0 belongs to answer 0. Does anything change the order of one and not of the other?
    """
    batch = usual_batch(policy, prompts, answers, reward, temperature, draw)
    return batch | {"rewards": batch["rewards"].sort(descending=True).values}


@mistake("collect")
def prompts_in_turn(policy, prompts, answers, reward, temperature=1.0, draw=None):
    """The prompts were repeated as a whole, so that the answers to one prompt do not stand together.

    Hint: Print the decoded rows. `sample` can answer each prompt several times by itself; where do those answers stand?
    """
    tokens = sample(policy, prompts.repeat(answers, 1), 1, temperature, draw)
    right = [str(total) for total in totals(tokens).tolist()]
    return usual_batch(policy, prompts, answers, reward, temperature, draw, tokens=tokens, right=right)


@mistake("collect")
def generator_reset(policy, prompts, answers, reward, temperature=1.0, draw=None):
    """The generator was set back to a seed, so that every batch is drawn by the same chances.

    Hint: The caller's generator goes on from batch to batch. Who else may set its seed?
    """
    if draw is not None:
        draw.manual_seed(0)
    return usual_batch(policy, prompts, answers, reward, temperature, draw)


@mistake("collect")
def ids_as_fractions(policy, prompts, answers, reward, temperature=1.0, draw=None):
    """The group ids are floats; a label is a whole number, as an index needs it.

    Hint: Which operation made fractions of the numbers of the prompts? // divides whole numbers.
    """
    ids = torch.arange(len(prompts)).repeat_interleave(answers) / len(prompts)
    return usual_batch(policy, prompts, answers, reward, temperature, draw, ids=ids)


@mistake("collect")
def totals_of_prompts_for_ids(policy, prompts, answers, reward, temperature=1.0, draw=None):
    """The total of the prompt was taken for a group id; different prompts may have the same one.

    Hint: 1+2 and 2+1 are two prompts with one total. What do their answers share, and what not?
    """
    return usual_batch(policy, prompts, answers, reward, temperature, draw, ids=totals(prompts).repeat_interleave(answers))


@right("collect")
def padded_after_the_end(policy, prompts, answers, reward, temperature=1.0, draw=None):
    """What follows the end of an answer made padding, which `sample` has done already."""
    p = prompts.shape[1]
    tokens = sample(policy, prompts, answers, temperature, draw)
    mask = response_mask(tokens[:, p:], EOS)
    tokens = torch.cat([tokens[:, :p], tokens[:, p:].masked_fill(~mask.bool(), PAD)], 1)
    return usual_batch(policy, prompts, answers, reward, temperature, draw, tokens=tokens, mask=lambda _: mask)


@right("collect")
def totals_of_the_rows(policy, prompts, answers, reward, temperature=1.0, draw=None):
    """The right answers from the rows themselves, everything by keyword, the mask as floats."""
    tokens = sample(model=policy, prompts=prompts, answers=answers, temperature=temperature, draw=draw)
    response = tokens[:, prompts.size(1) :]
    gold = [str(int(n)) for n in totals(tokens)]
    rewards = torch.tensor([float(r) for r in reward(decode(response), gold)], device=tokens.device)
    ids = torch.arange(tokens.size(0), device=tokens.device) // answers
    mask = response_mask(response, EOS).float()
    return {"tokens": tokens, "prompt_length": prompts.size(1), "mask": mask, "rewards": rewards, "group_ids": ids}


@right("collect")
def one_prompt_at_a_time(policy, prompts, answers, reward, temperature=1.0, draw=None):
    """A loop over prompts, the shorter answers padded; the ids count from 1."""
    parts, rewards, ids = [], [], []
    for i, prompt in enumerate(prompts):
        part = sample(policy, prompt[None], answers, temperature=temperature, draw=draw)
        texts = decode(part[:, len(prompt) :])
        rewards += reward(texts, [str(totals(prompt[None]).item())] * answers)
        ids += [i + 1] * answers
        parts.append(part)
    width = max(part.shape[1] for part in parts)
    tokens = torch.cat([F.pad(part, (0, width - part.shape[1]), value=PAD) for part in parts])
    return {
        "tokens": tokens,
        "prompt_length": prompts.shape[1],
        "mask": response_mask(tokens[:, prompts.shape[1] :], EOS),
        "rewards": torch.tensor(rewards, dtype=torch.float32),
        "group_ids": torch.tensor(ids),
    }


@right("collect")
def prompts_repeated_first(policy, prompts, answers, reward, temperature=1.0, draw=None):
    """The prompts repeated before sampling, one answer to each copy; ids by a comprehension."""
    many = prompts.repeat_interleave(answers, dim=0)
    tokens = sample(policy, many, 1, temperature, draw)
    p = many.shape[1]
    paid = reward(decode(tokens[:, p:]), list(map(str, totals(many).tolist())))
    ids = torch.tensor([7 * b - 3 for b in range(len(prompts)) for _ in range(answers)])
    mask, rewards = response_mask(tokens[:, p:], EOS), torch.tensor(paid).double()
    return {"tokens": tokens, "prompt_length": p, "mask": mask, "rewards": rewards, "group_ids": ids}


@right("collect")
def paid_one_by_one(policy, prompts, answers, reward, temperature=1.0, draw=None):
    """The reward called once for each answer; texts kept in the batch as well."""
    with torch.no_grad():
        tokens = sample(policy, prompts, answers, temperature, draw)
    texts = decode(tokens[:, prompts.shape[1] :])
    rewards = torch.zeros(len(texts))
    for i, text in enumerate(texts):
        rewards[i] = reward([text], [str(totals(prompts).tolist()[i // answers])])[0]
    batch = {"tokens": tokens, "prompt_length": prompts.shape[1], "rewards": rewards, "texts": texts}
    batch["mask"] = response_mask(tokens[:, prompts.shape[1] :], EOS)
    batch["group_ids"] = torch.arange(len(prompts)).unsqueeze(1).expand(-1, answers).reshape(-1)
    return batch


@right("collect")
def ids_by_unique(policy, prompts, answers, reward, temperature=1.0, draw=None):
    """Equal prompts share an id, found by unique; the mask as integers."""
    tokens = sample(policy, prompts, answers, temperature, draw)
    start = prompts.shape[1]
    ids = tokens[:, :start].unique(dim=0, return_inverse=True)[1]
    batch = usual_batch(policy, prompts, answers, reward, temperature, draw, tokens=tokens, ids=ids)
    return batch | {"mask": response_mask(tokens[:, start:], EOS).long()}


# ---- grpo_step ----


def log_probs_of(model, batch):
    """Log-probabilities of the answers' tokens [N, T]."""
    start = batch["prompt_length"]
    return token_log_probs(response_logits(model, batch["tokens"], start), batch["tokens"][:, start:])


def usual_step(policy, reference, optimizer, batch, inner_epochs, clip_range, beta, advantages=None, old=None, ref=None, mask=None, sign=1):
    """The step as it should be, with parts that can be exchanged."""
    advantages = group_advantages(batch["rewards"], batch["group_ids"]) if advantages is None else advantages
    mask = batch["mask"] if mask is None else mask
    with torch.no_grad():
        ref = log_probs_of(reference, batch) if ref is None else ref
        old = log_probs_of(policy, batch) if old is None else old
    for _ in range(inner_epochs):
        loss, metrics = grpo_objective(log_probs_of(policy, batch), old, ref, advantages, mask, clip_range, beta)
        optimizer.zero_grad()
        (sign * loss).backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
    return metrics


@mistake("grpo_step")
def wrong_sign(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """The step went up the loss instead of down.

    Hint: A loss is to be minimised, and grpo_objective gives one. Is there a minus too many?
    """
    return usual_step(policy, reference, optimizer, batch, inner_epochs, clip_range, beta, sign=-1)


@mistake("grpo_step")
def negated_advantages(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """The sign of the advantages was turned round: bad answers were encouraged.

    Hint: Better than the siblings is positive. Is there a minus too many before the objective?
    """
    a = -group_advantages(batch["rewards"], batch["group_ids"])
    return usual_step(policy, reference, optimizer, batch, inner_epochs, clip_range, beta, advantages=a)


@mistake("grpo_step")
def rewards_for_advantages(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """The rewards were used as they are, without the group.

    Hint: What did you bring group_advantages along for?
    """
    return usual_step(policy, reference, optimizer, batch, inner_epochs, clip_range, beta, advantages=batch["rewards"])


@mistake("grpo_step")
def whole_batch_normalised(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """Every answer was measured against the whole batch instead of its group.

    Hint: Which entry of the batch says who belongs together?
    """
    a = group_advantages(batch["rewards"], torch.zeros_like(batch["group_ids"]))
    return usual_step(policy, reference, optimizer, batch, inner_epochs, clip_range, beta, advantages=a)


@mistake("grpo_step")
def misaligned(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """The advantages were sorted by group while the answers stayed where they were.

    Hint: Advantages come back in the order of the rewards. Does anything change the order of one and not of the other?
    """
    order = batch["group_ids"].argsort(stable=True)
    a = group_advantages(batch["rewards"][order], batch["group_ids"][order])
    return usual_step(policy, reference, optimizer, batch, inner_epochs, clip_range, beta, advantages=a)


@mistake("grpo_step")
def groups_by_position(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """Neighbours in the batch were taken for a group, and the ids were ignored.

    Hint: The answers may come mixed up. Which entry of the batch says who belongs together?
    """
    a = group_advantages(batch["rewards"], torch.arange(len(batch["rewards"])) // 5)
    return usual_step(policy, reference, optimizer, batch, inner_epochs, clip_range, beta, advantages=a)


@mistake("grpo_step")
def no_zero_grad(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """The gradients were never set to zero, so that each update repeats all earlier ones.

    Hint: What does backward do with what is already in .grad, and who clears it?
    """
    advantages = group_advantages(batch["rewards"], batch["group_ids"])
    with torch.no_grad():
        ref, old = log_probs_of(reference, batch), log_probs_of(policy, batch)
    for _ in range(inner_epochs):
        loss, metrics = grpo_objective(log_probs_of(policy, batch), old, ref, advantages, batch["mask"], clip_range, beta)
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
    return metrics


@mistake("grpo_step")
def zero_grad_once(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """The gradients were set to zero once per batch, not in each inner epoch.

    Hint: How many times is backward called for one batch?
    """
    advantages = group_advantages(batch["rewards"], batch["group_ids"])
    with torch.no_grad():
        ref, old = log_probs_of(reference, batch), log_probs_of(policy, batch)
    optimizer.zero_grad()
    for _ in range(inner_epochs):
        loss, metrics = grpo_objective(log_probs_of(policy, batch), old, ref, advantages, batch["mask"], clip_range, beta)
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
    return metrics


@mistake("grpo_step")
def zero_grad_too_late(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """The gradients were set to zero between backward and the step.

    Hint: What does the optimizer find when it takes its step?
    """
    advantages = group_advantages(batch["rewards"], batch["group_ids"])
    with torch.no_grad():
        ref, old = log_probs_of(reference, batch), log_probs_of(policy, batch)
    for _ in range(inner_epochs):
        loss, metrics = grpo_objective(log_probs_of(policy, batch), old, ref, advantages, batch["mask"], clip_range, beta)
        loss.backward()
        optimizer.zero_grad()
        optimizer.step()
    return metrics


@mistake("grpo_step")
def no_step(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """The gradient was computed, and no step was taken.

    Hint: All that backward does is fill .grad. Who changes the parameters?
    """
    advantages = group_advantages(batch["rewards"], batch["group_ids"])
    with torch.no_grad():
        ref, old = log_probs_of(reference, batch), log_probs_of(policy, batch)
    for _ in range(inner_epochs):
        loss, metrics = grpo_objective(log_probs_of(policy, batch), old, ref, advantages, batch["mask"], clip_range, beta)
        optimizer.zero_grad()
        loss.backward()
    return metrics


@mistake("grpo_step")
def one_step_at_the_end(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """The gradients of all inner epochs were added up for a single step.

    Hint: What does an inner epoch see that the one before did not, if the policy has not moved in between?
    """
    advantages = group_advantages(batch["rewards"], batch["group_ids"])
    with torch.no_grad():
        ref, old = log_probs_of(reference, batch), log_probs_of(policy, batch)
    optimizer.zero_grad()
    for _ in range(inner_epochs):
        loss, metrics = grpo_objective(log_probs_of(policy, batch), old, ref, advantages, batch["mask"], clip_range, beta)
        loss.backward()
    nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
    optimizer.step()
    return metrics


@mistake("grpo_step")
def one_inner_epoch(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """One update was made, however many inner epochs were asked for.

    Hint: Where is the loop? Is a return inside it?
    """
    return usual_step(policy, reference, optimizer, batch, 1, clip_range, beta)


@mistake("grpo_step")
def old_recomputed(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """The old log-probabilities were computed again in each inner epoch: the ratio is 1 for ever.

    Hint: What does "old" mean: before which update? And when is the clip supposed to act?
    """
    for _ in range(inner_epochs):
        metrics = usual_step(policy, reference, optimizer, batch, 1, clip_range, beta)
    return metrics


@mistake("grpo_step")
def old_after_the_update(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """The old log-probabilities were refreshed after each update.

    Hint: The samples were drawn by the policy before any update. Whose log-probabilities belong in the ratio?
    """
    advantages = group_advantages(batch["rewards"], batch["group_ids"])
    with torch.no_grad():
        ref, old = log_probs_of(reference, batch), log_probs_of(policy, batch)
    for _ in range(inner_epochs):
        loss, metrics = grpo_objective(log_probs_of(policy, batch), old, ref, advantages, batch["mask"], clip_range, beta)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        with torch.no_grad():
            old = log_probs_of(policy, batch)
    return metrics


@mistake("grpo_step")
def old_not_detached(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """The gradient went through the old log-probabilities too: both sides of the ratio cancel.

    Hint: Whatever x does, exp(x - x) is 1. Which of the two may carry the graph?
    """
    advantages = group_advantages(batch["rewards"], batch["group_ids"])
    with torch.no_grad():
        ref = log_probs_of(reference, batch)
    for _ in range(inner_epochs):
        new = log_probs_of(policy, batch)
        loss, metrics = grpo_objective(new, new, ref, advantages, batch["mask"], clip_range, beta)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
    return metrics


@mistake("grpo_step")
def new_computed_once(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """The new log-probabilities were computed once, before the loop.

    Hint: After an update the policy says something else, and a graph can be walked backward once. When must it be asked again?
    """
    advantages = group_advantages(batch["rewards"], batch["group_ids"])
    with torch.no_grad():
        ref = log_probs_of(reference, batch)
    new = log_probs_of(policy, batch)
    for _ in range(inner_epochs):
        loss, metrics = grpo_objective(new, new.detach(), ref, advantages, batch["mask"], clip_range, beta)
        optimizer.zero_grad()
        loss.backward(retain_graph=True)
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        with torch.no_grad():  # as optimizer.step(), which the graph would refuse
            for p in policy.parameters():
                p.data -= optimizer.param_groups[0]["lr"] * p.grad
    return metrics


@mistake("grpo_step")
def ratio_to_the_reference(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """The reference's log-probabilities were taken for the old ones.

    Hint: Two comparisons are made in the loss. Which one is with the policy that wrote the answers?
    """
    with torch.no_grad():
        ref = log_probs_of(reference, batch)
    return usual_step(policy, reference, optimizer, batch, inner_epochs, clip_range, beta, old=ref, ref=ref)


@mistake("grpo_step")
def kl_to_the_old_policy(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """The policy's own old log-probabilities were taken for the reference's.

    Hint: Then the leash is held by somebody who walks along. Which model is frozen?
    """
    with torch.no_grad():
        old = log_probs_of(policy, batch)
    return usual_step(policy, reference, optimizer, batch, inner_epochs, clip_range, beta, old=old, ref=old)


@mistake("grpo_step")
def reference_and_old_swapped(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """The old and the reference log-probabilities were exchanged in the call of the objective.

    Hint: In which order does grpo_objective take them?
    """
    with torch.no_grad():
        ref, old = log_probs_of(reference, batch), log_probs_of(policy, batch)
    return usual_step(policy, reference, optimizer, batch, inner_epochs, clip_range, beta, old=ref, ref=old)


@mistake("grpo_step")
def beta_not_passed(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """The argument beta was not passed on: the objective used its default.

    Hint: What does grpo_step do with its beta? Does it reach grpo_objective?
    """
    return usual_step(policy, reference, optimizer, batch, inner_epochs, clip_range, 0.04)


@mistake("grpo_step")
def clip_not_passed(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """The argument clip_range was not passed on: the objective used its default.

    Hint: What does grpo_step do with its clip_range? Does it reach grpo_objective?
    """
    return usual_step(policy, reference, optimizer, batch, inner_epochs, 0.2, beta)


@mistake("grpo_step")
def kl_skipped(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """The KL was left out.

    Hint: What is the reference there for, and does anything in your loss ask it?
    """
    return usual_step(policy, reference, optimizer, batch, inner_epochs, clip_range, 0.0)


@mistake("grpo_step")
def mask_ignored(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """The tokens after the end of an answer were counted.

    Hint: Which entry of the batch says what tokens the policy chose?
    """
    return usual_step(policy, reference, optimizer, batch, inner_epochs, clip_range, beta, mask=torch.ones_like(batch["mask"]))


@mistake("grpo_step")
def eos_left_out(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """The last token of every answer was left out of the loss.

    Hint: The mask ends where the answer does. Is the decision to stop inside of yours?
    """
    mask = batch["mask"].bool()
    return usual_step(policy, reference, optimizer, batch, inner_epochs, clip_range, beta, mask=mask & F.pad(mask[:, 1:], (0, 1)))


@mistake("grpo_step")
def off_by_one(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """For each token the logits that come after it were taken.

    Hint: What a model puts out at a position is about the next token. Which of the given functions does the shift for you?
    """
    advantages = group_advantages(batch["rewards"], batch["group_ids"])
    start = batch["prompt_length"]

    def later(model):
        return token_log_probs(model(batch["tokens"])[:, start:], batch["tokens"][:, start:])

    with torch.no_grad():
        ref, old = later(reference), later(policy)
    for _ in range(inner_epochs):
        loss, metrics = grpo_objective(later(policy), old, ref, advantages, batch["mask"], clip_range, beta)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
    return metrics


@mistake("grpo_step")
def policy_without_gradient(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """The new log-probabilities were computed under no_grad.

    Hint: Which of the three sets of log-probabilities must carry the graph?
    """
    advantages = group_advantages(batch["rewards"], batch["group_ids"])
    with torch.no_grad():
        ref, old, new = log_probs_of(reference, batch), log_probs_of(policy, batch), log_probs_of(policy, batch)
    for _ in range(inner_epochs):
        loss, metrics = grpo_objective(new, old, ref, advantages, batch["mask"], clip_range, beta)
        optimizer.zero_grad()
        loss.requires_grad_().backward()
        optimizer.step()
    return metrics


@mistake("grpo_step")
def norm_not_clipped(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """The norm of the gradient was not clipped.

    Hint: One step of the recipe stands between backward and the optimizer's step. Which?
    """
    advantages = group_advantages(batch["rewards"], batch["group_ids"])
    with torch.no_grad():
        ref, old = log_probs_of(reference, batch), log_probs_of(policy, batch)
    for _ in range(inner_epochs):
        loss, metrics = grpo_objective(log_probs_of(policy, batch), old, ref, advantages, batch["mask"], clip_range, beta)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return metrics


@mistake("grpo_step")
def clipped_before_backward(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """The norm was clipped before the gradient was there.

    Hint: What is in .grad at that moment?
    """
    advantages = group_advantages(batch["rewards"], batch["group_ids"])
    with torch.no_grad():
        ref, old = log_probs_of(reference, batch), log_probs_of(policy, batch)
    for _ in range(inner_epochs):
        loss, metrics = grpo_objective(log_probs_of(policy, batch), old, ref, advantages, batch["mask"], clip_range, beta)
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return metrics


@mistake("grpo_step")
def values_clipped(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """Each entry of the gradient was clipped, not the norm.

    Hint: Which of the two keeps the direction of the gradient?
    """
    advantages = group_advantages(batch["rewards"], batch["group_ids"])
    with torch.no_grad():
        ref, old = log_probs_of(reference, batch), log_probs_of(policy, batch)
    for _ in range(inner_epochs):
        loss, metrics = grpo_objective(log_probs_of(policy, batch), old, ref, advantages, batch["mask"], clip_range, beta)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(policy.parameters(), 1.0)
        optimizer.step()
    return metrics


@mistake("grpo_step")
def each_norm_clipped(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """The norm of each parameter's gradient was clipped by itself.

    Hint: Of which vector is the norm to be 1 at most: of each parameter's gradient, or of all of them together?
    """
    advantages = group_advantages(batch["rewards"], batch["group_ids"])
    with torch.no_grad():
        ref, old = log_probs_of(reference, batch), log_probs_of(policy, batch)
    for _ in range(inner_epochs):
        loss, metrics = grpo_objective(log_probs_of(policy, batch), old, ref, advantages, batch["mask"], clip_range, beta)
        optimizer.zero_grad()
        loss.backward()
        for p in policy.parameters():
            nn.utils.clip_grad_norm_([p], 1.0)
        optimizer.step()
    return metrics


@mistake("grpo_step")
def first_metrics(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """The metrics of the first inner epoch came back.

    Hint: In the first inner epoch the ratio is 1 and nothing is clipped. Of which one are the metrics asked for?
    """
    advantages = group_advantages(batch["rewards"], batch["group_ids"])
    with torch.no_grad():
        ref, old = log_probs_of(reference, batch), log_probs_of(policy, batch)
    metrics = grpo_objective(old, old, ref, advantages, batch["mask"], clip_range, beta)[1]
    usual_step(policy, reference, optimizer, batch, inner_epochs, clip_range, beta, old=old, ref=ref)
    return metrics


@mistake("grpo_step")
def mean_metrics(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """The metrics were averaged over the inner epochs.

    Hint: In the first inner epoch nothing can be clipped. What does it do to an average, and which epoch's metrics are asked for?
    """
    advantages, seen = group_advantages(batch["rewards"], batch["group_ids"]), []
    with torch.no_grad():
        ref, old = log_probs_of(reference, batch), log_probs_of(policy, batch)
    for _ in range(inner_epochs):
        loss, metrics = grpo_objective(log_probs_of(policy, batch), old, ref, advantages, batch["mask"], clip_range, beta)
        seen.append(metrics)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
    return {name: sum(float(m[name]) for m in seen) / inner_epochs for name in metrics}


@mistake("grpo_step")
def metrics_after_the_end(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """The metrics were measured once more after the last update.

    Hint: Where in the last inner epoch did grpo_objective give its metrics: before that update or after it?
    """
    advantages = group_advantages(batch["rewards"], batch["group_ids"])
    with torch.no_grad():
        ref, old = log_probs_of(reference, batch), log_probs_of(policy, batch)
    usual_step(policy, reference, optimizer, batch, inner_epochs, clip_range, beta, old=old, ref=ref)
    with torch.no_grad():
        return grpo_objective(log_probs_of(policy, batch), old, ref, advantages, batch["mask"], clip_range, beta)[1]


@mistake("grpo_step")
def metrics_not_returned(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """What came back was not the metrics of grpo_objective: the loss, a pair of both, or nothing at all.

    Hint: Two things come from grpo_objective. Which one is to be watched, and which line hands it on?
    """
    return {"loss": usual_step(policy, reference, optimizer, batch, inner_epochs, clip_range, beta)["policy_loss"]}


@mistake("grpo_step")
def token_mean(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """The mean was taken over all tokens at once instead of within each answer first.

    Hint: Which aggregation is the default of grpo_objective?
    """
    advantages = group_advantages(batch["rewards"], batch["group_ids"])
    with torch.no_grad():
        ref, old = log_probs_of(reference, batch), log_probs_of(policy, batch)
    for _ in range(inner_epochs):
        new = log_probs_of(policy, batch)
        loss, metrics = grpo_objective(new, old, ref, advantages, batch["mask"], clip_range, beta, aggregate="token")
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
    return metrics


@mistake("grpo_step")
def step_per_microbatch(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """A step was taken after each micro-batch.

    Hint: How many updates does one inner epoch make, and with the gradient of what?
    """
    advantages = group_advantages(batch["rewards"], batch["group_ids"])
    with torch.no_grad():
        ref, old = log_probs_of(reference, batch), log_probs_of(policy, batch)
    for _ in range(inner_epochs):
        for rows in torch.arange(len(advantages)).split(4):
            new = log_probs_of(policy, batch)[rows]
            loss, metrics = grpo_objective(new, old[rows], ref[rows], advantages[rows], batch["mask"][rows], clip_range, beta)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
            optimizer.step()
    return metrics


@mistake("grpo_step")
def microbatch_mean(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """The means of micro-batches of unequal size were averaged.

    Hint: Ten answers in parts of 4, 4 and 2: does a mean of three means weigh every answer alike?
    """
    advantages = group_advantages(batch["rewards"], batch["group_ids"])
    with torch.no_grad():
        ref, old = log_probs_of(reference, batch), log_probs_of(policy, batch)
    for _ in range(inner_epochs):
        optimizer.zero_grad()
        parts = torch.arange(len(advantages)).split(4)
        for rows in parts:
            new = log_probs_of(policy, batch)[rows]
            loss, _ = grpo_objective(new, old[rows], ref[rows], advantages[rows], batch["mask"][rows], clip_range, beta)
            (loss / len(parts)).backward()
        with torch.no_grad():
            metrics = grpo_objective(log_probs_of(policy, batch), old, ref, advantages, batch["mask"], clip_range, beta)[1]
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
    return metrics


@mistake("grpo_step")
def microbatch_sum(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """The means of micro-batches were added up.

    Hint: With five micro-batches the gradient is five times too large. By what must each part be weighed?
    """
    advantages = group_advantages(batch["rewards"], batch["group_ids"])
    with torch.no_grad():
        ref, old = log_probs_of(reference, batch), log_probs_of(policy, batch)
    for _ in range(inner_epochs):
        optimizer.zero_grad()
        for rows in torch.arange(len(advantages)).split(2):
            new = log_probs_of(policy, batch)[rows]
            loss, _ = grpo_objective(new, old[rows], ref[rows], advantages[rows], batch["mask"][rows], clip_range, beta)
            loss.backward()
        with torch.no_grad():
            metrics = grpo_objective(log_probs_of(policy, batch), old, ref, advantages, batch["mask"], clip_range, beta)[1]
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
    return metrics


@mistake("grpo_step")
def advantages_per_microbatch(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """The advantages were computed within micro-batches, which tear the groups apart.

    Hint: An answer whose siblings are in another micro-batch has nobody to be compared with. When are advantages computed?
    """
    parts = torch.arange(len(batch["rewards"])).split(4)
    a = torch.cat([group_advantages(batch["rewards"][rows], batch["group_ids"][rows]) for rows in parts])
    return usual_step(policy, reference, optimizer, batch, inner_epochs, clip_range, beta, advantages=a)


@mistake("grpo_step")
def own_optimizer(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """A new optimizer was made, and the one that came in was ignored.

    Hint: Where do the learning rate and the memory of earlier steps live?
    """
    mine = torch.optim.AdamW(policy.parameters(), lr=1e-3)
    return usual_step(policy, reference, mine, batch, inner_epochs, clip_range, beta)


@mistake("grpo_step")
def copy_trained(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """A copy of the policy was trained.

    Hint: Whose parameters does the optimizer hold?
    """
    return usual_step(copy.deepcopy(policy), reference, optimizer, batch, inner_epochs, clip_range, beta)


@mistake("grpo_step")
def noise_on_advantages(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """Noise was added to the advantages because the first loss is 0.

    Hint: In the first inner epoch the loss is 0. Is its gradient 0 as well? Notebook 2 shows it.
    """
    advantages = group_advantages(batch["rewards"], batch["group_ids"])
    noise = 0.1 * torch.randn(len(advantages), generator=torch.Generator().manual_seed(0))
    return usual_step(policy, reference, optimizer, batch, inner_epochs, clip_range, beta, advantages=advantages + noise)


@mistake("grpo_step")
def other_temperature(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """The log-probabilities were computed at another temperature than that of sampling.

    Hint: At which temperature were the answers sampled? The ratio must speak of the same distribution.
    """
    advantages = group_advantages(batch["rewards"], batch["group_ids"])
    start = batch["prompt_length"]

    def warm(model):
        return token_log_probs(response_logits(model, batch["tokens"], start), batch["tokens"][:, start:], temperature=0.7)

    with torch.no_grad():
        ref, old = warm(reference), warm(policy)
    for _ in range(inner_epochs):
        loss, metrics = grpo_objective(warm(policy), old, ref, advantages, batch["mask"], clip_range, beta)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
    return metrics


@mistake("grpo_step")
def zero_grad_after_the_step(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """The gradients were set to zero after each step only, so that whatever stood in .grad before went into the first update.

    Hint: Who says that .grad is empty when a batch comes? Where does the recipe set the gradients to zero?
    """
    advantages = group_advantages(batch["rewards"], batch["group_ids"])
    with torch.no_grad():
        ref, old = log_probs_of(reference, batch), log_probs_of(policy, batch)
    for _ in range(inner_epochs):
        loss, metrics = grpo_objective(log_probs_of(policy, batch), old, ref, advantages, batch["mask"], clip_range, beta)
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return metrics


@mistake("grpo_step")
def stops_when_the_kl_is_large(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """The inner epochs ended early where the KL was above 0.5.

    Hint: Some recipes do this on purpose. How many updates does the exercise ask for, and what holds the KL here?
    """
    advantages = group_advantages(batch["rewards"], batch["group_ids"])
    with torch.no_grad():
        ref, old = log_probs_of(reference, batch), log_probs_of(policy, batch)
    for epoch in range(inner_epochs):
        loss, metrics = grpo_objective(log_probs_of(policy, batch), old, ref, advantages, batch["mask"], clip_range, beta)
        if epoch and metrics["kl"] > 0.5:
            break
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
    return metrics


@mistake("grpo_step")
def tokens_one_place_early(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """The log-probabilities were asked of the tokens one place too early.

    Hint: The shift by one is done already in response_logits. From which place on do your answers begin?
    """
    advantages, start = group_advantages(batch["rewards"], batch["group_ids"]), batch["prompt_length"]

    def early(model):
        return token_log_probs(response_logits(model, batch["tokens"], start), batch["tokens"][:, start - 1 : -1])

    with torch.no_grad():
        ref, old = early(reference), early(policy)
    for _ in range(inner_epochs):
        loss, metrics = grpo_objective(early(policy), old, ref, advantages, batch["mask"], clip_range, beta)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
    return metrics


@mistake("grpo_step")
def rewards_overwritten(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """The rewards in the batch were overwritten.

    Hint: Into whose tensor does an operator like `-=` write? Whoever made the batch may still read it.
    """
    batch["rewards"] -= batch["rewards"].min() - 1
    return usual_step(policy, reference, optimizer, batch, inner_epochs, clip_range, beta)


@mistake("grpo_step")
def parts_of_64_weigh_alike(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """The means of micro-batches of 64 were averaged, although the last one is smaller.

    Hint: 130 answers in parts of 64, 64 and 2: does a mean of three means weigh every answer alike?
    """
    advantages = group_advantages(batch["rewards"], batch["group_ids"])
    with torch.no_grad():
        ref, old = log_probs_of(reference, batch), log_probs_of(policy, batch)
    for _ in range(inner_epochs):
        optimizer.zero_grad()
        parts, total = torch.arange(len(advantages)).split(64), {}
        for rows in parts:
            new = log_probs_of(policy, batch | {"tokens": batch["tokens"][rows]})
            loss, metrics = grpo_objective(new, old[rows], ref[rows], advantages[rows], batch["mask"][rows], clip_range, beta)
            (loss / len(parts)).backward()
            total = {k: total.get(k, 0.0) + v / len(parts) for k, v in metrics.items()}
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
    return total


@mistake("grpo_step")
def dead_groups_left_out(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """The answers of dead groups were left out of the batch, where others were left.

    Hint: Some recipes do this on purpose. How many answers does the mean count then, and who feels the KL?
    """
    advantages = group_advantages(batch["rewards"], batch["group_ids"])
    alive = advantages != 0
    for group in batch["group_ids"].unique():  # an answer may earn just the mean of a group that lives
        rows = batch["group_ids"] == group
        alive[rows] = alive[rows].any()
    alive |= ~alive.any()
    batch = batch | {"tokens": batch["tokens"][alive], "mask": batch["mask"][alive]}
    return usual_step(policy, reference, optimizer, batch, inner_epochs, clip_range, beta, advantages=advantages[alive])


@mistake("grpo_step")
def stops_when_the_kl_is_above_one(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """The inner epochs ended early where the KL was large.

    Hint: Some recipes do this on purpose. How many updates does the exercise ask for, and what holds the KL here?
    """
    advantages = group_advantages(batch["rewards"], batch["group_ids"])
    with torch.no_grad():
        ref, old = log_probs_of(reference, batch), log_probs_of(policy, batch)
    for epoch in range(inner_epochs):
        loss, metrics = grpo_objective(log_probs_of(policy, batch), old, ref, advantages, batch["mask"], clip_range, beta)
        if epoch and metrics["kl"] > 1:
            break
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
    return metrics


@right("grpo_step")
def old_under_no_grad(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """Old and reference log-probabilities in a no_grad block."""
    return usual_step(policy, reference, optimizer, batch, inner_epochs, clip_range, beta)


@right("grpo_step")
def whole_texts(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """The model over the whole text and the shift by hand, without response_logits."""
    tokens, p, mask = batch["tokens"], batch["prompt_length"], batch["mask"].float()

    def look(model):
        return torch.log_softmax(model(tokens)[:, p - 1 : -1], -1).gather(-1, tokens[:, p:, None]).squeeze(-1)

    adv = group_advantages(batch["rewards"].clone(), batch["group_ids"])
    old, ref = look(policy).detach(), look(reference).detach()
    metrics = {}
    for epoch in range(inner_epochs):
        policy.zero_grad(set_to_none=False)
        loss, metrics = grpo_objective(look(policy), old, ref, adv, mask, clip_range=clip_range, beta=beta)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), max_norm=1.0)
        optimizer.step()
    return metrics


@right("grpo_step")
def zero_grad_at_the_end(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """Gradients cleared before the loop and after each step."""
    advantages = group_advantages(batch["rewards"], batch["group_ids"])
    with torch.no_grad():
        ref, old = log_probs_of(reference, batch), log_probs_of(policy, batch)
    optimizer.zero_grad()
    for _ in range(inner_epochs):
        loss, metrics = grpo_objective(log_probs_of(policy, batch), old, ref, advantages, batch["mask"], clip_range, beta)
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return {name: float(value) for name, value in metrics.items()}


@mistake("grpo_step")
def norm_always_one(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """Every gradient was brought to a norm of 1, the short ones too.

    Hint: Clipping shortens what is too long. What becomes of a gradient whose norm is 0.3?
    """
    advantages = group_advantages(batch["rewards"], batch["group_ids"])
    with torch.no_grad():
        ref, old = log_probs_of(reference, batch), log_probs_of(policy, batch)
    for _ in range(inner_epochs):
        loss, metrics = grpo_objective(log_probs_of(policy, batch), old, ref, advantages, batch["mask"], clip_range, beta)
        optimizer.zero_grad()
        loss.backward()
        norm = torch.sqrt(sum((p.grad**2).sum() for p in policy.parameters()))
        for p in policy.parameters():
            p.grad /= norm
        optimizer.step()
    return metrics


@mistake("grpo_step")
def last_gradient_alone(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """The optimizer took one step, after the loop, by the gradient of the last inner epoch.

    Hint: Each inner epoch is to make its own step. How far is optimizer.step() indented?
    """
    advantages = group_advantages(batch["rewards"], batch["group_ids"])
    with torch.no_grad():
        ref, old = log_probs_of(reference, batch), log_probs_of(policy, batch)
    for _ in range(inner_epochs):
        loss, metrics = grpo_objective(log_probs_of(policy, batch), old, ref, advantages, batch["mask"], clip_range, beta)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
    optimizer.step()
    return metrics


@right("grpo_step")
def norm_by_hand(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """Gradients by autograd.grad and the norm clipped by hand."""
    advantages = group_advantages(batch["rewards"], batch["group_ids"])
    with torch.no_grad():
        ref, old = log_probs_of(reference, batch), log_probs_of(policy, batch)
    parameters = list(policy.parameters())
    for _ in range(inner_epochs):
        loss, metrics = grpo_objective(log_probs_of(policy, batch), old, ref, advantages, batch["mask"], clip_range, beta)
        gradients = torch.autograd.grad(loss, parameters)
        norm = torch.sqrt(sum((g * g).sum() for g in gradients))
        for p, g in zip(parameters, gradients):
            p.grad = g / norm if norm > 1 else g
        optimizer.step()
    return {**metrics, "loss": loss.detach(), "norm": norm}


@right("grpo_step")
def weighted_microbatches(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """Micro-batches, each weighed by its share of answers."""
    advantages, n = group_advantages(batch["rewards"], batch["group_ids"]), len(batch["rewards"])
    with torch.no_grad():
        ref, old = log_probs_of(reference, batch), log_probs_of(policy, batch)
    for _ in range(inner_epochs):
        optimizer.zero_grad()
        total = {}
        for rows in torch.arange(n).split(4):
            part = {"tokens": batch["tokens"][rows], "prompt_length": batch["prompt_length"]}
            mask = batch["mask"][rows]
            loss, metrics = grpo_objective(log_probs_of(policy, part), old[rows], ref[rows], advantages[rows], mask, clip_range, beta)
            (loss * len(rows) / n).backward()
            share = mask.sum() / batch["mask"].sum()
            total = {k: total.get(k, 0.0) + v * share for k, v in metrics.items()}
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
    return total


@right("grpo_step")
def one_answer_at_a_time(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """A loop over single answers; slow, and right."""
    advantages, p = group_advantages(batch["rewards"], batch["group_ids"]), batch["prompt_length"]

    def look(model):
        return torch.cat([token_log_probs(response_logits(model, row[None], p), row[None, p:]) for row in batch["tokens"]])

    with torch.no_grad():
        old, ref = look(policy), look(reference)
    for _ in range(inner_epochs):
        loss, metrics = grpo_objective(look(policy), old, ref, advantages, batch["mask"], clip_range, beta)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
    return metrics


@right("grpo_step")
def shuffled_microbatches(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """Micro-batches in a new order in each inner epoch, everything by keyword, the metrics from a look at the whole batch."""
    start = batch["prompt_length"]

    def look(model, rows):
        texts = batch["tokens"][rows]
        return token_log_probs(response_logits(model, texts, start), texts[:, start:])

    n = batch["tokens"].shape[0]
    advantages = group_advantages(group_ids=batch["group_ids"], rewards=batch["rewards"])
    whole, draw = torch.arange(n), torch.Generator().manual_seed(0)
    with torch.no_grad():
        old, ref = look(policy, whole), look(reference, whole)
    for _ in range(inner_epochs):
        with torch.no_grad():
            _, metrics = grpo_objective(look(policy, whole), old, ref, advantages, batch["mask"], clip_range=clip_range, beta=beta)
        optimizer.zero_grad()
        for rows in torch.randperm(n, generator=draw).split(3):
            loss, _ = grpo_objective(
                log_probs_new=look(policy, rows),
                log_probs_old=old[rows],
                ref_log_probs=ref[rows],
                advantages=advantages[rows],
                mask=batch["mask"][rows],
                clip_range=clip_range,
                beta=beta,
            )
            (loss * len(rows) / n).backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
    return metrics


@right("grpo_step")
def reference_frozen_again(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """Switches between eval and train, copies the batch, reference in the graph but frozen."""
    reference.eval()
    policy.train()
    batch = {k: v.clone() if torch.is_tensor(v) else v for k, v in batch.items()}
    ref = log_probs_of(reference, batch)
    return usual_step(policy, reference, optimizer, batch, inner_epochs, clip_range, beta, ref=ref.detach())


@right("response_mask")
def by_counting_back(tokens, eos_id):
    """An end before this token: the running count, moved one to the right."""
    seen = (tokens == eos_id).int().cumsum(1)
    before = torch.cat([torch.zeros_like(seen[:, :1]), seen[:, :-1]], dim=1)
    return before < 1


@right("token_log_probs")
def shifted_by_the_largest(logits, tokens, temperature=1.0):
    """The largest logit subtracted first, the normaliser written out, the chosen one picked with take_along_dim."""
    z = logits / temperature
    z = z - z.amax(-1, keepdim=True).detach()
    z = z - z.exp().sum(-1, keepdim=True).log()
    return torch.take_along_dim(z, tokens.unsqueeze(-1), -1).squeeze(-1)
