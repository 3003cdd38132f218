"""A generated English-Russian document corpus whose translations depend on earlier sentences.

words/, templates/   the words and the sentence templates, as tables
grammar.py           Russian inflection; templates filled with words
lexicon.py           the words with all their forms
stories.py           what one document keeps: its scene, people and choices of words
phenomena.py         a cue, and a sentence whose translation needs it, of each phenomenon
discourse_corpus.py  the splits and contrastive sets of one corpus
"""
