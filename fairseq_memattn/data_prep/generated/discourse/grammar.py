"""Russian inflection for the words of the lexicon, and sentence templates.

A Word has a table of forms for each language. A template names forms: `{x}` is the base form of the
word bound to x, `{x.acc}` its accusative, `{q.ins@x}` the instrumental of q that agrees with x, and
`{x:он|она|оно|они}` the alternative for the agreement class of x.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

GENDERS = "mfnp"  # masculine, feminine, neuter, plural: the agreement classes, in this order
CASES = ("gen", "dat", "acc", "ins", "loc")
VELARS = "гкх"
HUSHERS = "жшчщ"
SLOT = re.compile(r"\{(\w+)(?:\.(\w+))?(?:@(\w+))?(?::([^}]*))?\}")


@dataclass(frozen=True)
class Word:
    """The forms of a word in both languages; `""` is the base form.

    `choice` indexes the alternatives of a template: the gender of a noun (position in GENDERS),
    or 0 for the familiar and 1 for the formal address.
    """

    en: Mapping[str, str]
    ru: Mapping[str, str]
    choice: int = 0
    animate: bool = False

    def agreement(self, form: str) -> str:
        """The agreement class; animate masculine nouns have an accusative of their own."""
        return "a" if self.animate and self.choice == 0 and form == "acc" else GENDERS[self.choice]


Bindings = Mapping[str, Word]


@dataclass(frozen=True)
class Line:
    """A sentence template in both languages."""

    en: str
    ru: str


@dataclass(frozen=True)
class Pair:
    """A sentence and its translation."""

    en: str
    ru: str


def fill(template: str, side: str, words: Bindings) -> str:
    """A template with filled slots and a capital first letter."""

    def slot(match: re.Match[str]) -> str:
        name, form, agrees_with, options = match.groups()
        word = words[name]
        if options is not None:
            return options.split("|")[word.choice]
        key = form or ""
        if agrees_with:
            key = f"{key}.{words[agrees_with].agreement(key)}"
        return (word.en if side == "en" else word.ru)[key]

    text = SLOT.sub(slot, template)
    return text[0].upper() + text[1:]


def render(line: Line, words: Bindings) -> Pair:
    return Pair(fill(line.en, "en", words), fill(line.ru, "ru", words))


def past(masculine: str) -> dict[str, str]:
    """The past tense from its masculine form: нашёл, нашла, нашло, нашли."""
    if masculine.endswith("шёл"):
        stem = masculine[:-2] + "л"
    elif masculine.endswith("л"):
        stem = masculine
    else:
        stem = masculine.replace("ё", "е") + "л"
    return dict(zip(GENDERS, (masculine, stem + "а", stem + "о", stem + "и"), strict=True))


def adjective(base: str) -> dict[str, str]:
    """Nominative, accusative and instrumental of an adjective by agreement class."""
    stem, ending = base[:-2], base[-2:]
    soft = ending == "ий" and stem[-1] not in VELARS + HUSHERS
    hushing = ending == "ий" and stem[-1] in HUSHERS
    y = "и" if soft or stem[-1] in VELARS + HUSHERS else "ы"
    feminine = "яя" if soft else "ая"
    neuter = "ее" if soft or hushing else "ое"
    nominative = (base, stem + feminine, stem + neuter, stem + y + "е")
    accusative = (base, stem + ("юю" if soft else "ую"), *nominative[2:])
    oblique = stem + ("ей" if soft or hushing else "ой")
    instrumental = (stem + y + "м", oblique, stem + y + "м", stem + y + "ми")
    forms = {"acc.a": stem + ("его" if soft or hushing else "ого")}
    for case, row in (("nom", nominative), ("acc", accusative), ("ins", instrumental)):
        forms.update({f"{case}.{gender}": form for gender, form in zip(GENDERS, row, strict=True)})
    return forms


def noun(
    base: str, gender: str, stem: str = "", stressed: bool = False, animate: bool = False
) -> dict[str, str]:
    """The singular of a noun by the regular declensions.

    stem: where the nominative has a vowel that the other cases lose (кошелёк, кошельк-)
    stressed: whether the endings are stressed; this decides between -ом/-ём and -ем after a soft
        or hushing consonant
    """
    if gender == "m":
        forms = masculine(base, stem, stressed)
    elif gender == "n":
        forms = neuter(base)
    elif base.endswith("ь"):
        root = stem or base[:-1]
        forms = (root + "и", root + "и", base, base + "ю", root + "и")
    else:
        forms = feminine(base, stressed)
    table = dict(zip(CASES, forms, strict=True)) | {"": base}
    if animate and gender == "m":
        table["acc"] = table["gen"]
    return table


def masculine(base: str, stem: str, stressed: bool) -> tuple[str, ...]:
    """Genitive to prepositional of a masculine noun in a consonant, -й or -ь; accusative = base."""
    if base[-1] in "йь":
        root = stem or base[:-1]
        loc = root + ("и" if base.endswith("ий") else "е")
        return root + "я", root + "ю", base, root + ("ём" if stressed else "ем"), loc
    root = stem or base
    o = "о" if stressed or root[-1] not in HUSHERS + "ц" else "е"
    return root + "а", root + "у", base, root + o + "м", root + "е"


def feminine(base: str, stressed: bool) -> tuple[str, ...]:
    """Genitive to prepositional of a noun in -а or -я."""
    root = base[:-1]
    if base.endswith("ия"):
        return root + "и", root + "и", root + "ю", root + "ей", root + "и"
    if base.endswith("я"):
        return root + "и", root + "е", root + "ю", root + ("ёй" if stressed else "ей"), root + "е"
    o = "о" if stressed or root[-1] not in HUSHERS + "ц" else "е"
    y = "и" if root[-1] in VELARS + HUSHERS else "ы"
    return root + y, root + "е", root + "у", root + o + "й", root + "е"


def neuter(base: str) -> tuple[str, ...]:
    """Genitive to prepositional of a neuter noun in -о, -е, -ие or -ье."""
    root = base[:-1]
    if base.endswith("о"):
        return root + "а", root + "у", base, root + "ом", root + "е"
    if root[-1] in HUSHERS + "ц":
        return root + "а", root + "у", base, root + "ем", root + "е"
    return root + "я", root + "ю", base, root + "ем", root + ("и" if base.endswith("ие") else "е")


def indeclinable(base: str) -> dict[str, str]:
    """A noun with one form for all cases: пальто."""
    return dict.fromkeys(("", *CASES), base)


def plural_only(base: str, genitive: str, dative: str) -> dict[str, str]:
    """A noun without a singular: часы, часов, часам."""
    return {
        "": base,
        "gen": genitive,
        "dat": dative,
        "acc": base,
        "ins": dative + "и",
        "loc": dative[:-1] + "х",
    }


def article(english: str) -> str:
    begins_with_a_vowel = english[0] in "aeiou" and not english.startswith(("us", "uni"))
    return f"an {english}" if begins_with_a_vowel else f"a {english}"
