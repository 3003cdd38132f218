"""Reads values that are written as Python literals, and evaluates nothing."""

import ast
import operator
from collections.abc import Callable
from typing import Any

from fairseq_memattn.errors import MemAttnError

MAX_LENGTH = 100_000  # characters
MAX_VALUES = 100_000  # of lists and tuples that are joined or repeated, and of those inside them
SHOWN = 60  # characters of the text in a message

Number = int | float
_SIGNS: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}


class LiteralError(MemAttnError):
    """Raised for text that is not a literal."""


def read_literal(text: str) -> Any:
    """The value of a literal, as `eval` gives it.

    Literals are numbers, strings, True, False and None, and lists, tuples, dictionaries and sets of
    literals. `+` adds numbers and joins lists or tuples; `*` multiplies numbers and repeats a list
    or a tuple, as in `[(512, 3)] * 20`.

    Raises LiteralError for any other text, for more than MAX_LENGTH characters, and where `+` and
    `*` make more than MAX_VALUES values. Raises TypeError if `text` is not a string.
    """
    if not isinstance(text, str):
        raise TypeError(f"a literal must be a string, but is {type(text).__name__}")
    if len(text) > MAX_LENGTH:
        raise _refused(text, f"it has {len(text)} characters, and the limit is {MAX_LENGTH}")
    try:
        return _Reader().value(ast.parse(text.lstrip(" \t"), mode="eval").body)
    except _Unreadable as error:
        raise _refused(text, str(error)) from None
    except (SyntaxError, ValueError, ArithmeticError, MemoryError, RecursionError):
        raise _refused(text, "it is not the text of one value") from None


class _Unreadable(Exception):
    """What in the text is refused."""


def _refused(text: str, reason: str) -> LiteralError:
    return LiteralError(f"{_short(text)} is not a literal: {reason}; nothing of it was run")


def _short(text: str) -> str:
    return repr(text if len(text) <= SHOWN else text[: SHOWN - 3] + "...")


class _Reader:
    """Reads one text, and counts the values that `+` and `*` make of it."""

    def __init__(self) -> None:
        self.made = 0

    def value(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=None | bool() | int() | float() | str()):
                return node.value
            case ast.List():
                return list(map(self.value, node.elts))
            case ast.Tuple():
                return tuple(map(self.value, node.elts))
            case ast.Set():
                return {_hashable(self.value(part)) for part in node.elts}
            case ast.Dict(keys=keys) if all(keys):
                return {
                    _hashable(self.value(key)): self.value(value)
                    for key, value in zip(keys, node.values, strict=True)
                    if key is not None
                }
            case ast.UnaryOp(op=ast.UAdd() | ast.USub()):
                operand = self.value(node.operand)
                if isinstance(operand, Number):
                    return _SIGNS[type(node.op)](operand)
            case ast.BinOp(op=ast.Add()):
                return self.sum(node, self.value(node.left), self.value(node.right))
            case ast.BinOp(op=ast.Mult()):
                return self.product(node, self.value(node.left), self.value(node.right))
        raise _unreadable(node)

    def sum(self, node: ast.expr, left: Any, right: Any) -> Any:
        both = left, right
        if all(isinstance(part, Number) for part in both):
            return left + right
        if any(all(isinstance(part, kind) for part in both) for kind in (list, tuple)):
            self.count(_size(left) + _size(right))
            return left + right
        raise _unreadable(node)

    def product(self, node: ast.expr, left: Any, right: Any) -> Any:
        if isinstance(left, Number) and isinstance(right, Number):
            return left * right
        if isinstance(left, int):
            left, right = right, left
        if isinstance(left, list | tuple) and isinstance(right, int):
            self.count(_size(left) * max(right, 0))
            return left * right
        raise _unreadable(node)

    def count(self, size: int) -> None:
        self.made += size
        if self.made > MAX_VALUES:
            raise _Unreadable(f"it has more than {MAX_VALUES} values")


def _unreadable(node: ast.expr) -> _Unreadable:
    kind = "calls a function" if isinstance(node, ast.Call) else "is an expression or a name"
    return _Unreadable(f"{_short(ast.unparse(node))} {kind}")


def _hashable(value: Any) -> Any:
    try:
        hash(value)
    except TypeError:
        raise _Unreadable(
            f"a {type(value).__name__} cannot be a key or an element of a set"
        ) from None
    return value


def _size(value: Any) -> int:
    """The number of values in a value, itself included."""
    if isinstance(value, dict):
        return 1 + sum(map(_size, value)) + sum(map(_size, value.values()))
    if isinstance(value, list | tuple | set):
        return 1 + sum(map(_size, value))
    return 1
