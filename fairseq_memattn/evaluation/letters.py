"""The letters and digits of a text, in every script."""

import unicodedata


def letters(text: str) -> str:
    """The letters and digits of a text, with the marks on them: accents and vowel signs."""
    found, follows = [], False
    for character in text:
        follows = character.isalnum() or (follows and is_mark(character))
        if follows:
            found.append(character)
    return "".join(found)


def is_mark(character: str) -> bool:
    """Whether a character is written on another, such as the vowel signs of Hindi and Thai."""
    return unicodedata.category(character).startswith("M")
