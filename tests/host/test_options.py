"""Values that fairseq's commands accept though they make no sense end in one sentence."""

import errno
import shlex

import pytest
from harness import LANGUAGE_MODEL, PLUGGED, TRANSLATOR, attempt

from fairseq_memattn.host.correctness import failed_training


def assert_refused(done, message):
    assert done.returncode == 1
    assert message in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--lenpen nan", "--lenpen must be a finite number, but is nan"),
        ("--unkpen inf", "--unkpen must be a finite number, but is inf"),
        ("--temperature 0", "--temperature must be above 0, but is 0"),
        ("--beam 0", "--beam must be at least 1, but is 0"),
        ("--nbest 9 --beam 5", "--nbest must be at most --beam 5, but is 9"),
        ("--prefix-size -2", "--prefix-size must be at least 0, but is -2"),
        ("--max-tokens -3", "--max-tokens must be at least 1, but is -3"),
        ("--batch-size 0", "--batch-size must be at least 1, but is 0"),
        ("--max-len-a nan", "--max-len-a must be a finite number, but is nan"),
        ("--max-len-b -1", "--max-len-b must be at least 0, but is -1"),
        ("--min-len -1", "--min-len must be at least 0, but is -1"),
        ("--num-workers -1", "--num-workers must be at least 0, but is -1"),
        ("--num-shards 2 --shard-id 5", "--shard-id must be from 0 to 1 with --num-shards 2, but"),
        ("--num-shards 0", "--num-shards must be at least 1, but is 0"),
        ("--seed -1", "--seed must be from 0 to 4294967295, but is -1"),
        (
            "--remove-bpe sentencepeice",
            "--remove-bpe must be one of sentencepiece, subword_nmt, @@,",
        ),
    ],
)
def test_generation(flags, message, translator):
    path = ["--path", translator.checkpoint]
    done = attempt("fairseq-generate", translator.data, *PLUGGED, *path, *shlex.split(flags))
    assert_refused(done, message)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--dropout nan", "--dropout must be at least 0 and below 1, but is nan"),
        ("--dropout -0.1", "--dropout must be at least 0 and below 1, but is -0.1"),
        ("--attention-dropout 1", "--attention-dropout must be at least 0 and below 1, but is 1"),
        ("--encoder-layers -1", "--encoder-layers must be at least 1, but is -1"),
        ("--decoder-layers 0", "--decoder-layers must be at least 1, but is 0"),
        ("--decoder-embed-dim 0", "--decoder-embed-dim must be at least 1, but is 0"),
        ("--update-freq 0", "--update-freq must be at least 1, but is [0]"),
        ("--max-tokens 0", "--max-tokens must be at least 1, but is 0"),
        ("--max-update -5", "--max-update must be at least 0, but is -5"),
        ("--log-interval 0", "--log-interval must be at least 1, but is 0"),
        (f"--max-tokens {10**20}", "--max-tokens must be at most 2147483647, but is 1000000000"),
        ("--seed 4294967296", "--seed must be from 0 to 4294967295, but is 4294967296"),
        ("--lr -1", "--lr must be at least 0, but is [-1.0]"),
        (
            "--adam-betas (0.9,)",
            "--adam-betas must be two numbers from 0 to below 1, but is (0.9,)",
        ),
        (
            "--adam-betas 0.9,1.0",
            "--adam-betas must be two numbers from 0 to below 1, but is 0.9,1",
        ),
        (
            "--criterion label_smoothed_cross_entropy --label-smoothing 7",
            "--label-smoothing must be at least 0 and below 1, but is 7",
        ),
        (
            "--lr-scheduler inverse_sqrt --warmup-updates -4",
            "--warmup-updates must be at least 0, but is -4",
        ),
        ("--max-source-positions 0", "--max-source-positions must be at least 1, but is 0"),
        ("--tpu", "--tpu needs torch_xla, which this plugin does not work with"),
        ("--fp16", "--fp16 needs a GPU; leave it out on a CPU"),
        ("--bf16", "--bf16 needs a GPU; leave it out on a CPU"),
        ("--bf16 --tpu --memory-efficient-bf16", "--tpu needs torch_xla, which this plugin does"),
        ("--restore-file no/such.pt", "--restore-file no/such.pt does not exist"),
        ("--finetune-from-model no.pt", "--finetune-from-model no.pt does not exist"),
        ("--num-workers 1000000000", "--num-workers must be at most 1024, but is 1000000000"),
        (f"--encoder-layers {10**9}", "--encoder-layers must be at most 10000, but is 1000000000"),
        (
            "--distributed-init-method tcp://localhost:9 --distributed-world-size 2",
            "--distributed-init-method starts a process for each GPU, but there is none; start",
        ),
        ("--decoder-output-dim no", "--decoder-output-dim must be a number above 0, but is 'no'"),
        ("--best-checkpoint-metric bleu", "--best-checkpoint-metric bleu needs --eval-bleu"),
        ("--validate-interval 0", "--validate-interval must be at least 1, but is 0"),
        ("--validate-interval-updates -1", "--validate-interval-updates must be at least 0, but"),
        (
            "--task document_translation --combine-valid-subsets",
            "--combine-valid-subsets does not work with --task document_translation; name the sets",
        ),
        ("--eval-bleu --eval-bleu-args 5", "--eval-bleu-args must be JSON such as"),
        ("--eval-bleu --eval-bleu-detok-args x", "--eval-bleu-detok-args must be JSON such as"),
        ("--write-checkpoints-asynchronously", "--write-checkpoints-asynchronously needs the"),
    ],
)
def test_training(flags, message, bilingual, tmp_path):
    given = [*TRANSLATOR, "--save-dir", tmp_path / "saved", *shlex.split(flags)]
    assert_refused(attempt("fairseq-train", bilingual, *given), message)
    assert not (tmp_path / "saved").exists()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--mask-prob 1", "--mask-prob must be above 0 and below 1, but is 1.0"),
        ("--random-token-prob 12", "--random-token-prob must be from 0 to 1, but is 12.0"),
        ("--random-token-prob 0.7 --leave-unmasked-prob 0.7", "at most 1 together, but are 0.7"),
    ],
)
def test_masking(flags, message, monolingual, tmp_path):
    task = "--task masked_lm --arch roberta_base --optimizer adam --lr 0.1 --batch-size 1"
    given = [*task.split(), "--save-dir", tmp_path / "saved", *flags.split()]
    assert_refused(attempt("fairseq-train", monolingual, *given), message)


