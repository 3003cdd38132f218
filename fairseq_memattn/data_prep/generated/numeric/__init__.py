"""Generated passages about commanders, troops and places, with questions about their numbers.

words.tsv, templates.tsv   the words, and the templates of clauses and questions
passage_writer.py  both tables; what happens in a passage, and its sentences
examples.py        a passage, one of its questions and the answer, drawn from a seed
"""
