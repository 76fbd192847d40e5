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
    """Took the last number of the text, tag or no tag.

    Hint: an answer is what the model put into the tag. What should happen with a text that holds numbers and no tag?
    """
    numbers = re.findall(r"[+-]?\d+(?:\.\d+)?", text)
    return numbers[-1] if numbers else None


@mistake("extract_answer")
def first_of_two(text):
    """Took the first answer where there are several.

    Hint: a model that writes two answers has not decided. What does the exercise say about such a text?
    """
    found = re.search(r"<answer>(.*?)</answer>", text, re.DOTALL)
    return narrow(found[1].strip()) if found else None


@mistake("extract_answer")
def last_of_two(text):
    """Took the last answer where there are several.

    Hint: a model that writes two answers has not decided. What does the exercise say about such a text?
    """
    found = re.findall(r"<answer>(.*?)</answer>", text, re.DOTALL)
    return narrow(found[-1].strip()) if found else None


@mistake("extract_answer")
def first_to_last_tag(text):
    """Took everything from the first opening tag to the last closing one, other tags included.

    Hint: how many opening and closing tags may a text with an answer hold?
    """
    found = re.search(r"<answer>(.*)</answer>", text, re.DOTALL)
    return narrow(found[1].strip()) if found else None


@mistake("extract_answer")
def unclosed_tag(text):
    """Accepted an answer whose tag is never closed.

    Hint: an answer that was cut off at the length limit may be half a number. What tells you that it is complete?
    """
    if text.count("<answer>") != 1 or text.count("</answer>") > 1:
        return None
    return narrow(text.partition("<answer>")[2].partition("</answer>")[0].strip())


@mistake("extract_answer")
def opening_tags_uncounted(text):
    """Counted the closing tags only, so that nested and reopened answers passed.

    Hint: two tags belong to an answer. Is one of each there?
    """
    if text.count("</answer>") != 1 or "<answer>" not in text:
        return None
    found = re.search(r"<answer>(.*?)</answer>", text, re.DOTALL)
    return narrow(found[1].strip()) if found else None


@mistake("extract_answer")
def closing_tags_uncounted(text):
    """Counted the opening tags only, so that a second closing tag passed.

    Hint: two tags belong to an answer. Is one of each there?
    """
    if text.count("<answer>") != 1:
        return None
    found = re.search(r"<answer>(.*?)</answer>", text, re.DOTALL)
    return narrow(found[1].strip()) if found else None


@mistake("extract_answer")
def tags_in_any_order(text):
    """Counted the tags but not their order: a closing tag may have come first.

    Hint: one of each is there; which comes first?
    """
    if text.count("<answer>") != 1 or text.count("</answer>") != 1:
        return None
    start, end = text.index("<answer>"), text.index("</answer>")
    return narrow(text[min(start, end) : max(start, end)].replace("<answer>", "").replace("</answer>", "").strip())


@mistake("extract_answer")
def one_line_only(text):
    """Lost answers that run over several lines: a dot in a regular expression does not match a line break.

    Hint: which flag of the re module lets a dot match everything?
    """
    if text.count("<answer>") != 1 or text.count("</answer>") != 1:
        return None
    found = re.search(r"<answer>(.*)</answer>", text)
    return narrow(found[1].strip()) if found else None


@mistake("extract_answer")
def not_stripped(text):
    """Kept the spaces and line breaks around the answer.

    Hint: the model wrote " 12 ". What should come back?
    """
    found = re.findall(r"<answer>(.*?)</answer>", text, re.DOTALL)
    return narrow(found[0]) if len(found) == 1 and text.count("<answer>") == text.count("</answer>") == 1 else None


@mistake("extract_answer")
def full_width_kept(text):
    """Left full-width digits as they are.

    Hint: print ord("１") and ord("1"). A later comparison as text or by a rule for ASCII digits will not see them as equal.
    """
    found = re.findall(r"<answer>(.*?)</answer>", text, re.DOTALL)
    return found[0].strip() if len(found) == 1 and text.count("<answer>") == text.count("</answer>") == 1 else None


@mistake("extract_answer")
def chinese_numerals_too(text):
    """Turned Chinese numerals into digits as well.

    Hint: which characters does the exercise ask you to convert, and what happens to everything else?
    """
    inside = extract_answer_plain(text)
    table = {ord(c): str(i) for i, c in enumerate("零一二三四五六七八九")} | {ord("十"): "10"}
    return None if inside is None else inside.translate(table)


@mistake("extract_answer")
def digits_only(text):
    """Kept the digits of the answer and threw the rest away.

    Hint: "no idea" and "12元" are answers too, if not numbers. Finding and judging are two exercises.
    """
    inside = extract_answer_plain(text)
    return None if inside is None else "".join(c for c in inside if c in "0123456789.+-")


