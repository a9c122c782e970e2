"""Tables that are made from the days of a table: its history, its feed.

A day of one is made from the table's day and the derived table's day before, on a branch of its
own, audited, and published as a tag. The packages :mod:`cdc_assets.cdc.history` and
:mod:`cdc_assets.cdc.feed` say what is in them.
"""
