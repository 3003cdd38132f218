"""The words of `tables.py` with all their forms."""

from data_prep.discourse_corpus import tables
from data_prep.discourse_corpus.grammar import (
    CASES,
    GENDERS,
    Word,
    adjective,
    article,
    indeclinable,
    noun,
    past,
    plural_only,
)


def rows(table: str) -> list[list[str]]:
    """The words of each row of a table; an underscore stands for a space inside a word."""
    return [
        [cell.replace("_", " ") for cell in line.split()] for line in table.strip().splitlines()
    ]


def phrases(table: str) -> list[Word]:
    """The rows `English | Russian` of a table."""
    pairs = [line.split(" | ") for line in table.strip().splitlines()]
    return [Word({"": en.strip()}, {"": ru.strip()}) for en, ru in pairs]


def russian_noun(base: str, gender: str, notes: list[str], animate: bool = False) -> dict[str, str]:
    """The cases of a noun from a table row, with the two prepositions that change their form."""
    cyrillic = [note for note in notes if note.isalpha() and not note.isascii()]
    if "0" in notes:
        forms = indeclinable(base)
    elif gender == "p":
        forms = plural_only(base, *cyrillic)
    else:
        forms = noun(base, gender, "".join(cyrillic), "*" in notes, animate)
    with_preposition = {
        "with": ("со " if starts_with_cluster(forms["ins"].lower()) else "с ") + forms["ins"],
        "about": ("об " if forms["loc"][0].lower() in "аиоуэ" else "о ") + forms["loc"],
    }
    return forms | with_preposition


def starts_with_cluster(word: str) -> bool:
    """Whether a word makes the preposition с into со: словарём, свечой, щенком."""
    return word[0] == "щ" or (word[0] in "сзшж" and word[1] not in "аеёиоуыэюяьй")


def english_noun(base: str, mass: bool = False) -> dict[str, str]:
    """A noun with its articles."""
    return {"": base, "a": f"some {base}" if mass else article(base), "the": f"the {base}"}


def noun_words(kind: str) -> list[Word]:
    """The nouns of one class."""
    return [
        Word(
            english_noun(en, "mass" in notes),
            russian_noun(ru, gender, notes, kind == "animal"),
            GENDERS.index(gender),
            animate=kind == "animal",
        )
        for en, ru, gender, *notes in rows(tables.NOUNS[kind])
    ]


def synonym_words(kind: str) -> list[tuple[Word, Word]]:
    """The English nouns of one class with two renderings, as two words each."""
    pairs = []
    for line in tables.SYNONYMS[kind].strip().splitlines():
        en, *renderings = line.split(" | ")
        words = []
        for rendering in renderings:
            ru, gender, *notes = rendering.split()
            forms = russian_noun(ru, gender, notes, kind in ("animal", "person"))
            words.append(Word(english_noun(en.strip()), forms, GENDERS.index(gender)))
        pairs.append((words[0], words[1]))
    return pairs


def person(en: str, ru: str, gender: str) -> Word:
    """A first name. `ru` may carry its oblique stem after a slash, or a 0 if it does not change."""
    base, _, stem = ru.removesuffix("0").partition("/")
    notes = [stem] if stem else ["0"] if ru.endswith("0") else []
    forms = russian_noun(base, gender, notes, animate=True)
    return Word({"": en, "poss": f"{en}'s"}, forms, GENDERS.index(gender))


def name_words() -> list[tuple[Word, Word]]:
    """The first names with a Russian and a foreign rendering."""
    return [
        (person(en, russian, gender), person(en, foreign, gender))
        for en, gender, russian, foreign in rows(tables.NAMES)
    ]


def surname(origin: int, index: int, gender: int) -> Word:
    """A surname in the nominative; origin 0 is Russian, with a feminine form, 1 is foreign."""
    en, ru = (tables.RUSSIAN_SURNAMES, tables.FOREIGN_SURNAMES)[origin][index]
    ending = "a" if origin == 0 and gender == 1 else ""
    return Word({"": en + ending}, {"": ru + ("а" if ending else "")})


def verb_words(kind: str) -> list[Word]:
    """The verbs that take nouns of one class as their object."""
    return [
        Word(
            {"base": base, "past": english},
            {"inf": infinitive, "fut": future}
            | {f"past.{gender}": form for gender, form in past(masculine).items()},
        )
        for base, english, infinitive, masculine, future in rows(tables.VERBS[kind])
    ]


def adjective_words(kind: str) -> list[Word]:
    """The adjectives that can be said of one class of nouns."""
    return [
        Word({"": en, "a": article(en)}, adjective(ru)) for en, ru in rows(tables.ADJECTIVES[kind])
    ]


def address(formal: bool) -> Word:
    """The second person: its pronoun in every case, and its possessive by agreement class."""
    stem = "ваш" if formal else "тво"
    endings = ("", "а", "е", "и") if formal else ("й", "я", "ё", "и")
    accusative = ("", "у", "е", "и") if formal else ("й", "ю", "ё", "и")
    pronouns = (
        ("вы", "вас", "вам", "вас", "вами", "вас")
        if formal
        else ("ты", "тебя", "тебе", "тебя", "тобой", "тебе")
    )
    forms = dict(zip(("", *CASES), pronouns, strict=True))
    for case, row in (("nom", endings), ("acc", accusative)):
        forms.update({f"{case}.{g}": stem + end for g, end in zip(GENDERS, row, strict=True)})
    return Word({}, forms, int(formal))


SURNAMES = len(tables.RUSSIAN_SURNAMES)  # as many as foreign ones
PEOPLE_WORDS = [person(en, ru, gender) for en, ru, gender in rows(tables.PEOPLE)]
NOUN_WORDS = {kind: noun_words(kind) for kind in tables.NOUNS}
VERB_WORDS = {kind: verb_words(kind) for kind in tables.VERBS}
PLANNED_VERB_WORDS = {
    kind: [word for word in words if word.en["base"] not in tables.UNPLANNED]
    for kind, words in VERB_WORDS.items()
}
ADJECTIVE_WORDS = {kind: adjective_words(kind) for kind in tables.ADJECTIVES}
GRADABLE_WORDS = {
    kind: [word for word in words if word.en[""] not in tables.NOT_GRADABLE]
    for kind, words in ADJECTIVE_WORDS.items()
}
SYNONYM_WORDS = {kind: synonym_words(kind) for kind in tables.SYNONYMS}
NAME_WORDS = name_words()
PAST_WORDS = phrases(tables.PAST_TIMES)
FUTURE_WORDS = phrases(tables.FUTURE_TIMES)
YOU = (address(False), address(True))
VOCATIVE_WORDS = (phrases(tables.FAMILIAR), phrases(tables.FORMAL))