@mistake("extract_answer")
def number_inside_only(text):
    """Gave None for an answer that is no number.

    Hint: finding the answer and judging it are two exercises. This one only finds.
    """
    inside = extract_answer_plain(text)
    return inside if inside is not None and re.fullmatch(r"[+-]?\d+(\.\d+)?", inside) else None


@mistake("extract_answer")
def empty_for_none(text):
    """Gave an empty string where there is no answer.

    Hint: an empty tag and no tag are different things. What says "nothing was found" in Python?
    """
    return extract_answer_plain(text) or ""


@mistake("extract_answer")
def think_part_too(text):
    """Gave the whole text without its tags, thoughts included.

    Hint: what the model thought is not what it answered.
    """
    if text.count("<answer>") != 1 or text.count("</answer>") != 1:
        return None
    return narrow(re.sub(r"</?\w+>", "", text).strip())


@mistake("extract_answer")
def as_integer(text):
    """Gave a number instead of the text.

    Hint: what type does the exercise ask for, and what becomes of "no idea" or "3.50"?
    """
    inside = extract_answer_plain(text)
    return None if inside is None else int(inside)


@mistake("extract_answer")
def split_by_tag(text):
    """Split at the tags and took the last piece, so that a text without tags came back whole.

    Hint: "no tag".split("<answer>") has one piece, not none. What should a text without an answer give?
    """
    return narrow(text.split("<answer>")[-1].split("</answer>")[0].strip())


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


def well_formed(text):
    whole = re.fullmatch(r"\s*<think>(.*)</think>\s*<answer>(.*)</answer>\s*", text, re.DOTALL)
    return float(whole is not None and not re.search(r"</?(think|answer)>", whole[1] + whole[2]))


def right_value(text, answer):
    return float(as_number(extract_answer(text)) == Fraction(answer))


@mistake("math_reward")
def answer_anywhere(text, answer):
    """Accepted the right answer anywhere in the text.

    Hint: a model that lists every number from 0 to 36 would be paid each time. Which text did it commit to?
    """
    return {"accuracy": float(answer in text), "format": well_formed(text)}


@mistake("math_reward")
def last_number_reward(text, answer):
    """Judged the last number of the text instead of the answer in its tag.

    Hint: you wrote a function that finds the answer. What does it give for a text without one?
    """
    numbers = re.findall(r"[+-]?\d+(?:\.\d+)?", text)
    return {"accuracy": float(bool(numbers) and float(numbers[-1]) == float(answer)), "format": well_formed(text)}


@mistake("math_reward")
def first_answer_counts(text, answer):
    """Judged the first of two answers.

    Hint: with two answers there is none. Which function already knows that?
    """
    found = re.findall(r"<answer>(.*?)</answer>", text, re.DOTALL)
    return {"accuracy": float(bool(found) and as_number(narrow(found[0].strip())) == Fraction(answer)), "format": well_formed(text)}


@mistake("math_reward")
def any_answer_counts(text, answer):
    """Paid when any one of several answers was right.

    Hint: two guesses at the price of one: what would a policy learn from that?
    """
    found = re.findall(r"<answer>(.*?)</answer>", text, re.DOTALL)
    return {"accuracy": float(any(as_number(narrow(f.strip())) == Fraction(answer) for f in found)), "format": well_formed(text)}


@mistake("math_reward")
def unclosed_answer_paid(text, answer):
    """Paid for an answer whose tag is never closed.

    Hint: what does extract_answer say about such a text?
    """
    inside = text.rpartition("<answer>")[2].partition("</answer>")[0] if text.count("<answer>") == 1 else None
    return {"accuracy": float(inside is not None and as_number(narrow(inside.strip())) == Fraction(answer)), "format": well_formed(text)}


@mistake("math_reward")
def text_not_value(text, answer):
    """Compared the answer as text, not by its value.

    Hint: is 12.0 the same text as 12? Is it the same number?
    """
    return {"accuracy": float(extract_answer(text) == answer), "format": well_formed(text)}


@mistake("math_reward")
def contains_answer(text, answer):
    """Looked whether the answer's text contains the right number.

    Hint: "112" contains "12".
    """
    return {"accuracy": float(answer in (extract_answer(text) or "")), "format": well_formed(text)}


@mistake("math_reward")
def first_number_inside(text, answer):
    """Searched the answer for a first number and ignored the words around it.

    Hint: does re.search ask whether the whole answer is a number, or whether one stands somewhere in it?
    """
    number = re.search(r"[+-]?\d+(\.\d+)?", extract_answer(text) or "")
    return {"accuracy": float(bool(number) and float(number[0]) == float(answer)), "format": well_formed(text)}


