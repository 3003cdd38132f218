"""sacreBLEU's test sets with document ids, all references and the systems of the shared tasks."""

import argparse
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

from sacrebleu import __version__
from sacrebleu.dataset import DATASETS
from sacrebleu.dataset.base import Dataset
from sacrebleu.dataset.wmt_xml import WMTXMLDataset

from fairseq_memattn.data_prep.formats import sacrebleu_sets as registry
from fairseq_memattn.data_prep.formats.document_format import DOCID
from fairseq_memattn.data_prep.pipeline.archives import is_at, names
from fairseq_memattn.data_prep.pipeline.arguments import add_options, add_switches
from fairseq_memattn.data_prep.pipeline.download import Archive, obtain
from fairseq_memattn.data_prep.pipeline.stages import Counts, locks_output
from fairseq_memattn.data_prep.pipeline.text_to_binary import Pipeline, copy_file
from fairseq_memattn.data_prep.text.aligned import Sentence, with_unique_ids
from fairseq_memattn.errors import MemAttnError
from fairseq_memattn.evaluation.tables import table
from fairseq_memattn.evaluation.text_columns import FORMATS, table_lines
from fairseq_memattn.files import write_all_or_nothing

FACTS = (DOCID, "origlang", "genre", "domain")  # about a line; other fields are text
Fields = Mapping[str, Sequence[str]]
TextFiles = dict[str, Iterable[str]]  # by the path in --output
DESCRIPTION = """\
A test set of sacreBLEU, as sacreBLEU reads it: source, references and document ids, line by line.
The archive is downloaded and compared with sacreBLEU's checksum. An archive that sacreBLEU has
downloaded before is used from its own folder, which is not written to.

  %(prog)s --set wmt23 --langs en-de --output wmt23
  %(prog)s --set wmt23 --langs en-de --output wmt23 --archive v.0.1.tar.gz
  %(prog)s --list --langs en-de

FOLDER/text/test.en, test.de, test.docid    source, sacreBLEU's reference, document ids
FOLDER/text/test.origlang, ...              what else the set says about each line
FOLDER/references/ref-refA.de, ...          where there are several references, each by its name
FOLDER/systems/ONLINE-A.de, ...             translations of systems, from the sets that have them
"""


def print_sets(args: argparse.Namespace) -> None:
    """Print the sets with their fields and pairs, those of --set and --langs if given."""
    dataset = registry.find_set(args.set) if args.set else None
    if dataset and args.langs:
        registry.check_pair(dataset, args.langs)
    rows: dict[tuple[str, str], list[str]] = {}
    for one in [dataset] if dataset else DATASETS.values():
        for pair in sorted(one.langpairs):
            if args.langs in (None, pair):
                fields = ",".join(registry.known_fields(one, pair))
                rows.setdefault((one.name, fields), []).append(pair)
    if not rows:
        raise MemAttnError(f"--langs {args.langs}: no set of sacreBLEU has this pair")
    header = ("set", "fields", "pairs")
    print(table([header, *((*row, " ".join(pairs)) for row, pairs in rows.items())], left=3))


def run(args: argparse.Namespace) -> None:
    missing = [f"--{name}" for name in ("set", "langs", "output") if getattr(args, name) is None]
    if args.list:
        print_sets(args)
    elif missing:
        raise MemAttnError(f"the following arguments are required: {', '.join(missing)}")
    else:
        prepare(args)


@locks_output
def prepare(args: argparse.Namespace) -> None:
    dataset = registry.find_set(args.set)
    registry.check_pair(dataset, args.langs)
    check_docids(dataset, args.langs, args.without_docids)
    pipeline = Pipeline(args.output, args.langs.split("-"), force=args.force)
    files = unpack(pipeline, dataset, args)
    fields = registry.read_fields(dataset, args.langs, pipeline.folder / "raw")
    defaults = registry.default_references(dataset, args.langs)
    counts = {"lines": len(fields["src"])}
    if args.without_docids:
        fields.pop(DOCID, None)
    else:
        repeated: Counter[str] = Counter()
        fields[DOCID] = unique_ids(fields[DOCID], files[0], repeated)
        counts |= {"documents": len(set(fields[DOCID])), **repeated}
    if isinstance(dataset, WMTXMLDataset):
        segments = len(ElementTree.parse(files[0]).getroot().findall(".//src//seg"))
        counts["segments that sacreBLEU leaves out"] = segments - counts["lines"]
    write(pipeline, files, args, text_files(fields, args, defaults), counts)
    print(f"references with which sacreBLEU scores: {', '.join(defaults)}")
    for name in filter(registry.is_reference, sorted(fields)):
        if empty := sum(not line for line in fields[name]):
            print(f"note: {empty} of {len(fields[name])} lines of {name} have no text")


def check_docids(dataset: Dataset, pair: str, without: bool) -> None:
    """Raises MemAttnError for a set without document ids, unless they are not wanted."""
    if without or DOCID in registry.known_fields(dataset, pair):
        return
    sets = ", ".join(registry.with_docids(pair)) or "none; --list shows the other pairs"
    raise MemAttnError(
        f"--set {dataset.name}: sacreBLEU has no document ids for it; --without-docids prepares "
        f"its text alone; sets with document ids for {pair}: {sets}"
    )


