"""The history of a table: each row's versions, from which event to which (a table beside it).

A day of a history is built on the one before it and on the same day of its table, which has given
the columns their types. The events of the keys that the day touches are read again from the first
day whose order they may change; the versions that began or ended since are replaced.
"""
