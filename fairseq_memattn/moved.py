"""Modules of 1.0 under their old names, with a DeprecationWarning."""

import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

PACKAGE = "fairseq_memattn"
# The old names, and the modules that have what was in them.
MOVED = {
    "architectures": "cli.shared.architectures",
    "compat": "host.patches host.checkpoints host.installation",
    "compression.compress": "tasks.inference.compression",
    "compression.repair": "compression.store",
    "data.document_ids": "documents.ids",
    "data.generated_examples": "data.generated_dataset",
    "data.sentinels": "data.corrupted_spans",
    "data.split_files": "data.documents.splits",
    "documents.context_generator": "tasks.inference.context_generator",
    "documents.context_windows": "documents.windows",
    "documents.conversation": "documents.decoder",
    "documents.document_batches": "data.documents.batches",
    "documents.document_dataset": "data.documents.dataset",
    "documents.document_decoder": "documents.decoder",
    "documents.document_session": "tasks.inference.session",
    "documents.document_view": "tasks.inference.view",
    "documents.memory_generator": "tasks.inference.context_generator",
    "documents.memory_scorer": "tasks.inference.scorer",
    "documents.predicted_context": "tasks.inference.session",
    "documents.progress": "documents.decoder",
    "documents.segment_dataset": "data.documents.segments",
    "documents.segment_rows": "data.documents.segments",
    "documents.sentence_dataset": "data.documents.dataset",
    "documents.sentence_windows": "data.documents.collation",
    "documents.split_loading": "data.documents.splits",
    "documents.translation_scorer": "tasks.inference.scorer",
    "documents.validation_bleu": "tasks.validation",
    "evaluation.cohesion": "evaluation.consistency",
    "evaluation.contrastive_sets.pronouns": "evaluation.contrastive_sets.contrapro",
    "evaluation.contrastive_sets.tested_groups": "evaluation.contrastive_sets.contrapro",
    "evaluation.document_outputs": "evaluation.document_lines",
    "evaluation.exchanged": "evaluation.swapped_groups",
    "evaluation.generative_sets.ctxpro_sources": "evaluation.generative_sets.ctxpro",
    "evaluation.json_files": "files",
    "evaluation.score_plots": "evaluation.breakdown",
    "evaluation.scored_texts": "evaluation.document_lines",
    "evaluation.slide": "evaluation.scores",
    "evaluation.text_units": "evaluation.realignment",
    "evaluation.training_plots": "evaluation.training_log",
    "evaluation.utf8_lines": "files",
    "excepthook": "host.messages.handler",
    "generation_limits": "host.correctness.lengths",
    "literals": "host.safety.literals",
    "models.abc_decoding": "models.abc_transformer",
    "models.t5_config": "models.t5",
    "modules.gmat_positions": "networks.positions models.gmat_config",
    "modules.t5_embedding": "networks.t5_layers",
    "modules.t5_layers": "networks.t5_layers",
    "modules.t5mem_layers": "networks.t5mem_encoder",
    "modules.t5mem_selector": "networks.t5mem",
    "modules.t5mem_stacks": "modules.t5_stacks",
    "perplexity": "evaluation.perplexity",
    "perplexity.block_losses": "evaluation.perplexity",
    "perplexity.by_position": "evaluation.perplexity",
    "perplexity.stream_scores": "evaluation.perplexity",
    "perplexity.target_scores": "evaluation.perplexity",
    "qa.answer_gatherer": "data.questions.span_finder",
    "qa.question_dataset": "data.questions.dataset",
    "qa.span_dataset": "data.questions.spans",
    "qa.span_finder": "data.questions.span_finder",
    "qa.span_texts": "data.questions.span_finder",
    "qa.span_windows": "qa.span_candidates",
    "qa.validation_answers": "tasks.validation",
    "tasks.trained": "tasks.base",
    "transformers.auto_classes": "transformers",
    "transformers.cache_name": "transformers.arguments",
    "transformers.document_search": "transformers.document_translator",
    "transformers.gmat_configuration": "transformers.gmat_modeling",
    "transformers.t5mem_blocks": "networks.t5_layers",
    "transformers.t5mem_decoder": "networks.t5mem transformers.t5mem_stacks",
    "transformers.t5mem_encoder": "networks.t5mem_encoder transformers.t5mem_stacks",
}


class Finder(MetaPathFinder, Loader):
    """Finds the modules that MOVED names, after all others have been looked for."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, name = fullname.partition(".")
        if package != PACKAGE or name not in MOVED:
            return None
        return ModuleSpec(fullname, self, is_package=name == "perplexity")

    def exec_module(self, module: ModuleType) -> None:
        places = [f"{PACKAGE}.{name}" for name in MOVED[module.__name__.partition(".")[2]].split()]
        told = f"{module.__name__} has moved to {' and '.join(places)}"
        warnings.warn(told, DeprecationWarning, stacklevel=2)
        for place in map(import_module, places):
            own = {name: value for name, value in vars(place).items() if name[:2] != "__"}
            vars(module).update(own)