@mistake("math_reward")
def as_int(text, answer):
    """Converted with int, so that 12.0 is no number.

    Hint: which of the spellings 12, 12.0, 012 and +12 does int accept?
    """
    try:
        accuracy = float(int(extract_answer(text)) == int(answer))
    except (TypeError, ValueError):
        accuracy = 0.0
    return {"accuracy": accuracy, "format": well_formed(text)}


@mistake("math_reward")
def rounded(text, answer):
    """Cut the decimals off before comparing.

    Hint: is 12.5 equal to 12?
    """
    number = as_number(extract_answer(text))
    return {"accuracy": float(number is not None and int(number) == int(Fraction(answer))), "format": well_formed(text)}


@mistake("math_reward")
def near_enough(text, answer):
    """Paid for an answer that is close.

    Hint: a tolerance wide enough to be met without computing is a tolerance that will be met without computing.
    """
    number = as_number(extract_answer(text))
    return {"accuracy": float(number is not None and abs(number - Fraction(answer)) <= 1), "format": well_formed(text)}


@mistake("math_reward")
def evaluated(text, answer):
    """Evaluated the answer as a formula.

    Hint: 6+6 is a question, not an answer; and whatever a model writes would be run as your program.
    """
    try:
        accuracy = float(eval(extract_answer(text).lstrip("0") or "0") == float(answer))
    except Exception:
        accuracy = 0.0
    return {"accuracy": accuracy, "format": well_formed(text)}


@mistake("math_reward")
def sign_ignored(text, answer):
    """Ignored the sign of the answer.

    Hint: is -12 equal to 12?
    """
    number = as_number(extract_answer(text))
    return {"accuracy": float(number is not None and abs(number) == abs(Fraction(answer))), "format": well_formed(text)}


@mistake("math_reward")
def numerals_as_numbers(text, answer):
    """Read Chinese numerals as numbers.

    Hint: the exercise says what a number is: a sign, digits, a decimal point. What does it say about 十二?
    """
    inside = (extract_answer(text) or "").replace("十", "1").translate({ord(c): str(i) for i, c in enumerate("零一二三四五六七八九")})
    return {"accuracy": float(as_number(inside) == Fraction(answer)), "format": well_formed(text)}


@mistake("math_reward")
def accuracy_needs_format(text, answer):
    """Paid for accuracy only where the format was right.

    Hint: the two rules are independent. Does "<answer>12</answer>" alone earn accuracy?
    """
    form = well_formed(text)
    return {"accuracy": right_value(text, answer) * form, "format": form}


@mistake("math_reward")
def format_needs_accuracy(text, answer):
    """Paid for the format only where the answer was right.

    Hint: the two rules are independent. What does a well-formed wrong answer earn?
    """
    accuracy = right_value(text, answer)
    return {"accuracy": accuracy, "format": well_formed(text) * accuracy}


@mistake("math_reward")
def format_anywhere(text, answer):
    """Accepted text around the two parts.

    Hint: does re.search ask about the whole text?
    """
    once = all(text.count(tag) == 1 for tag in ("<think>", "</think>", "<answer>", "</answer>"))
    found = re.search(r"<think>.*</think>\s*<answer>.*</answer>", text, re.DOTALL)
    return {"accuracy": right_value(text, answer), "format": float(once and found is not None)}


@mistake("math_reward")
def format_begins_only(text, answer):
    """Looked at the beginning of the text and not at its end.

    Hint: re.match stops when the pattern is satisfied. What may still follow?
    """
    once = all(text.count(tag) == 1 for tag in ("<think>", "</think>", "<answer>", "</answer>"))
    found = re.match(r"\s*<think>.*</think>\s*<answer>.*</answer>", text, re.DOTALL)
    return {"accuracy": right_value(text, answer), "format": float(once and found is not None)}


@mistake("math_reward")
def tags_present(text, answer):
    """Asked only whether all four tags occur.

    Hint: in which order, how often, and with what around them?
    """
    present = all(tag in text for tag in ("<think>", "</think>", "<answer>", "</answer>"))
    return {"accuracy": right_value(text, answer), "format": float(present)}


@mistake("math_reward")
def tags_once(text, answer):
    """Counted the four tags and not their order.

    Hint: once each is half of the rule. Which order, and what may stand outside?
    """
    once = all(text.count(tag) == 1 for tag in ("<think>", "</think>", "<answer>", "</answer>"))
    return {"accuracy": right_value(text, answer), "format": float(once)}


@mistake("math_reward")
def greedy_format(text, answer):
    """Matched the whole text greedily, so that several thoughts or answers fit inside.

    Hint: ".*" matches tags as well. How do you make sure that each tag is there once?
    """
    found = re.fullmatch(r"\s*<think>.*</think>\s*<answer>.*</answer>\s*", text, re.DOTALL)
    return {"accuracy": right_value(text, answer), "format": float(found is not None)}


