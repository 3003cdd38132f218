"""Tiny archives in the layouts of the official ones, and helpers to run the scripts on them."""

import io
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

TALKS = [
    ("Gracias. El perro duerme.", "Thank you. The dog sleeps."),
    ("La casa de Ana es vieja.", "Ana's house is old."),
    ("Un perro muy bien-educado, ¿no?", "A well-known dog & friend, isn't it?"),
    ("Vemos el perro y la casa.", "We see the dog and the house."),
]


def write_tar(path: Path, files: Mapping[str, str | bytes]) -> Path:
    """A .tgz with these files."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            data = encoded(content)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def write_zip(path: Path, files: Mapping[str, str | bytes]) -> Path:
    """A .zip with these files."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, encoded(content))
    return path


def encoded(content: str | bytes) -> bytes:
    """Text as UTF-8."""
    return content.encode("utf-8") if isinstance(content, str) else content


def lines(path: Path) -> list[str]:
    """The lines of a text file."""
    text = path.read_text(encoding="utf-8")
    assert text.endswith("\n")
    return text[:-1].split("\n")


def message(captured_err: str) -> str:
    """The error that ended a command, which is one line without a traceback."""
    assert "Traceback" not in captured_err
    last = captured_err.strip().splitlines()[-1]
    assert last.startswith("memattn prepare: error: ")
    return last.removeprefix("memattn prepare: error: ")


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder but fairseq's log, which holds paths."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in ("preprocess.log", "binarised.json")
    }


def talk(talkid: str, text: list[str], order: str = "url keywords talkid title") -> list[str]:
    """A talk of WIT3's training files."""
    return [f"<{tag}>{talkid if tag == 'talkid' else tag}</{tag}>" for tag in order.split()] + text


def iwslt14_files() -> dict[str, str | bytes]:
    """The files of es-en.tgz: two talks and a pair without English to train on."""
    files: dict[str, str | bytes] = {}
    for side, language in enumerate(("es", "en")):
        sentences = [pair[side] for pair in TALKS]
        train = talk("7", [f" {sentences[0]} ", "" if side else "Sin traducción.", sentences[1]])
        train += talk("3", sentences[2:] * 3, "url talkid title description")
        train.append("<reviewer></reviewer>")
        files[f"es-en/train.tags.es-en.{language}"] = "\n".join(train) + "\n"
        for number, name in enumerate(("dev2010", "tst2010", "tst2011", "tst2012")):
            files[f"es-en/IWSLT14.TED.{name}.es-en.{language}.xml"] = nist_set(
                "srcset" if language == "es" else "refset",
                {"12": [sentences[number]], "7": ["&lt;Risas&gt;" if number else "", *sentences]},
            )
    return files


def nist_set(kind: str, documents: Mapping[str, list[str]]) -> str:
    """A test set in NIST's format."""
    content = ['<?xml version="1.0" encoding="UTF-8"?>', "<mteval>", f'<{kind} setid="x">']
    for name, segments in documents.items():
        content += [f'<doc docid="{name}" genre="lectures">', "<title>A title</title>"]
        escaped = [text if "&lt;" in text else text.replace("&", "&amp;") for text in segments]
        content += [f'<seg id="{i}"> {text} </seg>' for i, text in enumerate(escaped, start=1)]
        content.append("</doc>")
    return "\n".join([*content, f"</{kind}>", "</mteval>"]) + "\n"
