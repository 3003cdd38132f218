"""A generated English-Russian document corpus whose translations depend on earlier sentences.

words/, templates/      the words and the sentence templates, as tables
grammar.py              Russian inflection; templates filled with words
lexicon.py              the words with all their forms
templates.py            the sentence templates
scenes.py               openings and neutral sentences, by place
stories.py              what one document keeps: its scene, people and choices of words
phenomena/              one file a phenomenon: a cue, and a sentence whose translation needs it
generated_documents.py  documents made of these episodes with neutral sentences in between
balanced_sets.py        the same episodes as contrastive sets
discourse_corpus.py     the splits and contrastive sets of one corpus
"""