@mistake("math_reward")
def no_line_breaks(text, answer):
    """Refused thoughts that run over several lines.

    Hint: which flag of the re module lets a dot match a line break?
    """
    once = all(text.count(tag) == 1 for tag in ("<think>", "</think>", "<answer>", "</answer>"))
    found = re.fullmatch(r"\s*<think>.*</think>\s*<answer>.*</answer>\s*", text)
    return {"accuracy": right_value(text, answer), "format": float(once and found is not None)}


@mistake("math_reward")
def white_space_punished(text, answer):
    """Refused white space around or between the two parts.

    Hint: the exercise says what may stand between the parts. Nearly every model puts a line break there.
    """
    once = all(text.count(tag) == 1 for tag in ("<think>", "</think>", "<answer>", "</answer>"))
    found = re.fullmatch(r"<think>.*</think><answer>.*</answer>", text, re.DOTALL)
    return {"accuracy": right_value(text, answer), "format": float(once and found is not None)}


@mistake("math_reward")
def think_optional(text, answer):
    """Treated the think part as optional.

    Hint: how many think parts does the format ask for?
    """
    return {"accuracy": right_value(text, answer), "format": max(well_formed(text), well_formed("<think></think>" + text))}


@mistake("math_reward")
def thought_must_be_there(text, answer):
    """Refused an empty thought or answer.

    Hint: the format speaks of tags and of what stands outside. Does it say anything about what stands inside?
    """
    whole = re.fullmatch(r"\s*<think>(.+)</think>\s*<answer>(.+)</answer>\s*", text, re.DOTALL)
    form = float(whole is not None and not re.search(r"</?(think|answer)>", whole[1] + whole[2]))
    return {"accuracy": right_value(text, answer), "format": form}


@mistake("math_reward")
def one_number(text, answer):
    """Added the two rewards up instead of returning both.

    Hint: a dict with two entries is asked for, so that each rule can be watched by itself.
    """
    return right_value(text, answer) + well_formed(text)


@mistake("math_reward")
def swapped(text, answer):
    """Exchanged the two entries.

    Hint: which entry says that the number is right?
    """
    return {"accuracy": well_formed(text), "format": right_value(text, answer)}


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
        accuracy = 1.0 if abs(float(extract_answer(text)) - float(answer)) < 1e-9 else 0.0
    except (TypeError, ValueError):
        accuracy = 0.0
    return {"format": well_formed(text), "accuracy": accuracy}


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
    """Left the temperature out.

    Hint: the tokens were drawn from a distribution that the temperature reshaped. Whose log-probability do you give?
    """
    return torch.log_softmax(logits, -1).gather(-1, tokens[..., None])[..., 0]


@mistake("token_log_probs")
def times_temperature(logits, tokens, temperature=1.0):
    """Multiplied by the temperature instead of dividing.

    Hint: a high temperature makes the distribution flatter. Do larger logits do that, or smaller ones?
    """
    return torch.log_softmax(logits * temperature, -1).gather(-1, tokens[..., None])[..., 0]


@mistake("token_log_probs")
def temperature_afterwards(logits, tokens, temperature=1.0):
    """Divided the log-probabilities by the temperature, not the logits.

    Hint: do the probabilities still add up to 1 afterwards?
    """
    return torch.log_softmax(logits, -1).gather(-1, tokens[..., None])[..., 0] / temperature


@mistake("token_log_probs")
def temperature_in_one_place(logits, tokens, temperature=1.0):
    """Divided the chosen logit by the temperature and normalised the undivided ones.

    Hint: numerator and denominator of a softmax see the same logits.
    """
    return logits.gather(-1, tokens[..., None])[..., 0] / temperature - logits.logsumexp(-1)


@mistake("token_log_probs")
def probabilities(logits, tokens, temperature=1.0):
    """Gave probabilities instead of their logarithms.

    Hint: the loss takes differences of what you return and then exp of them.
    """
    return torch.softmax(logits / temperature, -1).gather(-1, tokens[..., None])[..., 0]


@mistake("token_log_probs")
def raw_logits(logits, tokens, temperature=1.0):
    """Picked the logits and did not normalise them.

    Hint: a logit says nothing by itself; add 100 to all of them and the probabilities are the same.
    """
    return (logits / temperature).gather(-1, tokens[..., None])[..., 0]


@mistake("token_log_probs")
def log_of_softmax(logits, tokens, temperature=1.0):
    """Took the logarithm of a softmax that can underflow to 0.

    Hint: exp(-2000) is 0 in any float. Which function of torch does both steps in one, safely?
    """
    return torch.softmax(logits / temperature, -1).log().gather(-1, tokens[..., None])[..., 0]


