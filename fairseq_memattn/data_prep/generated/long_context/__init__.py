"""Tasks whose contexts are as long as asked for, for lm-evaluation-harness.

examples.py   a context, its question and its answers, drawn from a seed
tasks.py, *.yaml   the tasks, as `lm_eval --include_path` reads them
"""
