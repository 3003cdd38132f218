"""Strict reading of JSON files."""

import json
from pathlib import Path
from typing import Any

from fairseq_memattn.evaluation.fairseq_output import read_lines


def read_json(path: Path, **options: Any) -> Any:
    """The content of a UTF-8 file. options: of `json.loads`

    Raises ValueError, which names the file, for what is not JSON, nested too deeply, or a number of
    too many digits.
    """
    try:
        return json.loads("\n".join(read_lines(path)), **options)
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}, line {error.lineno}: not JSON: {error.msg}") from None
    except RecursionError:
        raise ValueError(f"{path}: the JSON is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"{path}: {str(error).partition(';')[0]}") from None
