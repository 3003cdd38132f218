"""Generated passages about commanders, troops and places, with questions about their numbers.

words.tsv, templates.tsv   the words, and the templates of clauses and questions
world.py           both tables; what happens in a passage, and who has how many of what afterwards
passage_writer.py  the sentences of a passage
examples.py        a passage, one of its questions and the answer, drawn from a seed
"""