def unpack(pipeline: Pipeline, dataset: Dataset, args: argparse.Namespace) -> list[Path]:
    """The raw files of the pair in raw/, the first of which has the source."""
    wanted = registry.raw_files(dataset, args.langs)
    needed = registry.archives(dataset, args.langs)
    given = given_paths(dataset, needed, args.archive)
    paths = [
        obtain(
            one, path or registry.downloaded(dataset, one), args.output / "archives", args.unchecked
        )
        for one, path in zip(needed, given, strict=True)
    ]
    inside = [
        members(dataset, archive, path, wanted) for archive, path in zip(needed, paths, strict=True)
    ]
    missing = sorted(set(wanted).difference(*inside))
    if missing:
        raise MemAttnError(f"{' and '.join(map(str, paths))}: no file {missing[0]}")
    for archive, path, files in zip(needed, paths, inside, strict=True):
        if archive.name.endswith(registry.PACKED):
            pipeline.unpack(path, {name: name for name in files})
        else:
            target = pipeline.folder / "raw" / files[0]
            copy = partial(copy_file, path, target)
            pipeline.stages.run(f"raw-{archive.name}", [path], [target], copy)
    return [pipeline.folder / "raw" / name for name in wanted]


def members(dataset: Dataset, archive: Archive, path: Path, wanted: Sequence[str]) -> list[str]:
    """Those of the raw files that an archive contains, or that it is."""
    if not archive.name.endswith(registry.PACKED):
        return [registry.raw_name(dataset, archive)]
    inside = names(path)
    return [name for name in wanted if any(is_at(member, name) for member in inside)]


def given_paths(
    dataset: Dataset, needed: Sequence[Archive], given: Sequence[Path]
) -> list[Path | None]:
    """The path of --archive for each archive, by its name; a single archive may have any name."""
    if len(needed) == len(given) == 1:
        return [*given]
    found: dict[str, Path] = {}
    for path in given:
        fitting = [
            one.name for one in needed if path.name in (one.name, registry.raw_name(dataset, one))
        ]
        if not fitting:
            expected = ", ".join(one.name for one in needed)
            raise MemAttnError(f"--archive {path}: the name must be one of {expected}")
        found[fitting[0]] = path
    return [found.get(one.name) for one in needed]


def unique_ids(docids: Sequence[str], path: Path, counts: Counter[str]) -> list[str]:
    """The ids; an id that occurs again after its document has ended gets a number."""
    for number, docid in enumerate(docids, start=1):
        if not docid.strip():
            raise MemAttnError(f"{path}: the id of the document of segment {number} is empty")
    rows = (Sentence((), docid.strip(), 0) for docid in docids)
    return [row.document for row in with_unique_ids(rows, counts)]


def reference(fields: Fields, defaults: Sequence[str]) -> list[str]:
    """Of each line, the text of the first of sacreBLEU's references that has one."""
    columns = [fields[name] for name in defaults if name in fields]
    return [next((text for text in row if text), "") for row in zip(*columns, strict=True)]


def columns_of(fields: Fields, defaults: Sequence[str]) -> dict[str, Sequence[str]]:
    """The columns of a table: ids, source, sacreBLEU's reference, then all other fields.

    A reference without a name is called ref:unnamed beside others.
    """
    several = sum(map(registry.is_reference, fields)) > 1
    first = {DOCID: fields[DOCID]} if DOCID in fields else {}
    first |= {"src": fields["src"], "ref": reference(fields, defaults)}
    rest = {("ref:unnamed" if name == "ref" else name): fields[name] for name in sorted(fields)}
    return first | {
        name: lines
        for name, lines in rest.items()
        if name not in first and (several or not registry.is_reference(name))
    }


def text_files(fields: Fields, args: argparse.Namespace, defaults: Sequence[str]) -> TextFiles:
    """The path of each file in the output, and its lines."""
    source, target = args.langs.split("-")
    columns = columns_of(fields, defaults)
    if args.format != "text":
        return {f"text/test.{args.format}": table_lines(columns, args.format)}
    files: TextFiles = {}
    for name, lines in columns.items():
        label = name.replace(":", "-")
        if name in FACTS:
            files[f"text/test.{name}"] = lines
        elif name in ("src", "ref"):
            files[f"text/test.{source if name == 'src' else target}"] = lines
        else:
            folder = "references" if registry.is_reference(name) else "systems"
            files[f"{folder}/{label}.{target}"] = lines
    return files


def write(
    pipeline: Pipeline,
    inputs: Sequence[Path],
    args: argparse.Namespace,
    files: TextFiles,
    counts: Counts,
) -> None:
    """Write all files as one stage. Raises MemAttnError for text that the format cannot store."""
    outputs = [pipeline.folder / name for name in files]

    def work() -> Counts:
        with write_all_or_nothing(outputs) as opened:
            for file, lines in zip(opened, files.values(), strict=True):
                try:
                    file.writelines(f"{line}\n" for line in lines)
                except ValueError as error:
                    raise MemAttnError(f"--format {args.format}: {error}") from None
        return counts

    options = {name: getattr(args, name) for name in ("set", "langs", "format", "without_docids")}
    pipeline.stages.run("text-test", inputs, outputs, work, **options, sacrebleu=__version__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--set", metavar="NAME", help="sacreBLEU's name of the set, such as wmt23")
    parser.add_argument("--langs", metavar="PAIR", help="the pair of languages, such as en-de")
    add_options(parser, "--output", output={"required": False})
    of_list = "print sets, fields and pairs, those of --set and --langs if given; WMT's XML may "
    add_switches(parser, {"--list": of_list + "have more references, and systems"})
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default=FORMATS[0],
        help="text: a file for each field; jsonl, tsv: text/test.jsonl or text/test.tsv with all "
        "fields (default: %(default)s)",
    )
    of_ids = "leave document ids out, also for sets that have none"
    add_switches(parser, {"--without-docids": of_ids})
    also = {"also": ["--from-archive"]}
    add_options(parser, "--archives", "--unchecked", "--force", archives=also)
