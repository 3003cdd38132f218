"""A progress bar of the translation of documents."""

from tqdm import tqdm


class DocumentProgress:
    """Shows on a terminal (stderr) how many sentences are translated and how many documents ended.

    The bar appears after a second, and disappears when all sentences are translated.
    """

    def __init__(self, sentences: int, documents: int) -> None:
        self.sentences, self.documents = sentences, documents
        self.ended = 0
        self.bar: tqdm | None = None

    def __call__(self, sentences: int, ended: int) -> None:
        """Counts translated sentences, and the documents that ended with them."""
        if self.bar is None:
            self.bar = tqdm(
                total=self.sentences, unit=" sentences", leave=False, disable=None, delay=1
            )
        self.ended += ended
        self.bar.set_postfix_str(f"{self.ended} of {self.documents} documents", refresh=False)
        self.bar.update(sentences)
        if self.bar.n >= self.sentences:
            self.bar.close()
