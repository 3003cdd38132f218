"""What document COMET and SLIDE give to unbabel-comet, recorded by a module in its place."""

import sys
from types import ModuleType, SimpleNamespace

import pytest
from scoring import score

IDS = ["x", "x", "x", "x", "y", "z", "z"]
SOURCES = [f"source {letter}" for letter in "abcdefg"]
REFERENCES = [f"reference {letter}" for letter in "ABCDEFG"]
BASE = [f"base {letter}" for letter in "ABCDEFG"]
OTHER = [f"other {letter}" for letter in "ABCDEFG"]
TEXTS = {"ids": IDS, "source": SOURCES, "reference": REFERENCES, "base": BASE, "other": OTHER}
COMMAND = (
    "--system base={d}/base --system other={d}/other --reference {d}/reference --resamples 0 "
    "--source {d}/source --docids {d}/ids --comet Some/model"
)


class Tokenizer:
    sep_token = "</s>"

    def __call__(self, texts, verbose):
        assert not verbose
        return {"input_ids": [[0, *text.split(), 2] for text in texts]}


class Model:
    """Has the methods of comet.models.CometModel, release 2.2.7, with the same arguments."""

    def __init__(self, needs_references=True, takes_context=True, max_positions=514):
        self.needs_references, self.takes_context = needs_references, takes_context
        self.encoder = SimpleNamespace(tokenizer=Tokenizer(), max_positions=max_positions)
        self.use_context = False
        self.calls = []

    def enable_context(self):
        self.use_context = self.takes_context

    def requires_references(self):
        return self.needs_references

    def predict(
        self,
        samples,
        batch_size=16,
        gpus=1,
        devices=None,
        mc_dropout=0,
        progress_bar=True,
        accelerator="auto",
        num_workers=None,
        length_batching=True,
    ):
        self.calls.append(samples)
        scores = [len(sample["mt"]) / 100 for sample in samples]
        return SimpleNamespace(scores=scores, system_score=sum(scores) / len(scores))


class Comet(ModuleType):
    """The functions of the package. Every load makes a new model, which is recorded."""

    __version__ = "2.2.7"

    def __init__(self, model=Model, **options):
        super().__init__("comet")
        self.make = lambda: model(**options)
        self.models = []

    def download_model(self, model, saving_directory=None, local_files_only=False):
        return model

    def load_from_checkpoint(
        self, checkpoint_path, reload_hparams=False, strict=False, local_files_only=False
    ):
        self.models.append(self.make())
        return self.models[-1]


@pytest.fixture
def run(tmp_path, capsys, monkeypatch):
    def call(options, comet):
        monkeypatch.setitem(sys.modules, "comet", comet)
        return score(tmp_path, capsys, TEXTS, f"{COMMAND} {options}")

    return call


def calls(comet, context):
    """The samples of each call of the models that were loaded with or without context."""
    return [
        samples for model in comet.models if model.use_context is context for samples in model.calls
    ]


def columns(samples):
    return {key: [sample[key] for sample in samples] for key in samples[0]}


CONTEXTS = [  # of the last word of each text, two sentences at most, within the document
    "A",
    "A </s> {} B",
    "A </s> {} B </s> {} C",
    "B </s> {} C </s> {} D",
    "E",
    "F",
    "F </s> {} G",
]


def in_context(name, before):
    """The text with context: all sentences but the last one are of `before`."""
    texts = []
    for pattern in CONTEXTS:
        count = pattern.count("{}")
        words = [before] * count + [name]
        texts.append(f"{words[0]} {pattern}".format(*words[1:]))
    return texts


def test_the_context_of_a_translation_is_of_references(run):
    comet = Comet()
    done = run("--comet-context 2", comet)
    assert done.status == 0
    base, other = calls(comet, context=True)
    source = [text.lower() for text in in_context("source", "source")]
    reference = in_context("reference", "reference")
    assert columns(base) == {"src": source, "mt": in_context("base", "reference"), "ref": reference}
    assert columns(other)["mt"] == in_context("other", "reference")
    assert columns(other)["mt"][3] == "reference B </s> reference C </s> other D"
    plain, _ = calls(comet, context=False)
    assert columns(plain) == {"src": SOURCES, "mt": BASE, "ref": REFERENCES}
    measure = done.report["measures"]["doc-COMET"]
    assert measure["signature"] == "context:2|model:Some/model|version:2.2.7"
    expected = sum(map(len, in_context("base", "reference"))) / 700
    assert measure["systems"]["base"]["score"] == pytest.approx(expected)
    assert f"doc-COMET  base    {expected:.4f}" in done.out


def test_without_references_the_context_is_of_the_translation(run):
    comet = Comet(needs_references=False)
    assert run("--comet-context 2", comet).status == 0
    base, other = calls(comet, context=True)
    assert columns(base)["mt"] == in_context("base", "base")
    assert columns(other)["mt"] == in_context("other", "other")


@pytest.mark.parametrize("model", [Model, SimpleNamespace])
def test_a_model_that_ignores_context_is_refused(run, model):
    options = {"takes_context": False} if model is Model else {}
    comet = Comet(model, **options)
    done = run("--comet-context 2", comet)
    assert done.status == 1 and done.out == ""
    assert "--comet-context: --comet Some/model cannot use context; unbabel-comet 2.2.3" in done.err
    if model is Model:
        assert comet.models[0].calls == []


def test_inputs_that_comet_cuts_are_counted(run):
    # With <s> and </s>, a sentence has 4 tokens, two with their separator have 7, three have 10.
    done = run("--comet-context 2", Comet(max_positions=9))
    (warning,) = done.err.splitlines()
    # Sentences C and D of source, reference and two systems.
    assert warning.startswith(
        "warning: doc-COMET: 8 of 28 different inputs have more than the 7 tokens"
    )
    assert run("--comet-context 2", Comet(max_positions=12)).err == ""


def test_slide_joins_the_sentences_of_each_window(run):
    comet = Comet()
    done = run("--slide-window 3 --slide-stride 2", comet)
    model = comet.models[0]
    assert len(comet.models) == 1 and not model.use_context
    (base_slide, other_slide) = model.calls[2:]
    assert columns(base_slide) == {
        "src": [
            *("source a source b source c", "source b source c source d"),
            *("source e", "source f source g"),
        ],
        "mt": ["base A base B base C", "base B base C base D", "base E", "base F base G"],
        "ref": [
            *("reference A reference B reference C", "reference B reference C reference D"),
            *("reference E", "reference F reference G"),
        ],
    }
    measure = done.report["measures"]["SLIDE-COMET"]
    assert measure["signature"] == "window:3|stride:2|tail:shifted|model:Some/model|version:2.2.7"
    assert measure["systems"]["other"]["score"] == pytest.approx(
        sum(len(sample["mt"]) for sample in other_slide) / 400
    )


def test_slide_of_single_sentences_is_comet(run):
    measures = run("--slide-window 1", Comet()).report["measures"]
    assert measures["SLIDE-COMET"]["systems"] == measures["COMET"]["systems"]
