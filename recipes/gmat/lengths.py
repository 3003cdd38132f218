"""The lengths of texts that a small masked language model grows through."""


def bases_of(length: int, compressed: int | None) -> list[int]:
    """64, 128, ... up to the length and 512; a model that compresses begins with 64."""
    return [64] + [size for size in (128, 256, 512) if size <= length and not compressed]


def shorter(length: int) -> list[int]:
    """64, 128, ... below the length."""
    sizes = [64]
    while sizes[-1] * 2 < length:
        sizes.append(sizes[-1] * 2)
    return sizes if length > 64 else []
