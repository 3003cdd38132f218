"""SentencePiece's pieces: white space, which is a space, and the text that pieces give back."""

import re
from collections.abc import Collection, Iterable, Sequence

WHITE = {code: " " for code in range(0x3001) if chr(code).isspace()}
WORD_BEGIN = "\u2581"  # SentencePiece's mark at the beginning of a word
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
RUN_OF_BYTES = re.compile(r"(?<!\S)<0x[0-9A-F]{2}>(?:\s+<0x[0-9A-F]{2}>)*(?!\S)")
REPLACEMENT = "\ufffd"
ADDED = re.compile(r"<mask>|<extra_id_\d+>")  # what tasks add to dictionaries, and find in text
LANGUAGE = r"__\w+__|>>\w+<<|[a-z]{2,3}_[A-Z][A-Za-z]{1,3}"  # of multilingual models
EXTRA = re.compile(rf"{ADDED.pattern}|madeupword\d{{4}}|{LANGUAGE}")
LEAST_KNOWN = 0.9  # of a dictionary's symbols are pieces of its segmentation


def with_spaces(text: str) -> str:
    """The text with a space in the place of each white space, as many characters.

    fairseq splits a line at every white space, and would split a piece that contains some.
    """
    return text.translate(WHITE)


def join_bytes(line: str) -> str:
    """Pieces separated by white space, in which those of bytes are characters in UTF-8.

    As SentencePiece decodes them: a byte that is of no character becomes U+FFFD. White space of a
    character that a model spelled becomes the mark of a space, since it would end a line or a word.
    """
    return RUN_OF_BYTES.sub(_characters, line) if "<0x" in line else line


def spell_bytes(pieces: Sequence[str]) -> list[str]:
    """The pieces; of the bytes of a character the first is the character, and the others are ""."""
    found = list(pieces)
    for first in (number for number, piece in enumerate(pieces) if RUN_OF_BYTES.fullmatch(piece)):
        for stop in range(first + 1, first + 5):
            text = join_bytes(" ".join(pieces[first:stop]))
            if len(text) == 1 and text != REPLACEMENT:
                found[first:stop] = [text, *[""] * (stop - first - 1)]
                break
    return found


def _characters(run: re.Match[str]) -> str:
    spelled = bytes(int(piece[3:5], 16) for piece in run[0].split())
    text = spelled.decode("utf-8", "surrogateescape")  # a surrogate for each byte of no character
    text = re.sub("[\udc80-\udcff]", REPLACEMENT, text)
    return with_spaces(text).replace(" ", WORD_BEGIN)


def join_pieces(line: str) -> str:
    """The text of pieces with white space between them, as fairseq's post-process has it."""
    return "".join(join_bytes(line).split()).replace(WORD_BEGIN, " ").strip()


def foreign_symbols(symbols: Iterable[str], pieces: Collection[str]) -> str:
    """How many symbols of a dictionary are not pieces, in words; "" if at most a tenth are not.

    symbols: without those of every dictionary
    """
    own = [symbol for symbol in symbols if not EXTRA.fullmatch(symbol)]
    foreign = [symbol for symbol in own if symbol not in pieces]
    if len(foreign) <= (1 - LEAST_KNOWN) * len(own):
        return ""
    return f"{len(foreign)} of {len(own)}, such as {foreign[0]!r}, are not"
