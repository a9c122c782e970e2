# `make` alone lists what there is.
.DEFAULT_GOAL := help
.PHONY: help setup demo test test-long test-cases e2e e2e-sinks stack ui ui-test screenshots check format bench bench-large bench-kafka bench-tables bench-layout bench-verify bench-formats bench-landings bench-peers sample lock clean distclean

PORT ?= 3000
BIN := .venv/bin

help: ## list the targets
	@awk 'BEGIN { FS = ":.*## " } /^[a-z0-9-]+:.*## / { printf "  %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## make .venv from requirements.lock, see that there is Java (PYTHON=3.12 for another Python)
	@sh scripts/setup.sh

demo: setup ## the sample days end to end: tables, lag, what was quarantined
	$(BIN)/cdc-assets demo $(ARGS)

test: setup ## the tests, two files at a time (ARGS="-m 'not slow'" for the quick ones, ARGS="-k lag" to choose)
	$(BIN)/pytest -q -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

test-long: setup ## what is drawn, killed or waits for processes: worlds, faults, daemon (CDC_SEED=7 draws others)
	$(BIN)/pytest -q -m long -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

test-cases: setup ## of `make test` only what reads real events, in ../shared/cases (or CDC_CASES=…)
	$(BIN)/pytest -q -m "cases and not long" -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

e2e: setup ## the tests against a real PostgreSQL, Kafka and Debezium (ARGS="-k live" to choose)
	@sh scripts/e2e.sh
	$(BIN)/pytest -q -m "e2e and not long and not sinks" -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

e2e-sinks: setup ## landings of others: tables that real streams write, a real server of S3, which Go builds
	@sh scripts/e2e.sh s3
	$(BIN)/pytest -q -m sinks -n 2 --dist loadfile $(ARGS)

stack: setup ## PostgreSQL, Kafka and Debezium with a small shop to try things on, until Ctrl-C
	@sh scripts/e2e.sh
	@exec $(BIN)/python -m cdc_assets_tests.e2e.try_it $(ARGS)

ui: setup ## Dagster with its daemon on 127.0.0.1:3000 (PORT=… for another); it has no login
	DAGSTER_HOME="$(CURDIR)" PYTHONWARNINGS='ignore:Function `dev_command` is superseded' \
		exec $(BIN)/dagster dev -w workspace.yaml -h 127.0.0.1 -p $(PORT)

ui-test: setup ## Dagster's pages in a real Chromium: materialize, checks, a backfill; pictures in .ui
	@sh scripts/ui.sh
	$(BIN)/pytest -q -m ui $(ARGS)

screenshots: ui-test ## take the pictures of README and docs again
	cp $(addprefix .ui/,$(addsuffix .png,graph day checks)) docs/images/

check: setup ## formatting, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: setup ## format the code and fix what lint can fix
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

bench: setup ## measure; the landings of others, too, unless ARGS=… ask the first benchmark for more
	$(BIN)/python -m cdc_assets_tests.bench $(ARGS)
	$(if $(ARGS),,$(BIN)/python -m cdc_assets_tests.bench_landings)

bench-large: setup ## measure 100,000 changes into a table of 10 million rows (some 15 minutes)
	$(BIN)/python -m cdc_assets_tests.bench --large-table $(ARGS)

bench-kafka: setup ## measure the landing of a million events from a Kafka broker
	@sh scripts/e2e.sh
	$(BIN)/python -m cdc_assets_tests.bench_kafka $(ARGS)

bench-tables: setup ## measure 200 small tables of three sources, side by side and one at a time
	$(BIN)/python -m cdc_assets_tests.bench_tables $(ARGS)

bench-layout: setup ## what a merge and a point read take of a table with partitions, and of one without
	$(BIN)/python -m cdc_assets_tests.bench_layout $(ARGS)

bench-verify: setup ## a table of a million rows against its database (ARGS="--rows 10000000" for more)
	@sh scripts/e2e.sh
	$(BIN)/python -m cdc_assets_tests.bench_verify $(ARGS)

bench-formats: setup ## measure the changes of JSON with schemas, Avro and Canal, side by side
	$(BIN)/python -m cdc_assets_tests.bench_formats $(ARGS)

bench-peers: setup ## histories beside those of Spark's AUTO CDC, which runs in an environment of its own (.peers)
	@sh scripts/peers.sh
	$(BIN)/python -m cdc_assets_tests.bench_peers $(ARGS)

bench-landings: setup ## measure the landing of files, of what Kafka Connect's sinks leave, of an Iceberg table
	$(BIN)/python -m cdc_assets_tests.bench_landings $(ARGS)

sample: setup ## write the sample events in data/landing again
	$(BIN)/python data/make_landing.py

lock: ## pin the dependencies again in requirements.lock (ARGS=--upgrade for newer ones)
	uv pip compile pyproject.toml --extra dev --universal --python-version 3.10 --generate-hashes \
		--no-header --no-emit-index-url --no-emit-find-links --quiet \
		--output-file requirements.lock $(ARGS)

clean: ## remove what runs have made: the lake, Dagster's records, caches
	rm -rf data/warehouse .stack .ui .dagster .logs_queue logs .tmp_dagster_home_*
	rm -rf spark-warehouse metastore_db derby.log
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find cdc_assets cdc_assets_tests -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## remove .venv too
	rm -rf .venv .peers .uv-venv cdc_assets_tests/e2e/.jars cdc_assets_tests/e2e/.m2 \
		cdc_assets_tests/e2e/.registry cdc_assets_tests/e2e/.converter cdc_assets_tests/e2e/.versitygw
