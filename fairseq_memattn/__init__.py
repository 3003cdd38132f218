"""fairseq-memattn: long-context transformers with a bounded memory, as a fairseq plugin.

`import fairseq_memattn`, which `--user-dir fairseq_memattn` does, registers every model with
fairseq. `from fairseq_memattn.attention import ...` needs torch alone and leaves fairseq out,
and so does the `memattn` command; a program that starts so and wants the models too calls
`fairseq_memattn.register()`.
"""

import sys

__version__ = "0.1.0"


def register() -> None:
    """Registers everything with fairseq; a second call does nothing.

    Raises ImportError, saying what to install, where fairseq is missing or cannot work.
    """
    from fairseq_memattn.compat import prepare_fairseq
    from fairseq_memattn.errors import end_commands_in_one_sentence

    prepare_fairseq()
    end_commands_in_one_sentence()
    import fairseq_memattn.criterions.masked_lm_error
    import fairseq_memattn.criterions.sequence_tagging
    import fairseq_memattn.criterions.span_answering
    import fairseq_memattn.models.abc_roberta
    import fairseq_memattn.models.abc_transformer
    import fairseq_memattn.models.abc_transformer_lm
    import fairseq_memattn.models.genbert
    import fairseq_memattn.models.gmat_bert
    import fairseq_memattn.models.gmat_transformer
    import fairseq_memattn.models.t5
    import fairseq_memattn.models.t5mem
    import fairseq_memattn.tasks.document_translation
    import fairseq_memattn.tasks.majority_tagging
    import fairseq_memattn.tasks.question_answering
    import fairseq_memattn.tasks.span_answering
    import fairseq_memattn.tasks.span_corruption  # noqa: F401


WITHOUT_FAIRSEQ = ("attention", "cli", "evaluation", "errors")


def _registration_is_wanted() -> bool:
    """False in the first half of `import fairseq_memattn.attention` and its like.

    Python runs a package before its submodules and does not tell it why; the import system's
    own frame, further up the stack, knows the name that was asked for.
    """
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_code.co_name == "_find_and_load":
            wanted = str(frame.f_locals.get("name"))
            if wanted.startswith(tuple(f"{__name__}.{name}" for name in WITHOUT_FAIRSEQ)):
                return False
    return True


if _registration_is_wanted():
    register()
