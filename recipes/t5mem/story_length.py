"""The tokens of questions about generated stories, and of inputs."""

TOKENS = {1: 5, 2: 6, 3: 9}  # of a question of so many facts, with </s>


def question_length(facts: list[int]) -> int:
    """Of the longest question."""
    return max(TOKENS[number] for number in facts)


def length_of(least: int, chunks: int) -> int:
    """The least multiple of the chunks."""
    return -(-least // chunks) * chunks
