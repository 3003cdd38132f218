"""The words of the tables in words/ with all their forms.

Columns of words/nouns.tsv and of the tables like it: `russian` is the nominative, `gender` one of
GENDERS, and `notes` any of: `*` (the endings are stressed), a stem that has lost its vowel, `0`
(indeclinable), `mass` (no English article), and for gender p the genitive and the dative. A verb
that is `unplanned` cannot be intended. An adjective that is `not gradable` has no degrees.
"""

from fairseq_memattn.data_prep.generated.discourse.grammar import (
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
from fairseq_memattn.data_prep.text.tables import Row, grouped, read_table

ANIMATE = ("animal", "person")  # classes whose nouns are animate


def rows(name: str) -> list[Row]:
    return read_table(__package__, f"words/{name}.tsv")


def phrase(row: Row) -> Word:
    return Word({"": row["english"]}, {"": row["russian"]})


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
    return {"": base, "a": f"some {base}" if mass else article(base), "the": f"the {base}"}


def noun_word(row: Row) -> Word:
    notes, kind, gender = row["notes"].split(), row["class"], row["gender"]
    return Word(
        english_noun(row["english"], "mass" in notes),
        russian_noun(row["russian"], gender, notes, kind == "animal"),
        GENDERS.index(gender),
        animate=kind == "animal",
    )


def synonym_pair(row: Row) -> tuple[Word, Word]:
    """An English noun with two translations, as two words."""
    english, animate = english_noun(row["english"]), row["class"] in ANIMATE

    def word(russian: str, gender: str, notes: str) -> Word:
        forms = russian_noun(russian, gender, notes.split(), animate)
        return Word(english, forms, GENDERS.index(gender))

    return (
        word(row["russian"], row["gender"], row["notes"]),
        word(row["other russian"], row["other gender"], row["other notes"]),
    )


def person(english: str, russian: str, gender: str, notes: str = "") -> Word:
    forms = russian_noun(russian, gender, notes.split(), animate=True)
    return Word({"": english, "poss": f"{english}'s"}, forms, GENDERS.index(gender))


def name_pair(row: Row) -> tuple[Word, Word]:
    english, gender = row["english"], row["gender"]
    return (
        person(english, row["russian"], gender, row["notes"]),
        person(english, row["foreign"], gender, row["foreign notes"]),
    )


def surname(origin: int, index: int, gender: int) -> Word:
    """A surname in the nominative; origin 0 is Russian, with a feminine form, 1 is foreign."""
    row = SURNAME_ROWS[origin][index]
    feminine = origin == 0 and GENDERS[gender] == "f"
    ending, russian_ending = ("a", "а") if feminine else ("", "")
    return Word({"": row["english"] + ending}, {"": row["russian"] + russian_ending})


def verb_word(row: Row) -> Word:
    forms = {"inf": row["infinitive"], "fut": row["future"]}
    forms |= {f"past.{gender}": form for gender, form in past(row["masculine past"]).items()}
    return Word({"base": row["english"], "past": row["past"]}, forms)


def adjective_word(row: Row) -> Word:
    """An adjective, in English with an article too."""
    english = row["english"]
    return Word({"": english, "a": article(english)}, adjective(row["russian"]))


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


NOUN_ROWS = grouped(rows("nouns"), "class")
SYNONYM_ROWS = grouped(rows("synonyms"), "class")
VERB_ROWS = grouped(rows("verbs"), "class")
ADJECTIVE_ROWS = grouped(rows("adjectives"), "class")
SURNAME_ROWS = [*grouped(rows("surnames"), "origin").values()]  # Russian, foreign
SURNAMES = len(SURNAME_ROWS[0])  # as many as foreign ones
PEOPLE_WORDS = [person(row["english"], row["russian"], row["gender"]) for row in rows("people")]
NAME_WORDS = [name_pair(row) for row in rows("names")]
NOUN_WORDS = {kind: [noun_word(row) for row in group] for kind, group in NOUN_ROWS.items()}
SYNONYM_WORDS = {kind: [synonym_pair(row) for row in group] for kind, group in SYNONYM_ROWS.items()}
VERB_WORDS = {kind: [verb_word(row) for row in group] for kind, group in VERB_ROWS.items()}
PLANNED_VERB_WORDS = {
    kind: [verb_word(row) for row in group if row["notes"] != "unplanned"]
    for kind, group in VERB_ROWS.items()
}
ADJECTIVE_WORDS = {
    kind: [adjective_word(row) for row in group] for kind, group in ADJECTIVE_ROWS.items()
}
GRADABLE_WORDS = {
    kind: [adjective_word(row) for row in group if row["notes"] != "not gradable"]
    for kind, group in ADJECTIVE_ROWS.items()
}
PAST_WORDS, FUTURE_WORDS = (
    [phrase(row) for row in group] for group in grouped(rows("times"), "tense").values()
)
YOU = (address(False), address(True))
VOCATIVE_WORDS = [  # familiar, formal
    [phrase(row) for row in group] for group in grouped(rows("vocatives"), "address").values()
]
