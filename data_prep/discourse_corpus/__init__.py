"""A generated English-Russian document corpus whose translations depend on earlier sentences.

grammar.py    Russian inflection, and sentence templates
tables.py     the words, as tables
lexicon.py    the words, with their forms
lines.py      the sentence templates
scenes.py     openings and neutral sentences, by place
documents.py  documents made of episodes: a cue, neutral sentences, a sentence that needs the cue
contrastive.py  the same episodes as balanced sets of right and wrong translations
"""
