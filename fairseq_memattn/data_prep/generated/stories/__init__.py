"""Generated stories about people, places and objects, with questions that need up to three facts.

words.tsv, templates.tsv   the words, and the templates of sentences and questions
story_examples.py   a story, a question, its answer and what proves it, drawn from a seed
"""
