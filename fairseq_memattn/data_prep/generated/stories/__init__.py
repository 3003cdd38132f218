"""Generated stories about people, places and objects, with questions that need up to three facts.

words.tsv, templates.tsv   the words, and the templates of sentences and questions
simulation.py       where people and objects are after some of the sentences
story_examples.py   a story, a question, its answer and what proves it, drawn from a seed
"""
