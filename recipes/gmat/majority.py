"""The lengths and rates of majority tagging."""


def growing(length: int) -> list[int]:
    """The lengths of training, each four times the one before, the first at most 512.

    Raises ValueError where one is not a multiple of 4.
    """
    lengths = [length]
    while lengths[0] > 512 and lengths[0] % 4 == 0:
        lengths.insert(0, lengths[0] // 4)
    if lengths[0] % 4:
        raise ValueError(f"lengths must be multiples of 4, each a quarter of the next: {lengths}")
    return lengths


def rate(length: int) -> str:
    """Of learning; fewer long sequences make an update, and each is as noisy as a short one."""
    return f"{5e-4 * min(1, 512 / length):g}"