@mistake("token_log_probs")
def log_with_epsilon(logits, tokens, temperature=1.0):
    """Added a small number inside the logarithm.

    Hint: every probability below that number then has the same logarithm. Which function needs no such crutch?
    """
    return (torch.softmax(logits / temperature, -1) + 1e-8).log().gather(-1, tokens[..., None])[..., 0]


@mistake("token_log_probs")
def normalised_over_tokens(logits, tokens, temperature=1.0):
    """Normalised over the positions instead of the vocabulary.

    Hint: at each position some token must be chosen. Along which dimension do probabilities add up to 1?
    """
    return torch.log_softmax(logits / temperature, 1).gather(-1, tokens[..., None])[..., 0]


@mistake("token_log_probs")
def shifted(logits, tokens, temperature=1.0):
    """Shifted by one, although logits and tokens are aligned already.

    Hint: response_logits gives for each token the logits that chose it. What would a second shift do?
    """
    log_probs = torch.log_softmax(logits / temperature, -1)[:, :-1].gather(-1, tokens[:, 1:, None])[..., 0]
    return F.pad(log_probs, (1, 0))


@mistake("token_log_probs")
def best_token(logits, tokens, temperature=1.0):
    """Took the most likely token instead of the one that was written.

    Hint: the second argument says which token was drawn.
    """
    return torch.log_softmax(logits / temperature, -1).max(-1).values


@mistake("token_log_probs")
def negative_log_likelihood(logits, tokens, temperature=1.0):
    """Gave minus the log-probability, which is what cross_entropy returns.

    Hint: a log-probability is never positive.
    """
    return F.cross_entropy((logits / temperature).transpose(1, 2), tokens, reduction="none")


@mistake("token_log_probs")
def one_per_answer(logits, tokens, temperature=1.0):
    """Added the tokens of an answer up.

    Hint: one number per token is asked for, [N, T]; the loss needs the mask before anything is added.
    """
    return torch.log_softmax(logits / temperature, -1).gather(-1, tokens[..., None])[..., 0].sum(1)


@mistake("token_log_probs")
def last_dimension_kept(logits, tokens, temperature=1.0):
    """Left a last dimension of size 1.

    Hint: gather gives a tensor of its index's shape. [N, T, 1] against [N, T] broadcasts silently later on.
    """
    return torch.log_softmax(logits / temperature, -1).gather(-1, tokens[..., None])


@mistake("token_log_probs")
def detached(logits, tokens, temperature=1.0):
    """Cut the log-probabilities off from the graph.

    Hint: what should the loss's gradient flow through?
    """
    with torch.no_grad():
        return torch.log_softmax(logits / temperature, -1).gather(-1, tokens[..., None])[..., 0]


@mistake("token_log_probs")
def normaliser_detached(logits, tokens, temperature=1.0):
    """Cut the normalising term off from the graph.

    Hint: the value is right. But when the chosen token rises, all others must fall: who tells them?
    """
    scaled = logits / temperature
    return scaled.gather(-1, tokens[..., None])[..., 0] - scaled.logsumexp(-1).detach()


@mistake("token_log_probs")
def maximum_subtracted(logits, tokens, temperature=1.0):
    """Subtracted the largest logit where the log of the sum of exponentials belongs.

    Hint: the maximum is what the normaliser looks like when one token is all but certain. And otherwise?
    """
    scaled = logits / temperature
    return scaled.gather(-1, tokens[..., None])[..., 0] - scaled.amax(-1)


@mistake("token_log_probs")
def naive_logsumexp(logits, tokens, temperature=1.0):
    """Summed exponentials that overflow for large logits.

    Hint: exp(1000) is inf. Which function of torch computes the log of a sum of exponentials safely?
    """
    scaled = logits / temperature
    return scaled.gather(-1, tokens[..., None])[..., 0] - scaled.exp().sum(-1).log()


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
    """Left the EOS out of the answer.

    Hint: to stop was a choice of the policy too. What happens to a policy that is never taught when to stop?
    """
    return (tokens == eos_id).long().cumsum(-1) == 0


@mistake("response_mask")
def pad_is_eos(tokens, eos_id):
    """Masked every EOS as if it were padding, and nothing else.

    Hint: the first EOS belongs to the answer; what comes after it does not, even if it is another token.
    """
    return tokens != eos_id


@mistake("response_mask")
def every_eos_counts(tokens, eos_id):
    """Counted every EOS as part of the answer.

    Hint: only the first one was the end. What if the padding is made of EOS?
    """
    ends = tokens == eos_id
    return (ends.long().cumsum(-1) == 0) | ends


@mistake("response_mask")
def last_eos(tokens, eos_id):
    """Took the last EOS as the end.

    Hint: with padding made of EOS, the last one stands at the very end of the tensor. Which one ended the answer?
    """
    ends = (tokens == eos_id).long()
    after = ends.flip(-1).cumsum(-1).flip(-1)
    return (after > 0) | (ends.sum(-1, keepdim=True) == 0)


