"""Generated stories about people, places and objects, with questions that need up to three facts.

words.tsv, templates.tsv   the words, and the templates of sentences and questions
vocabulary.py       both tables
simulation.py       where people and objects are after some of the sentences
fact_questions.py   questions about a story, with the sentences that prove the answer
story_examples.py   a story, a question and its answer, drawn from a seed
"""