def test_a_learning_rate_of_zero(bilingual, tmp_path):
    """Nothing is learned with most schedules; others have rates of their own."""
    flags = ["--lr", 0, "--max-update", 1, "--log-file", "no/log", "--save-dir", tmp_path]
    done = attempt("fairseq-train", bilingual, *TRANSLATOR, *flags)
    assert "--lr is 0: the training does not change the weights" in done.stdout
    flags += ["--lr-scheduler", "triangular", "--max-lr", 0.1, "--lr-period-updates", 9]
    done = attempt("fairseq-train", bilingual, *TRANSLATOR, *flags)
    assert "--lr is 0" not in done.stdout and "--log-file" in done.stderr


def test_the_lowest_accuracy_is_not_the_best(bilingual, tmp_path):
    flags = ["--best-checkpoint-metric", "accuracy", "--save-dir", tmp_path]
    flags += ["--log-file", "no/log"]
    warning = "--best-checkpoint-metric accuracy keeps the checkpoint with the lowest accuracy"
    done = attempt("fairseq-train", bilingual, *TRANSLATOR, *flags)
    assert warning in done.stdout
    flags.append("--maximize-best-checkpoint-metric")
    done = attempt("fairseq-train", bilingual, *TRANSLATOR, *flags)
    assert warning not in done.stdout and "--log-file" in done.stderr


def test_a_metric_that_is_not_logged(bilingual, tmp_path):
    """It is found in the first validation, and the training up to there is saved."""
    flags = ["--best-checkpoint-metric", "no_loss", "--save-dir", tmp_path, "--max-update", 2]
    done = attempt("fairseq-train", bilingual, *TRANSLATOR, *flags)
    assert_refused(done, "--best-checkpoint-metric must be a metric that validation logs, one of")
    assert ", but is no_loss" in done.stderr and "one of loss, ppl, " in done.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["crash.pt"]


def test_a_context_window_below_zero(language_model):
    flags = ["--path", language_model.checkpoint, "--context-window", -1]
    done = attempt("fairseq-eval-lm", language_model.data, *PLUGGED, *flags)
    assert_refused(done, "--context-window must be at least 0, but is -1")


