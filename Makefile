# Needs Python 3.11 to 3.13 and Java 17 or 21. `make` lists the targets.
# PYTHON and JAVA_HOME replace those on the path; VENV replaces .venv; PARALLEL says how many
# processes pytest uses. Three suit two cores and 8 GB: tests wait for servers, JVMs and processes
# for more than a quarter of the time.

VENV := .venv
BIN := $(VENV)/bin
FRESH := $(VENV)/.fresh
RUNTIME := $(VENV)/.runtime
INSTALLED := $(VENV)/.installed
COMPILED := $(VENV)/.compiled
BYTECODE := $(VENV)/.bytecode
TOOLS := build/.tools
REWRITTEN := build/.rewritten
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
UV := conf/uv.sh $(VENV) pip install --python $(BIN)/python
# Files of a lock have hashes, so those that uv has kept need no index. Online, uv downloads and builds
# PySpark (450 MB) again if a mirror does not say for how long its files may be kept.
locked = @echo "installing $(1)"; \
  $(UV) --require-hashes --offline -r $(1) 2>/dev/null || $(UV) --require-hashes -r $(1)
COMPILE := conf/uv.sh $(VENV) pip compile --quiet --python $(BIN)/python --generate-hashes \
  --no-strip-extras --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock"
PYTEST := $(BIN)/python -m pytest
PARALLEL := -n 3
# The profile `quick` tries other examples each day, and the same ones all day.
SEGLAKE_SEED ?= $(shell date -u +%Y%m%d)
export SEGLAKE_SEED
QUICK := --hypothesis-profile=quick --hypothesis-seed=$(SEGLAKE_SEED)
NO_JAVA := not clients and not spark and not kafka and not s3 and not browser and not airflow and not slow and not rest
DURATIONS := --durations=20
# Bytecode is stored, whatever the environment says: the tests start hundreds of processes.
export PYTHONDONTWRITEBYTECODE :=
# Kernels take one core; the other one installs packages, compiles bytecode and builds what Go has.
# Every four seconds a line says how far it is.
SHOWN = begun=$$(date +%s); while sleep 4; do \
    echo "set-up: $$(( $$(date +%s) - begun )) s, $$(ls -d $(VENV)/lib/*/site-packages/*.dist-info 2>/dev/null | wc -l) packages"; \
  done & shown=$$!; trap "kill $$shown 2>/dev/null" EXIT INT TERM;
TOGETHER = $(MAKE) --no-print-directory --silent -j5 $(COMPILED) $(BYTECODE)
CHAOS := --kills 1000 --upkeep 300 --s3 100 --s3-upkeep 300 --spark 20 \
  --document tests/chaos/README.md
FUZZ := --inputs 1000000
MINUTES := 60
PACKED := dist/seglake-environment.tar.gz
MATRIX :=
BENCH := --document docs/benchmarks.md --tables build/benchmarks.md --json build/benchmarks.json

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo tools test test-all test-rest test-whole test-unit test-clients test-airflow test-wheel \
  test-archive test-matrix s3-server size lint style types fmt docs bench chaos fuzz simulate lock wheel archive site \
  picture check-java

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: check-java ## Install everything that is needed into .venv
	@$(SHOWN) $(TOGETHER)

# The demo does not wait for kernels: a background process compiles those that are missing.
demo: check-java ## Make a million events, ingest them with Spark, look some up
	@$(SHOWN) $(MAKE) --no-print-directory --silent -j5 $(INSTALLED)
	$(BIN)/seglake demo

tools: check-java ## Run make setup, and get what tests need beside it: an S3 server, jars of Delta and Kafka, Chromium, kcat
	@$(SHOWN) $(TOGETHER) $(TOOLS) $(REWRITTEN)

# Types are checked beside the tests, and shown after them.
test: tools style ## Run every check and the tests: all parts, in short forms (ten minutes)
	@mkdir -p build; $(MAKE) --no-print-directory types >build/types.txt 2>&1 & types=$$!; \
	trap 'kill $$types 2>/dev/null' INT TERM; \
	$(PYTEST) $(PARALLEL) $(QUICK) -m "not rest and not clients" $(DURATIONS); tests=$$?; \
	wait $$types && echo "types and imports: no fault" || { cat build/types.txt; exit 1; }; exit $$tests

test-all: test ## Run make test, then make test-rest: everything (half an hour)
	@$(MAKE) --no-print-directory test-rest

