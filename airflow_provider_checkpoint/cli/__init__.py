"""The command ``checkpoints``: the lifecycle from a terminal, with tables for people and JSON for programs.

``catalogue`` says which verbs and arguments there are, as data; ``verbs`` holds what each does, apart from parsing. So
another command line can mount the same verbs.
"""
