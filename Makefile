# Every command of the project; `make` alone lists them. Each does its own set-up: a machine needs make, git, and a
# Python with venv.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
unexport PYTHONDONTWRITEBYTECODE # tests start Python by the thousand: each would compile every module anew

PYTHON ?= python3
SEEDS ?= 200
MINUTES ?= 5
SEED ?= 1
PAIRS ?= 500
WORKERS ?= 3
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
PYTEST := $(PY) -m pytest -n $(WORKERS) --dist worksteal # more than the cores: they wait for other processes
TYPED := $(wildcard laketx metaservice worker tests benchmarks examples tools)
JAR_SOURCES := tools/spark_jar.py worker/spark_catalog/pom.xml $(wildcard protos/laketx/v1/*.proto) \
	$(shell find worker/spark_catalog/src -type f)
step = @printf '\033[1m%s\033[0m\n' 'check: $(1)'

.PHONY: help
help: ## list the commands
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: $(VENV)/.ready $(VENV)/.spark-jar ## make .venv, install into it, and say what works here
	$(if $(filter setup,$(MAKECMDGOALS)),@$(PY) -m tools.what_works)

$(VENV)/.ready: pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "LakeTX needs Python 3.11 or later: '$(PYTHON)' is not there. Name one: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "LakeTX needs Python 3.11 or later; $(PYTHON) is $$($(PYTHON) --version). Name another: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) can't make virtual environments; on Debian: apt-get install python3-venv" >&2; exit 1; }
	@echo "installing into $(VENV) …"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) setuptools
	@$(PIP) --no-build-isolation --editable '.[test,pyspark]'
	@$(PY) -m tools.toolchain
	@touch $@

$(VENV)/.spark-jar: $(VENV)/.ready $(JAR_SOURCES)
	@$(PY) -m tools.spark_jar
	@touch $@

$(VENV)/spark-classes.jsa: $(VENV)/.ready | $(VENV)/.spark-jar
	@$(PY) -m tests.spark.archive >/dev/null 2>&1 || { rm -f $@; echo "Spark's classes can't be put down; tests start it more slowly" >&2; }

.PHONY: spark-jar
spark-jar: $(VENV)/.ready ## build the jar of the Spark catalog; it says so if it can't
	@$(PY) -m tools.spark_jar --require

.PHONY: wheels
wheels: $(VENV)/.ready ## build two wheels in dist: LakeTX, and the jar of the Spark catalog
	@$(PY) -m tools.wheels

.PHONY: dist
dist: $(VENV)/.ready ## build what a release publishes in dist, and try it: wheels, source, bills of materials, sums
	@$(PY) -m tools.dist

.PHONY: lock
lock: $(VENV)/.ready ## resolve the images' packages anew, with hashes, by the versions of constraints.txt
	@$(PY) -m tools.lock

.PHONY: audit
audit: $(VENV)/.ready ## ask for known vulnerabilities of what the images install; ARGS=--require makes missing data a failure
	@$(PY) -m tools.audit $(ARGS)

.PHONY: deploy-check
deploy-check: $(VENV)/.ready ## check deploy/: image, compose file, chart, units, rules; ARGS=--require makes what can't be checked a failure
	@$(PY) -m tools.deploy_check $(ARGS)

$(VENV)/.ready-bench: $(VENV)/.ready
	@$(PIP) --no-build-isolation --editable '.[test,pyspark,bench]'
	@touch $@

.PHONY: protos
protos: setup ## regenerate the Python beside the .proto files
	@$(PY) -m tools.gen_protos

.PHONY: docs
docs: setup ## regenerate the documents that are made from code: references, tables, pictures
	@$(PY) -m tools.gen_api_docs
	@$(PY) -m tools.gen_cli_docs
	@$(PY) -m tools.gen_python_docs
	@$(PY) -m tools.gen_rule_docs
	@$(PY) -m tools.gen_iceberg_matrix
	@$(PY) -m tools.gen_timeline
	@$(PY) -m tools.gen_reference
	@$(PY) -m tools.gen_errors
	@$(PY) -m tools.gen_dashboards
	@$(PY) -m tools.gen_console
	@$(PY) -m tools.gen_licences
	@$(PY) -m tools.gen_session
	@$(PY) -m tools.gen_spark_internals

.PHONY: format
format: setup ## format the code and apply the linter's safe fixes
	@$(PY) -m ruff check --fix --quiet .
	@$(PY) -m ruff format .

.PHONY: check-code
check-code: $(VENV)/.ready ## format, lint, types and layers alone
	$(call step,format)
	@$(PY) -m ruff format --check --quiet .  || { echo "\`make format\` mends it" >&2; exit 1; }
	$(call step,lint)
	@$(PY) -m ruff check --quiet .
	$(call step,types)
	@$(PY) -m mypy $(TYPED)
	$(call step,layers)
	@$(VENV)/bin/lint-imports --no-cache --no-logo

.PHONY: check
check: check-code setup ## format, lint, types, layers, generated code and documents: all as they should be
	$(call step,generated code is fresh)
	@$(PY) -m tools.gen_protos --check
	$(call step,documents are true)
	@$(PY) -m tools.gen_api_docs --check
	@$(PY) -m tools.gen_python_docs --check
	@$(PY) -m tools.gen_rule_docs --check
	@$(PY) -m tools.gen_iceberg_matrix --check
	@$(PY) -m tools.gen_timeline --check
	@$(PY) -m tools.gen_cli_docs --check
	@$(PY) -m tools.gen_reference --check
	@$(PY) -m tools.gen_errors --check
	@$(PY) -m tools.gen_dashboards --check
	@$(PY) -m tools.gen_licences --check
	@$(PY) -m tools.gen_spark_internals --check

.PHONY: test-fast
test-fast: check-code ## format, lint, types, layers and unit tests: about a minute, without Spark
	@$(PYTEST) tests/unit -m 'not long' $(ARGS)

.PHONY: test
test: check $(VENV)/spark-classes.jsa ## check, then every test but the long ones; ARGS="…" goes to pytest
	@TMPDIR="$${TMPDIR:-$$($(PY) -m tests.scratch)}" $(PYTEST) -m 'not long' $(ARGS)

.PHONY: test-long
test-long: setup $(VENV)/spark-classes.jsa ## the tests that take minutes
	@$(PYTEST) -m long $(ARGS)

.PHONY: soak
soak: setup ## everybody writes, reads, compacts, purges and is killed at once; MINUTES=5 SEED=1
	@$(PY) -m tests.spark.soak --minutes $(MINUTES) --seed $(SEED)

.PHONY: s3
s3: setup ## everything from Spark on an S3 server; the first time it downloads 0.7 GB
	@$(PY) -m tests.spark.s3

.PHONY: sim
sim: setup ## simulate clients, crashes, clock jumps, and servers that share a bucket; SEEDS=200 histories of each
	@$(PY) -m tests.simulation --seeds $(SEEDS) --branches $(SEEDS) --take-overs $(SEEDS)

.PHONY: histories
histories: setup ## record what concurrent clients of a killed service are told, and check it; MINUTES=5 SEED=1
	@$(PY) -m tests.histories --minutes $(MINUTES) --seed $(SEED)

.PHONY: races
races: setup ## statements meet at every boundary, at every door: outcomes and rows as the docs say; SEED=1 PAIRS=500
	@$(PY) -m tests.races --seed $(SEED) --pairs $(PAIRS)

.PHONY: sql
sql: setup ## random statements of Spark SQL beside DuckDB; SEED=1 plays that seed, SEEDS=20 that many from there
	@$(PY) -m tests.spark.sql_random --seed $(SEED) --seeds $(SEEDS)

.PHONY: iceberg-matrix
iceberg-matrix: setup ## every engine reads every kind of table as Iceberg; its results are the table in docs/iceberg.md
	@$(PY) -m tests.iceberg.matrix
	@$(PY) -m tools.gen_iceberg_matrix

.PHONY: plant
plant: setup ## plant bugs one by one and see the tests catch them
	@$(PY) -m tests.plant

.PHONY: conformance
conformance: setup ## run case files against a live service; CASES="FILE…"
	@$(PY) -m tests.conformance $(CASES)

.PHONY: demo
demo: setup ## a story on Spark in a temporary folder; ARGS=metadata tells the one without Spark
	@$(PY) -m examples.demo $(ARGS)

.PHONY: serve
serve: setup ## run the service in the foreground; ARGS="…" goes to it
	@$(PY) -m metaservice $(ARGS)

# make passes the variables of its own command line on as environment variables: JSON and SCALE arrive there.
.PHONY: bench-commit
bench-commit: $(VENV)/.ready-bench ## measure commits; JSON=FILE to write results, SCALE=N for a smaller or larger run
	@$(PY) -m benchmarks.commit $(ARGS)

.PHONY: bench-plan
bench-plan: $(VENV)/.ready-bench ## measure plans; JSON and SCALE as for bench-commit
	@$(PY) -m benchmarks.plan $(ARGS)

.PHONY: bench-tls
bench-tls: $(VENV)/.ready-bench ## measure what TLS, tokens and rights cost commits; JSON and SCALE as for bench-commit
	@$(PY) -m benchmarks.tls $(ARGS)

.PHONY: bench-maintain
bench-maintain: $(VENV)/.ready-bench ## measure the planning of table services; JSON and SCALE as for bench-commit
	@$(PY) -m benchmarks.maintain $(ARGS)

.PHONY: bench-purge
bench-purge: $(VENV)/.ready-bench ## measure the purge of dead files; JSON and SCALE as for bench-commit
	@$(PY) -m benchmarks.purge $(ARGS)

.PHONY: bench-row-level
bench-row-level: $(VENV)/.ready-bench ## measure single-row updates beside Delta's rules; JSON and SCALE as for bench-commit
	@$(PY) -m benchmarks.row_level $(ARGS)

.PHONY: bench-write
bench-write: $(VENV)/.ready-bench ## measure writes from Spark; ARGS="inserts no-peers" chooses, JSON and SCALE as for bench-commit
	@$(PY) -m benchmarks.write $(ARGS)

.PHONY: bench-sql
bench-sql: $(VENV)/.ready-bench $(VENV)/.spark-jar ## measure Spark SQL; ARGS="clean no-peers" chooses, JSON and SCALE as for bench-commit
	@$(PY) -m benchmarks.sql $(ARGS)

.PHONY: bench-arrow
bench-arrow: $(VENV)/.ready-bench ## measure reads and writes without Spark; ARGS="clean no-peers" chooses, JSON and SCALE as for bench-commit
	@$(PY) -m benchmarks.arrow $(ARGS)

.PHONY: bench-scan
bench-scan: $(VENV)/.ready-bench $(VENV)/.spark-jar ## measure reads with Spark; ROWS="clean ten" for some of them, JSON and SCALE as above
	@$(PY) -m benchmarks.scan $(ARGS)

.PHONY: bench-compact
bench-compact: $(VENV)/.ready-bench ## measure compactions; ROWS="major minor inlined large soak peers peers-keyed" chooses, JSON and SCALE as above
	@$(PY) -m benchmarks.compact $(ROWS) $(ARGS)

.PHONY: bench-rights
bench-rights: $(VENV)/.ready-bench ## measure the check of a request's rights among 10,000 grants; JSON and SCALE as above
	@$(PY) -m benchmarks.rights $(ARGS)

.PHONY: bench-iceberg
bench-iceberg: $(VENV)/.ready-bench ## measure the Iceberg catalog; ARGS="load upsert plan visible read append" chooses, JSON and SCALE as above
	@$(PY) -m benchmarks.iceberg $(ARGS)

.PHONY: bench-branch
bench-branch: $(VENV)/.ready-bench ## measure branches, forks, merges; JSON and SCALE as above
	@$(PY) -m benchmarks.branches $(ARGS)

.PHONY: bench-keys
bench-keys: $(VENV)/.ready-bench ## measure keys across partitions beside keys within them; JSON and SCALE as above
	@$(PY) -m benchmarks.keys $(ARGS)

.PHONY: bench-ingest
bench-ingest: $(VENV)/.ready-bench ## measure `laketx ingest kafka` beside Apache Kafka; JSON and SCALE as above
	@$(PY) -m benchmarks.ingest $(ARGS)

.PHONY: bench-views
bench-views: $(VENV)/.ready-bench ## measure refreshes of materialized views; JSON and SCALE as above
	@$(PY) -m benchmarks.views $(ARGS)

.PHONY: bench-view-lag
bench-view-lag: $(VENV)/.ready-bench ## measure for an hour how far a view is behind its source; SCALE=0.1 for six minutes
	@$(PY) -m benchmarks.view_lag $(ARGS)

.PHONY: bench-console
bench-console: $(VENV)/.ready-bench ## measure the console over 100,000 versions and tables; JSON and SCALE as above
	@$(PY) -m benchmarks.console $(ARGS)

.PHONY: bench-field
bench-field: $(VENV)/.ready-bench ## measure LakeTX beside DuckLake, deltalake and pyiceberg, without Spark; ARGS="reads changes" chooses, JSON and SCALE as above
	@$(PY) -m benchmarks.field $(ARGS)

.PHONY: bench-goals
bench-goals: $(VENV)/.ready-bench ## measure the rows that earlier runs missed beside their goals; ARGS="inlined field" chooses, JSON and SCALE as above
	@$(PY) -m benchmarks.goals $(ARGS)

.PHONY: bench-ha
bench-ha: $(VENV)/.ready-bench ## measure take-overs and commits of a store in a bucket; ARGS="take-over throughput log-elsewhere" chooses, JSON and SCALE as above
	@$(PY) -m benchmarks.high_availability $(ARGS)

.PHONY: bench-s3
bench-s3: $(VENV)/.ready-bench ## measure small reads and writes on S3 that is 30 ms away, beside deltalake; JSON and SCALE as above
	@$(PY) -m benchmarks.s3 $(ARGS)

.PHONY: bench-s3-spark
bench-s3-spark: $(VENV)/.ready-bench ## measure small reads and writes by Spark on S3 that is 30 ms away, beside Delta on Spark; JSON and SCALE as above
	@$(PY) -m benchmarks.s3_spark $(ARGS)

.PHONY: bench-growth
bench-growth: $(VENV)/.ready-bench ## measure how costs grow with files, partitions, versions, columns, tables, tags …; JSON and SCALE as above
	@$(PY) -m benchmarks.growth $(ARGS)

.PHONY: bench-sizing
bench-sizing: $(VENV)/.ready-bench ## measure what a service needs: memory, disk, start; ARGS="files lake bucket" chooses, JSON and SCALE as above
	@$(PY) -m benchmarks.sizing $(ARGS)

.PHONY: bench-turns
bench-turns: $(VENV)/.ready-bench $(VENV)/.spark-jar ## measure this tree beside the commit BASE, in turns; ROUNDS=2 PAIRS=20, ARGS="commit arrow:clean" chooses, JSON as above
	@$(PY) -m benchmarks.trees $(ARGS)

.PHONY: clean
clean: ## remove what the commands made, the environment included
	@rm -rf $(VENV) .bench build dist *.egg-info .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	@find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