@mistake("response_mask")
def argmax_of_nothing(tokens, eos_id):
    """Took argmax for the place of the EOS, which is 0 where there is none.

    Hint: argmax of a row of zeros is 0. What should a row without an end give?
    """
    end = (tokens == eos_id).int().argmax(-1)
    return torch.arange(tokens.shape[1]) <= end[:, None]


@mistake("response_mask")
def endless_is_empty(tokens, eos_id):
    """Gave an answer that never ends no tokens at all.

    Hint: it was cut off, but each of its tokens was chosen by the policy.
    """
    ends = (tokens == eos_id).long()
    return (ends.cumsum(-1) - ends == 0) & ends.any(-1, keepdim=True)


@mistake("response_mask")
def zeros_are_padding(tokens, eos_id):
    """Took token 0 for padding.

    Hint: 0 may be an ordinary token. The exercise speaks of the EOS only.
    """
    return tokens != 0


@mistake("response_mask")
def everything(tokens, eos_id):
    """Counted all tokens, padding included.

    Hint: what stands after the end was not chosen by the policy.
    """
    return torch.ones_like(tokens)


@mistake("response_mask")
def inverted(tokens, eos_id):
    """Marked the tokens after the end.

    Hint: 1 means: belongs to the answer.
    """
    ends = (tokens == eos_id).long()
    return ends.cumsum(-1) - ends > 0


@mistake("response_mask")
def along_the_batch(tokens, eos_id):
    """Counted down the batch instead of along the answer.

    Hint: dimension 0 runs over answers, dimension 1 over the tokens of one.
    """
    ends = (tokens == eos_id).long()
    return ends.cumsum(0) - ends == 0


@mistake("response_mask")
def one_too_many(tokens, eos_id):
    """Counted one token beyond the end.

    Hint: try [4, 9, 0] with an EOS of 9. How many tokens belong to it?
    """
    ends = (tokens == eos_id).long().cumsum(-1)
    return F.pad(ends, (2, 0))[:, :-2] == 0


@mistake("response_mask")
def only_one_row(tokens, eos_id):
    """Used the end of the first answer for all of them.

    Hint: every row has its own end.
    """
    ends = (tokens[:1] == eos_id).long()
    return (ends.cumsum(-1) - ends == 0).expand_as(tokens)


@mistake("response_mask")
def flattened(tokens, eos_id):
    """Counted across the answers, so that the second one is over when the first is.

    Hint: cumsum over a flattened tensor does not start anew in each row.
    """
    ends = (tokens == eos_id).long().flatten()
    return (ends.cumsum(0) - ends == 0).view_as(tokens)


@mistake("response_mask")
def tail_of_eos_only(tokens, eos_id):
    """Cut off the EOS at the end of a row but kept what stands between two of them.

    Hint: after the first EOS nothing counts, not even ordinary tokens.
    """
    mask = torch.ones_like(tokens, dtype=torch.bool)
    for i, row in enumerate(tokens.tolist()):
        length = len(row)
        while length > 1 and row[length - 1] == eos_id and row[length - 2] == eos_id:
            length -= 1
        mask[i, length:] = False
    return mask


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
    """Walked up the loss instead of down.

    Hint: grpo_objective gives a loss, to be minimised. Is there a minus too many?
    """
    return usual_step(policy, reference, optimizer, batch, inner_epochs, clip_range, beta, sign=-1)


