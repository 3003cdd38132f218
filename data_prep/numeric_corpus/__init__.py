"""Generated passages about commanders, troops and places, with questions about their numbers.

words.py      the words
world.py      what happens, and who has how many of what after it
passages.py   sentence templates, filled with new and with used words
questions.py  questions about a world, with their answers
examples.py   a passage, one of its questions and the answer, drawn from a seed
"""
