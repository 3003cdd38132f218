"""White space, every form of which is a space for SentencePiece."""

WHITE = {code: " " for code in range(0x3001) if chr(code).isspace()}


def with_spaces(text: str) -> str:
    """The text with a space in the place of each white space, as many characters.

    fairseq splits a line at every white space, and would split a piece that contains some.
    """
    return text.translate(WHITE)
