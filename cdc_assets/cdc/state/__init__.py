"""changes → each table as it stood at the end of a day.

By question, each importing those above it alone:

- which epochs a source has: `takeovers`, `epochs`, `judge`
- what is known of a source's days, from metadata: `source_context`, `day_inputs`, `table_day`,
  `read_estimate`; the frame of a table's events: `table_events`
- which types the day's columns have: `configured_types`, `labels`, `day_types` (pure),
  `record_order`, `inference` (the Spark jobs of planning), `evolution` (all DDL), `contracts`
- what rows hold, as SQL and frames (no job): `unsent_values`, `row_sql`, `keyed_day`,
  `split_updates`, `placement`, `row_changes`, `unkeyed`
- what takes several rounds, a job each: `inherited_values`, `copies`; `entry_queue`,
  `fold_entries`, `fold_unsent`, `folding`
- what is written, counted and checked: `writes`, `unkeyed_writes`, `value_figures`, `met_rows`,
  `audit`, `earlier_values`, `document_ids`
- the making of a day: `apply` (rows → branch), `stage` (the day, audited and published)
"""
