"""Strict reading of JSON files."""

import json
from pathlib import Path
from typing import Any

from fairseq_memattn.evaluation.utf8_lines import read_lines


def read_json(path: Path, **options: Any) -> Any:
    """The content of a UTF-8 file. options: of `json.loads`

    Raises ValueError, which names the file, for what is not JSON, nested too deeply, or a number of
    too many digits.
    """
    return parse_json("\n".join(read_lines(path)), str(path), **options)


def parse_json(text: str, where: str, **options: Any) -> Any:
    """The value of a text, as `read_json`. where: the file and the line, for error messages"""
    try:
        return json.loads(text, **options)
    except json.JSONDecodeError as error:
        line = f", line {error.lineno}" if "\n" in text else ""
        raise ValueError(f"{where}{line}: not JSON: {error.msg}") from None
    except RecursionError:
        raise ValueError(f"{where}: the JSON is nested too deeply") from None
    except ValueError as error:
        # Python's message about digits advises to change a setting of the interpreter.
        raise ValueError(f"{where}: {str(error).partition(';')[0]}") from None