@pytest.mark.parametrize("command", ["fairseq-interactive", "fairseq-eval-lm"])
def test_a_command_without_a_model(command, monolingual, bilingual):
    data = monolingual if command == "fairseq-eval-lm" else bilingual
    done = attempt(command, data, *PLUGGED)
    assert_refused(done, f"{command}: error: --path must be given: the checkpoint of the model")


def test_a_command_without_a_task(translator):
    flags = ["--path", translator.checkpoint, "--batch-size", 8]
    done = attempt("fairseq-validate", translator.data, *PLUGGED, *flags)
    assert_refused(done, "fairseq-validate: error: --task must be given")


def test_a_training_without_an_architecture(bilingual, tmp_path):
    done = attempt("fairseq-train", bilingual, *PLUGGED, "--save-dir", tmp_path)
    assert_refused(done, "fairseq-train: error: --arch must be given")


@pytest.mark.parametrize("updates", [0, 2])
def test_a_failed_training_leaves_no_model_without_updates(
    updates, bilingual, tmp_path, monkeypatch
):
    from fairseq.tasks.translation import TranslationTask

    train_step = TranslationTask.train_step

    def fail(self, sample, model, criterion, optimizer, update_num, **options):
        if update_num == updates:
            raise KeyError("of the test")
        return train_step(self, sample, model, criterion, optimizer, update_num, **options)

    monkeypatch.setattr(TranslationTask, "train_step", fail)
    done = attempt("fairseq-train", bilingual, *TRANSLATOR, "--save-dir", tmp_path)
    assert_refused(done, "fairseq-train: error: KeyError: 'of the test'")
    assert [file.name for file in tmp_path.iterdir()] == (["crash.pt"] if updates else [])
    assert (f"the model after 2 updates is in {tmp_path}/crash.pt" in done.stdout) == bool(updates)


def test_a_training_that_diverges(bilingual, tmp_path):
    flags = ["--lr", 1e30, "--clip-norm", 0, "--max-update", 20, "--save-dir", tmp_path]
    done = attempt("fairseq-train", bilingual, *TRANSLATOR, *flags)
    words = "the gradients or the loss are NaN or infinite at update 2; a smaller --lr or --clip-n"
    assert_refused(done, words)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (("1.0", "nan"), "the gradients or the loss are NaN or infinite at update 3; a smaller --"),
        (("1.0", "2.0"), "Fatal error: gradients are inconsistent between workers. Try --ddp"),
    ],
)
def test_gradients_that_differ_between_processes(values, words):
    fault = "Fatal error: gradients are inconsistent between workers. Try --ddp-backend=legacy_ddp."
    details = [f"rank {rank:3d} = {value}" for rank, value in enumerate(values)]
    told = failed_training.divergence("\n".join([fault, *details]), 3)
    assert told.startswith(words) and "\n" not in told


@pytest.mark.parametrize("failures", [2, 3])
def test_a_checkpoint_on_a_full_disk(failures, bilingual, tmp_path, monkeypatch):
    """The third attempt is the last; a checkpoint is whole, or is not there."""
    import torch

    save, failed = torch.save, []

    def fail(checkpoint, file):
        if len(failed) < failures:
            failed.append(file.write(b"a part"))
            raise OSError(errno.ENOSPC, "No space left on device")
        save(checkpoint, file)

    monkeypatch.setattr(failed_training, "WAITS", (0, 0))
    monkeypatch.setattr(torch, "save", fail)
    flags = ["--max-update", 1, "--save-dir", tmp_path, "--no-epoch-checkpoints"]
    done = attempt("fairseq-train", bilingual, *TRANSLATOR, *flags)
    if failures == 3:
        words = f".pt cannot be written in the folder {tmp_path}: No space left on device"
        assert_refused(done, words)
        assert not list(tmp_path.iterdir())
    else:
        assert done.returncode == 0
        torch.load(tmp_path / "checkpoint_last.pt", weights_only=True)["model"]


def test_blocks_without_tokens(monolingual, tmp_path):
    flags = [*LANGUAGE_MODEL, "--tokens-per-sample", -1, "--save-dir", tmp_path]
    done = attempt("fairseq-train", monolingual, *flags)
    assert_refused(done, "--tokens-per-sample must be at least 1, but is -1")


def test_a_language_model_without_layers(monolingual, tmp_path):
    flags = [*LANGUAGE_MODEL, "--decoder-layers", 0, "--save-dir", tmp_path]
    done = attempt("fairseq-train", monolingual, *flags)
    assert_refused(done, "--decoder-layers must be at least 1, but is 0")