@mistake("grpo_step")
def negated_advantages(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """Turned the sign of the advantages around: bad answers were encouraged.

    Hint: better than the siblings is positive. Is there a minus too many before the objective?
    """
    a = -group_advantages(batch["rewards"], batch["group_ids"])
    return usual_step(policy, reference, optimizer, batch, inner_epochs, clip_range, beta, advantages=a)


@mistake("grpo_step")
def rewards_for_advantages(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """Used the rewards as they are, without the group.

    Hint: what did you bring group_advantages along for?
    """
    return usual_step(policy, reference, optimizer, batch, inner_epochs, clip_range, beta, advantages=batch["rewards"])


@mistake("grpo_step")
def whole_batch_normalised(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """Measured every answer against the whole batch instead of its group.

    Hint: batch["group_ids"] says who belongs together.
    """
    a = group_advantages(batch["rewards"], torch.zeros_like(batch["group_ids"]))
    return usual_step(policy, reference, optimizer, batch, inner_epochs, clip_range, beta, advantages=a)


@mistake("grpo_step")
def misaligned(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """Sorted the advantages by group while the answers stayed where they were.

    Hint: advantages come back in the order of the rewards. Does anything change that order afterwards?
    """
    order = batch["group_ids"].argsort(stable=True)
    a = group_advantages(batch["rewards"][order], batch["group_ids"][order])
    return usual_step(policy, reference, optimizer, batch, inner_epochs, clip_range, beta, advantages=a)


@mistake("grpo_step")
def groups_by_position(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """Took neighbours in the batch for a group and ignored the ids.

    Hint: the answers may come mixed up; batch["group_ids"] says who belongs together.
    """
    a = group_advantages(batch["rewards"], torch.arange(len(batch["rewards"])) // 5)
    return usual_step(policy, reference, optimizer, batch, inner_epochs, clip_range, beta, advantages=a)


@mistake("grpo_step")
def no_zero_grad(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """Never set the gradients to zero, so that each update repeats all earlier ones.

    Hint: backward adds to what is there. Who clears it?
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
    """Set the gradients to zero once per batch, not in each inner epoch.

    Hint: how many times is backward called for one batch?
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
    """Set the gradients to zero between backward and the step.

    Hint: what does the optimizer find when it takes its step?
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
    """Computed the gradient and took no step.

    Hint: backward only fills .grad. Who changes the parameters?
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
    """Added up the gradients of all inner epochs and took a single step.

    Hint: an inner epoch that does not move the policy sees what the one before saw.
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
    """Made one update, however many inner epochs were asked for.

    Hint: where is the loop? Is a return inside it?
    """
    return usual_step(policy, reference, optimizer, batch, 1, clip_range, beta)


@mistake("grpo_step")
def old_recomputed(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """Computed the old log-probabilities again in each inner epoch: the ratio is 1 for ever.

    Hint: old means before the first update of this batch. When is the clip supposed to act?
    """
    for _ in range(inner_epochs):
        metrics = usual_step(policy, reference, optimizer, batch, 1, clip_range, beta)
    return metrics


@mistake("grpo_step")
def old_after_the_update(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """Refreshed the old log-probabilities after each update.

    Hint: the samples were drawn by the policy before any update. Whose log-probabilities belong into the ratio?
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
    """Let the gradient through the old log-probabilities too: both sides of the ratio cancel.

    Hint: exp(x - x) is 1 whatever x does. Which of the two may carry the graph?
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
    """Computed the new log-probabilities once, before the loop.

    Hint: after an update the policy says something else. And a graph can be walked backward once.
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
    """Took the reference's log-probabilities for the old ones.

    Hint: the ratio compares with the policy that wrote the answers, the KL with the reference.
    """
    with torch.no_grad():
        ref = log_probs_of(reference, batch)
    return usual_step(policy, reference, optimizer, batch, inner_epochs, clip_range, beta, old=ref, ref=ref)


@mistake("grpo_step")
def kl_to_the_old_policy(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """Took the policy's own old log-probabilities for the reference's.

    Hint: then the leash is fixed to a walker. Which model is frozen?
    """
    with torch.no_grad():
        old = log_probs_of(policy, batch)
    return usual_step(policy, reference, optimizer, batch, inner_epochs, clip_range, beta, old=old, ref=old)


@mistake("grpo_step")
def reference_and_old_swapped(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """Exchanged the old and the reference log-probabilities in the call of the objective.

    Hint: in which order does grpo_objective take them?
    """
    with torch.no_grad():
        ref, old = log_probs_of(reference, batch), log_probs_of(policy, batch)
    return usual_step(policy, reference, optimizer, batch, inner_epochs, clip_range, beta, old=ref, ref=old)


@mistake("grpo_step")
def beta_not_passed(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """Left beta at the objective's default.

    Hint: does the argument reach grpo_objective?
    """
    return usual_step(policy, reference, optimizer, batch, inner_epochs, clip_range, 0.04)


@mistake("grpo_step")
def clip_not_passed(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """Left clip_range at the objective's default.

    Hint: does the argument reach grpo_objective?
    """
    return usual_step(policy, reference, optimizer, batch, inner_epochs, 0.2, beta)


@mistake("grpo_step")
def kl_skipped(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """Skipped the KL.

    Hint: what does the reference do for a living?
    """
    return usual_step(policy, reference, optimizer, batch, inner_epochs, clip_range, 0.0)


@mistake("grpo_step")
def mask_ignored(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """Counted the tokens after the end of an answer.

    Hint: batch["mask"] says which tokens the policy chose.
    """
    return usual_step(policy, reference, optimizer, batch, inner_epochs, clip_range, beta, mask=torch.ones_like(batch["mask"]))


@mistake("grpo_step")
def eos_left_out(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """Left the last token of every answer out of the loss.

    Hint: to stop is a choice that must be taught too; the mask includes it.
    """
    mask = batch["mask"].bool()
    return usual_step(policy, reference, optimizer, batch, inner_epochs, clip_range, beta, mask=mask & F.pad(mask[:, 1:], (0, 1)))


@mistake("grpo_step")
def off_by_one(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """Took for each token the logits that came after it.

    Hint: a model's output at a position is about the next token. response_logits does the shift for you.
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
    """Computed the new log-probabilities under no_grad.

    Hint: which of the three sets of log-probabilities must carry the graph?
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
    """Did not clip the norm of the gradient.

    Hint: one step of the recipe stands between backward and the optimizer's step.
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
    """Clipped the norm before the gradient was there.

    Hint: what is in .grad at that moment?
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
    """Clipped each entry of the gradient, not its norm.

    Hint: clipping entries changes the direction; clipping the norm does not.
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
    """Clipped the norm of each parameter by itself.

    Hint: it is the norm of all gradients together that is cut to 1.
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
    """Gave the metrics of the first inner epoch.

    Hint: in the first inner epoch the ratio is 1 and nothing is clipped. Of which one are the metrics asked for?
    """
    advantages = group_advantages(batch["rewards"], batch["group_ids"])
    with torch.no_grad():
        ref, old = log_probs_of(reference, batch), log_probs_of(policy, batch)
    metrics = grpo_objective(old, old, ref, advantages, batch["mask"], clip_range, beta)[1]
    usual_step(policy, reference, optimizer, batch, inner_epochs, clip_range, beta, old=old, ref=ref)
    return metrics


@mistake("grpo_step")
def metrics_after_the_end(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """Measured the metrics once more after the last update.

    Hint: the exercise asks for what grpo_objective gave in the last inner epoch, which costs no extra pass.
    """
    advantages = group_advantages(batch["rewards"], batch["group_ids"])
    with torch.no_grad():
        ref, old = log_probs_of(reference, batch), log_probs_of(policy, batch)
    usual_step(policy, reference, optimizer, batch, inner_epochs, clip_range, beta, old=old, ref=ref)
    with torch.no_grad():
        return grpo_objective(log_probs_of(policy, batch), old, ref, advantages, batch["mask"], clip_range, beta)[1]


@mistake("grpo_step")
def loss_returned(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """Gave the loss instead of the metrics.

    Hint: grpo_objective gives two things; which one is to be watched?
    """
    return {"loss": usual_step(policy, reference, optimizer, batch, inner_epochs, clip_range, beta)["policy_loss"]}


@mistake("grpo_step")
def token_mean(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """Averaged over all tokens instead of within each answer first.

    Hint: which aggregation is the default of grpo_objective?
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
    """Took a step after each micro-batch.

    Hint: one inner epoch is one update with the gradient of the whole batch.
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
    """Averaged the means of micro-batches of unequal size.

    Hint: 4, 4 and 2 answers: does a mean of three means weigh every answer alike?
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
    """Added up the means of micro-batches.

    Hint: with five micro-batches the gradient is five times too large. By what must each part be weighed?
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
    """Computed the advantages within micro-batches, which tear the groups apart.

    Hint: an answer whose siblings are in another micro-batch has nobody to be compared with. When are advantages computed?
    """
    parts = torch.arange(len(batch["rewards"])).split(4)
    a = torch.cat([group_advantages(batch["rewards"][rows], batch["group_ids"][rows]) for rows in parts])
    return usual_step(policy, reference, optimizer, batch, inner_epochs, clip_range, beta, advantages=a)


@mistake("grpo_step")
def own_optimizer(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """Made an optimizer of its own and ignored the one that came in.

    Hint: the learning rate and the memory of earlier steps live in the optimizer that is handed over.
    """
    mine = torch.optim.AdamW(policy.parameters(), lr=1e-3)
    return usual_step(policy, reference, mine, batch, inner_epochs, clip_range, beta)


@mistake("grpo_step")
def copy_trained(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """Trained a copy of the policy.

    Hint: whose parameters does the optimizer hold?
    """
    return usual_step(copy.deepcopy(policy), reference, optimizer, batch, inner_epochs, clip_range, beta)


@mistake("grpo_step")
def noise_on_advantages(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """Added noise to the advantages because the first loss is 0.

    Hint: a loss of 0 is right in the first inner epoch, and its gradient is not 0. Notebook 2 shows it.
    """
    advantages = group_advantages(batch["rewards"], batch["group_ids"])
    noise = 0.1 * torch.randn(len(advantages), generator=torch.Generator().manual_seed(0))
    return usual_step(policy, reference, optimizer, batch, inner_epochs, clip_range, beta, advantages=advantages + noise)


@mistake("grpo_step")
def other_temperature(policy, reference, optimizer, batch, inner_epochs=2, clip_range=0.2, beta=0.04):
    """Computed the log-probabilities at another temperature than that of sampling.

    Hint: the answers were sampled at a temperature of 1. The ratio must speak of the same distribution.
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
