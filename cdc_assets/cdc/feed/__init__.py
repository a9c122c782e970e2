"""The feed of a table: each change of its rows, day by day, in the order of each key.

`changes` makes a day's changes from its events and the rows that stood, `kind` writes and audits
them.
"""
