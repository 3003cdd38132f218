"""The subcommands of `memattn`, one a module with `add_arguments(parser)` and `run(args)`."""

# Name of the module in this package (with `_` for `-`) -> its line in `memattn --help`. Only the
# module of the given command is imported, so that help and usage errors do not import torch.
COMMANDS = {
    "align": "cut the translations of whole documents into lines, one for each reference sentence",
    "answers": "exact match and F1 of answers to questions, as HotpotQA and SQuAD define them",
    "archs": "list the architectures with their sizes, or one with its flags",
    "average": "average the weights of several checkpoints into one",
    "completion": "print a script that completes command lines of memattn in a shell",
    "compress": "store each document as a few vectors with a GMAT with compression",
    "contrast": "accuracy on contrastive sets of right and wrong translations in context",
    "convert": "start another attention from a trained model's weights",
    "convert-transformers": "give a pretrained causal model of transformers a bounded memory",
    "cxmi": "how much a model uses its context: conditional cross-mutual information",
    "decompress": "the encoder's output for the documents of a store, or its predicted tokens",
    "doctor": "check the installation, and say what is missing",
    "export": "write a trained model in transformers' format, with tokenizer and model card",
    "generate": "continue prompts with a causal model of transformers",
    "import-bert": "convert a BERT saved by transformers to a gmat_bert and a dictionary",
    "import-t5": "convert a T5 saved by transformers to a checkpoint and a dictionary",
    "import-transformers": "convert a translator of transformers or an exported model to fairseq",
    "new": "write a commented starting point: a corpus, a recipe or a control",
    "perplexity": "perplexity of a language model with context or memory across blocks",
    "plot": "draw what a text writes into a model's memory and what is read from it",
    "prepare": "prepare corpora for fairseq: official archives, generated corpora or your own text",
    "score": "BLEU by sentence and by document, chrF, COMET, consistency, with bootstrap tests",
    "spans": "find answers in contexts with a model of --task span_answering, and score them",
    "view": "write a page that shows what a model attends to in a document",
    "translate": "translate documents with a folder that `export` has written",
}
# The commands that load trained models, and so take --user-dir for controls outside the package.
WITH_MODELS = """archs compress contrast convert cxmi decompress export import-transformers
    perplexity plot spans view""".split()
# The commands that work without fairseq. Some need it for a model only, and ask for it then.
WITHOUT_FAIRSEQ = """align answers average completion contrast convert-transformers decompress
    doctor export generate new perplexity plot prepare score translate""".split()
