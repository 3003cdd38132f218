"""The models as plain torch networks: batch first, with every state explicit.

fairseq's models and transformers' models are shells around them. They need torch alone.
"""

__all__: list[str] = []