test-rest: tools ## Run what make test leaves out; of long tests and of all examples, a quarter each day
	$(PYTEST) $(PARALLEL) -m "(rest or hypothesis) and not another_day" $(DURATIONS)

test-whole: tools ## Run what make test leaves out, on any day: long tests, all examples (40 minutes)
	$(PYTEST) $(PARALLEL) -m "rest or hypothesis" $(DURATIONS)

test-unit: $(INSTALLED) $(COMPILED) ## Run the tests that need no Java (three minutes)
	$(PYTEST) $(PARALLEL) $(QUICK) -m "$(NO_JAVA)" $(DURATIONS)

test-clients: setup ## Let every client family read the same lakes through a server; print a table (a quarter of an hour)
	$(PYTEST) tests/clients/test_matrix.py

test-wheel: setup wheel ## Install the wheel as users do, without extras and with [spark], and run tests on it
	rm -rf build/plain build/spark
	conf/deploy/install.sh dist/*.whl build/plain duckdb polars
	SEGLAKE_WHEEL_PYTHON=$(CURDIR)/build/plain/bin/python $(PYTEST) tests/packaging
	wheel=$$(ls dist/*.whl) && conf/deploy/install.sh "$$wheel[spark,report,metrics]" build/spark \
	  chispa duckdb hypothesis packaging polars pytest pytest-timeout setuptools wheel
	build/spark/bin/python -m pytest --hypothesis-profile=quick -m "not kafka and not s3 and not slow" \
	  tests/unit/cli tests/unit/read tests/unit/test_readme.py tests/unit/test_pages.py \
	  tests/spark/test_cli_ingest.py tests/spark/test_ingest_frame.py tests/spark/test_datasource_docs.py

test-archive: setup archive ## Run a job on a cluster whose machines have nothing but the archive
	SEGLAKE_ARCHIVE=$(CURDIR)/$(PACKED) $(PYTEST) tests/packaging/test_archive.py \
	  tests/spark/test_ingest_jobs.py -k "archive or cluster"

test-matrix: $(INSTALLED) ## Run unit tests on each Python, short ones on each Spark and Java found; MATRIX=--help
	$(BIN)/python -m tests.matrix $(MATRIX)

test-airflow: setup ## Run the DAGs in a whole Airflow: retries, kills, clears, backfills (a quarter of an hour)
	$(PYTEST) tests/scheduled -o python_files="test_*.py long_*.py"

s3-server: $(INSTALLED) ## Start a shell beside an S3 server of its own, for trying things
	@$(BIN)/python -m tests.harness.s3_server

size: $(INSTALLED) ## Print lines of code, modules, settings and commands next to their budgets
	@$(BIN)/python -m tests.size

lint: style types ## Check style, spelling, types and the direction of imports

style: $(INSTALLED)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/codespell src tests docs README.md

types: $(INSTALLED)
	$(BIN)/mypy
	$(BIN)/lint-imports

fmt: $(INSTALLED) ## Format the code, mend what can be mended
	$(BIN)/ruff check --fix-only
	$(BIN)/ruff format

docs: $(INSTALLED) ## Write docs/settings.md from the settings' own descriptions, and the clients of docs/serve.md
	$(BIN)/python -m tests.settings_page docs/settings.md
	$(BIN)/python -m tests.clients.families docs/serve.md

picture: docs/picture.svg ## Draw docs/picture.svg from docs/picture.dot; needs Graphviz

docs/picture.svg: docs/picture.dot
	dot -Tsvg $< -o $@

site: $(INSTALLED) ## Build the docs as a site into build/site, with references of Python and commands
	@mkdir -p build
	$(BIN)/typer seglake.cli.app utils docs --name seglake --output build/commands.md
	python3 -m venv .venv-site
	.venv-site/bin/pip install --quiet --disable-pip-version-check -r conf/site/requirements.txt
	NO_MKDOCS_2_WARNING=1 .venv-site/bin/mkdocs build --quiet -f conf/site/mkdocs.yml

chaos: setup ## Kill ingests and maintenance at every step; CHAOS=--help lists the options
	$(BIN)/python -m tests.chaos.kill $(CHAOS)

fuzz: $(INSTALLED) ## Try a million hostile inputs on every reader; FUZZ="--inputs N --seed S" chooses others
	$(PIP) --no-build-isolation -e '.[fuzz]'
	$(BIN)/python -m tests.fuzz $(FUZZ)

simulate: $(INSTALLED) $(COMPILED) ## Play histories of a simulated world for MINUTES=60, then cut the power for a sixth of that
	$(BIN)/python -m tests.simulation --minutes $(MINUTES)
	$(BIN)/python -m tests.simulation.power --minutes $$(( $(MINUTES) / 6 ))

bench: setup ## Measure beside Spark, DuckDB, Polars and Kafka; BENCH=--help lists the options
	$(PIP) install --target build/bench --upgrade --no-deps -r tests/bench/requirements.txt
	@mkdir -p build
	PYTHONPATH=build/bench $(BIN)/python -m tests.bench $(BENCH)

wheel: $(INSTALLED) ## Build the wheel into dist
	rm -rf build/lib build/bdist.* dist/*.whl
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation \
	  --wheel-dir dist .

archive: wheel ## Pack Python, the wheel and what it needs for executors: spark.archives
	rm -rf build/packed
	PYTHON=$$($(BIN)/python -c 'import sys; print(sys._base_executable)') \
	  conf/deploy/install.sh dist/*.whl build/packed pandas
	conf/deploy/pack.sh build/packed $(PACKED)
	@ls -sh $(PACKED)

lock: $(FRESH) ## Resolve pyproject.toml again into the four locks
	$(COMPILE) --extra dev --extra spark --output-file requirements.lock pyproject.toml
	sed -nE 's/^([a-zA-Z0-9._-]+)(\[[^]]*\])?(==[^ ]+).*/\1\3/p' requirements.lock > .constraints
	$(COMPILE) --constraint .constraints --output-file conf/runtime.lock pyproject.toml
	$(COMPILE) --strip-extras --universal --python-version 3.11 --constraint .constraints \
	  --output-file tests/scheduled/requirements.lock pyproject.toml tests/scheduled/requirements.in
	echo uv | $(COMPILE) --universal --python-version 3.11 --output-file conf/uv.lock -
	@rm .constraints

