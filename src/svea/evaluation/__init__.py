"""Evaluation: whole episodes of a trained agent in any mode, films of them, and what moves it.

`play` plays episodes with a policy, `requests` evaluates runs.
"""
