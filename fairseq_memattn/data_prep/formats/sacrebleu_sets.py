"""sacreBLEU's registry of test sets, and their text as sacreBLEU itself reads it."""

import re
from collections.abc import Mapping
from copy import copy
from pathlib import Path
from tempfile import TemporaryDirectory

from sacrebleu import __version__
from sacrebleu.dataset import DATASETS
from sacrebleu.dataset.base import Dataset
from sacrebleu.dataset.wmt_xml import WMTXMLDataset
from sacrebleu.utils import SACREBLEU_DIR

from fairseq_memattn.data_prep.formats.document_format import DOCID
from fairseq_memattn.data_prep.pipeline.download import Archive
from fairseq_memattn.data_prep.text.lines import read_lines
from fairseq_memattn.errors import MemAttnError, like

PACKED = (".tar.gz", ".tgz", ".zip")  # what sacreBLEU unpacks; other files are the text itself
COLUMN = re.compile("^[0-9]+:")  # before the path of a table


def find_set(name: str) -> Dataset:
    """A test set. Raises MemAttnError for a name that sacreBLEU does not have."""
    if name not in DATASETS:
        raise MemAttnError(
            f"--set {name}: sacreBLEU {__version__} has no such set{like(name, DATASETS)}; "
            "--list shows all"
        )
    return DATASETS[name]


def check_pair(dataset: Dataset, pair: str) -> None:
    """Raises MemAttnError for a pair of languages that a set does not have."""
    if pair not in dataset.langpairs:
        pairs = ", ".join(sorted(dataset.langpairs))
        raise MemAttnError(f"--langs {pair}: the pairs of {dataset.name} are {pairs}")


def known_fields(dataset: Dataset, pair: str) -> list[str]:
    """The fields that the registry knows. The XML of a set may have more."""
    if not isinstance(dataset, WMTXMLDataset):
        return dataset.fieldnames(pair)
    return ["src", *default_references(dataset, pair), DOCID, "origlang"]


def default_references(dataset: Dataset, pair: str) -> list[str]:
    """The fields with which sacreBLEU scores."""
    if not isinstance(dataset, WMTXMLDataset):
        return [name for name in dataset.fieldnames(pair) if is_reference(name)]
    entry, translators = dataset.langpairs[pair], dataset.kwargs.get("refs", [])
    if isinstance(entry, Mapping):
        translators = entry.get("refs", translators)
    return [f"ref:{translator}" if translator else "ref" for translator in translators]


def is_reference(field: str) -> bool:
    """Whether sacreBLEU's name of a field is that of a reference."""
    return field == "ref" or field.startswith("ref:")


def with_docids(pair: str) -> list[str]:
    """The sets that have document ids and this pair."""
    return [
        name
        for name, dataset in DATASETS.items()
        if pair in dataset.langpairs and DOCID in known_fields(dataset, pair)
    ]


def raw_files(dataset: Dataset, pair: str) -> list[str]:
    """The files with the text of a pair, by their paths in sacreBLEU's folder of raw files."""
    entry = dataset.langpairs[pair]
    paths = [entry["path"]] if isinstance(entry, Mapping) else entry
    return list(dict.fromkeys(COLUMN.sub("", path) for path in paths))


def archives(dataset: Dataset, pair: str) -> list[Archive]:
    """The archives and files that contain the text of a pair."""
    wanted = raw_files(dataset, pair)
    folders = {Path(path).parts[0] for path in wanted}
    urls = dataset.data or []
    found = [
        Archive(url.rpartition("/")[2], url, url, digest=md5 and f"md5:{md5}")
        for url, md5 in zip(urls, dataset.md5 or len(urls) * [None], strict=True)
    ]
    packed = [one for one in found if one.name.endswith(PACKED)]
    # IWSLT17 has an archive for each pair, with a folder of that name; a set has two of them.
    of_pair = [one for one in packed if one.name.partition(".")[0] in folders]
    plain = [one for one in found if one not in packed and raw_name(dataset, one) in wanted]
    return [*(of_pair or packed), *plain]


def raw_name(dataset: Dataset, archive: Archive) -> str:
    """The name under which sacreBLEU keeps an archive."""
    return f"{dataset.name.replace('/', '_')}.{archive.name}"


def downloaded(dataset: Dataset, archive: Archive) -> Path | None:
    """The archive in sacreBLEU's own folder, if sacreBLEU has downloaded it before."""
    path = Path(SACREBLEU_DIR, dataset.name, "raw", raw_name(dataset, archive))
    return path if path.is_file() else None


def read_fields(dataset: Dataset, pair: str, raw: Path) -> dict[str, list[str]]:
    """The lines of each field, by sacreBLEU's names, which include those of systems.

    raw: the folder with `raw_files`. sacreBLEU's own folder is neither read nor written

    Raises MemAttnError for files that sacreBLEU cannot read, for fields of different lengths, and
    for a set without text or without the references with which sacreBLEU scores.
    """
    with TemporaryDirectory() as folder:
        local = copy(dataset)
        local._outdir, local._rawdir = folder, str(raw)
        local.data, local.md5 = [], None  # nothing to download
        try:
            names = local.fieldnames(pair)
            # sacreBLEU makes the names of files from those of translators and systems.
            for name in names:
                if "/" in name or "\0" in name:
                    what = f"the name {name!r} of a translator or system has a slash"
                    raise MemAttnError(f"{raw}: {what}")
            files = dict(zip(names, local.get_files(pair), strict=True))
        except MemAttnError:
            raise
        except Exception as error:  # sacreBLEU has no errors of its own for malformed files
            reason = str(error).partition("\n")[0]
            raise MemAttnError(
                f"{raw / raw_files(dataset, pair)[0]}: sacreBLEU cannot read the set "
                f"({type(error).__name__}: {reason})"
            ) from None
        fields = {name: list(read_lines(Path(path))) for name, path in files.items()}
    if len(set(map(len, fields.values()))) > 1:
        sizes = ", ".join(f"{name} has {len(lines)}" for name, lines in fields.items())
        raise MemAttnError(
            f"{raw}: the fields of {dataset.name} differ in their numbers of lines: {sizes}"
        )
    if not fields["src"]:
        raise MemAttnError(f"{raw}: {dataset.name} has no text for {pair}")
    wanted = default_references(dataset, pair)
    if not fields.keys() & {*wanted}:
        raise MemAttnError(
            f"{raw}: {dataset.name} has no reference {' or '.join(wanted)} for {pair}"
        )
    return fields