# Runs first, so that a missing Java is one sentence at once, not a stack trace in ten minutes.
check-java:
	@java="$${JAVA_HOME:+$$JAVA_HOME/bin/}java"; \
	case "$$("$$java" --list-modules 2>/dev/null | grep '^jdk.incubator.vector@')" in \
	  *@17*|*@21*) ;; \
	  *) echo "Spark needs Java 17 or 21 with the module jdk.incubator.vector, and '$$java' is not that:" \
	       "install OpenJDK 17 or 21 and set JAVA_HOME to it." >&2; exit 1 ;; \
	esac

# Compiled kernels stay beside the sources, and tools below this folder, so the next time is short.
# Bytecode is of all packages, as pip would do it; a file that is for another Python is left out.
$(BYTECODE): $(INSTALLED)
	@$(BIN)/python -m compileall -qq $(VENV)/lib || true
	@touch $@

# Tests that need what cannot be had say so themselves.
$(TOOLS): $(INSTALLED) tests/harness/tools.py tests/harness/s3_server.py tests/harness/jars.py tests/judges/kafka_jars.py
	@mkdir -p build
	@$(BIN)/python -m tests.harness.tools && touch $@ || true

# Pytest compiles all tests with assertions of its own, else in each of its processes at once.
$(REWRITTEN): $(INSTALLED)
	@mkdir -p build
	@$(PYTEST) --collect-only -q >/dev/null 2>&1 || true
	@touch $@

$(COMPILED): $(RUNTIME) $(shell grep -rlw njit src --include=*.py)
	PYTHONPATH=src $(BIN)/python -m seglake.warm
	@touch $@

# Kernels need only what Seglake itself needs: they compile while uv installs the rest.
$(INSTALLED): $(RUNTIME) requirements.lock
	$(call locked,requirements.lock)
	$(UV) --no-deps --no-build-isolation -e .
	@touch $@

$(RUNTIME): $(FRESH) conf/runtime.lock pyproject.toml
	$(call locked,conf/runtime.lock)
	@touch $@

$(FRESH):
	@echo "making the environment $(VENV)"
	@for python in $(or $(PYTHON),python3 python3.13 python3.12 python3.11); do \
	  "$$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null \
	    && { test -x $(BIN)/python || "$$python" -m venv $(VENV); } && exit; \
	done; \
	echo "Python 3.11, 3.12 or 3.13 is needed, and there is none:" \
	  "install one and name it, as in make PYTHON=python3.12" >&2; exit 1
	@touch $@
