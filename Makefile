# make run     stage the example of config.yaml, over S3 from a server on loopback
# make quick   the tests that start no process, talk to no server and stage no dataset: below a minute of CPU
# make test    what is run before each commit: tests without SLURM beside those on SLURM
# make test-all    every test there is: whole sweeps, each file system's temper, real waits, a later SLURM
#     PENSTOCK_TEST_ALL=1 makes a test that cannot run here a failure
# make test-unit, make test-slurm    the halves of `make test`; ARGS=tests/core takes a part
# make test-thorough   whole sweeps of which `make test` runs a sample
# make test-filesystems   the test bed with the tempers of parallel file systems (as root)
# make test-beegfs BEEGFS=FOLDER   scenarios on a BeeGFS that runs, 7.4 and 8.3, out of a folder of built programs (as
#     root; no part of test-all); CHECKOUT=FOLDER runs another checkout's penstock, ARGS="--only staging" a part
# make test-patience   tests that wait for the lock's real heartbeat (minutes; as root)
# make test-slurm-suite    the tests on SLURM, on that of a later Debian (SUITE=trixie): as root, on Debian
# make pyslurm   pyslurm for this machine's SLURM, where it fits, for the tests: below .suites
# make lint    formatting, lint, types, import layers, workflow
# make docs    write generated pages, the schema and the manual page anew, and the documentation as a site: dist/site
# make wheel   dist/penstock-*.whl, the same bytes from the same files
# make wheels  dist/wheels: penstock and each locked package, to be installed without a network (docs/install.md)
# make bench   side by side with other tools, on this machine (benchmarks/)
# make cluster-up, make cluster-down    the tests' SLURM cluster, to be used by hand
# make lock    resolve envs/*.in anew
# make clean   remove what the above made

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
# pytest rewrites the asserts of the tests, 10 s of CPU for each worker where that may not be kept.
unexport PYTHONDONTWRITEBYTECODE

# The system's own first: jobs of other users can run it.
PYTHON ?= $(firstword $(wildcard /usr/bin/python3) python3)
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q
# Where the wheels go.
DIST ?= dist
# Tests wait for clocks, kills, servers and disks, and two workers leave two cores idle for a third of the time.
WORKERS ?= 4
# Each run has its own base of temporary folders: pytest, when it starts, closes that of a user's other runs to
# other accounts.
PYTEST = base=$$(mktemp -d /tmp/pen-XXXX); chmod 755 $$base; trap 'chmod -R u+rwX $$base; rm -rf $$base' EXIT; \
	PATH="$(CURDIR)/$(BIN):$$PATH" PYTEST_DEBUG_TEMPROOT=$$base tests/support/reachable.sh $(BIN)/python -m pytest

.PHONY: run quick test test-all test-unit test-thorough test-filesystems test-beegfs test-patience test-slurm test-slurm-suite pyslurm lint docs wheel wheels bench cluster-up cluster-down lock clean venv venv-dev system

run: venv
	@$(BIN)/python -m tests.demo.example

venv: $(VENV)/.run
venv-dev: $(VENV)/.dev

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "penstock needs Python 3.11 or later: make PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "a virtual environment cannot be made: apt-get install python3-venv" >&2; exit 1; }

$(VENV)/.run: envs/requirements.lock pyproject.toml | $(VENV)/bin/python
	@echo "Installing the locked packages into $(VENV) ..."
	@awk '/^[a-z]/ {wanted = /^setuptools==/} wanted' envs/requirements.lock > $(VENV)/setuptools.lock
	@$(PIP) install --require-hashes -r $(VENV)/setuptools.lock
	@$(PIP) install --require-hashes --use-pep517 --no-build-isolation -r envs/requirements.lock
	@$(PIP) install --no-deps --no-build-isolation -e .
	@$(BIN)/python -m compileall -q scripts/penstock
	@touch $@

# Then pytest compiles the tests once (otherwise each of its workers would do it), and the servers that they talk
# to are built.
$(VENV)/.dev: envs/requirements-dev.lock $(VENV)/.run
	@$(PIP) install --require-hashes --use-pep517 --no-build-isolation -r envs/requirements-dev.lock
	@$(BIN)/python -m pytest --collect-only -q >$(VENV)/collected || { tail -n 20 $(VENV)/collected; exit 1; }
	@$(BIN)/python -m tests.support.prepared
	@touch $@

# Programs that the tests need beside Python: installed where that is allowed, else named.
system:
	@bash envs/system-packages.sh

quick: venv-dev
	@$(PYTEST) -q -p tests.support.pure -m "not (slurm or thorough or every_set or real_patience)" $(ARGS)

# Both halves at once, since a cluster is waited for most of the time. Both run to their end; the exit status
# is that of the half that failed.
test: system venv-dev
	@log=$$(mktemp); trap 'rm -f "$$log"' EXIT; \
	$(MAKE) test-slurm ARGS= >"$$log" 2>&1 & slurm=$$!; trap 'kill $$slurm' INT TERM; \
	status=0; $(MAKE) test-unit ARGS= || status=$$?; \
	echo "Waiting for the tests on SLURM ..."; wait $$slurm || status=$$?; cat "$$log"; exit $$status

test-all: test
	@$(MAKE) test-thorough test-patience
	@$(MAKE) test-filesystems ARGS="-m every_set"
	@$(MAKE) test-slurm-suite

# Files stay together, since some share a server for all their tests.
test-unit: venv-dev
	@$(PYTEST) -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "not (slurm or thorough or every_set or real_patience)" $(ARGS)

test-thorough: venv-dev
	@$(PYTEST) -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "thorough and not (slurm or every_set or real_patience)" $(ARGS)

test-filesystems: venv-dev
	@$(PYTEST) -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS) tests/filesystems

# The folder's layout: tests/beegfs_bed/README.md.
test-beegfs: system venv-dev
	@$(BIN)/python -m tests.beegfs_bed $(BEEGFS) $(if $(CHECKOUT),--checkout $(CHECKOUT)) $(ARGS)

# Takes minutes, since the lock's heartbeat is the real one. As root.
test-patience: venv-dev
	@$(PYTEST) -m real_patience $(ARGS)

# Each worker has clusters of its own, and waits for them most of the time.
SLURM_WORKERS ?= 3
SLURM_MARKS ?= slurm and not thorough
SLURM_TESTS ?= $(shell grep -rl --include='test_*.py' 'pytest.mark.slurm' tests)
test-slurm: venv-dev
	@$(PYTEST) -n $(SLURM_WORKERS) --dist loadgroup --no-loadscope-reorder -m "$(SLURM_MARKS)" -o cache_dir=$(VENV)/pytest-slurm $(ARGS) $(SLURM_TESTS)

# The same on the SLURM of another Debian, in a tree of its own: 24.11 in trixie; 26.05 in forky, for which
# pyslurm is built. What depends on the release: SLURM_MARKS=later_release.
SUITE ?= trixie
test-slurm-suite:
	@tests/cluster/suite.sh $(SUITE) make VENV=.suites/venv-$(SUITE) SLURM_WORKERS=$(SLURM_WORKERS) SLURM_MARKS="$(SLURM_MARKS)" SLURM_TESTS="$(SLURM_TESTS)" ARGS="$(ARGS)" system pyslurm test-slurm

pyslurm:
	@tests/cluster/pyslurm.sh .suites/pyslurm-$$(. /etc/os-release && echo "$$VERSION_CODENAME")

lint: venv-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python docs/rooms.py
	$(BIN)/snakefmt --check Snakefile workflow
	$(BIN)/snakemake --lint
	$(BIN)/snakemake --lint --snakefile workflow/Snakefile

docs: venv-dev
	@$(BIN)/python docs/configuration.py
	@$(BIN)/python docs/schema.py
	@$(BIN)/python docs/man_page.py
	@$(BIN)/python docs/file_systems.py
	@$(BIN)/python docs/drawings.py
	@$(BIN)/python docs/website.py $(DIST)/site

# Everybody may read what they hold, and their files' dates are the first that a zip file can state.
PACK = umask 022; export SOURCE_DATE_EPOCH=315532800; $(PIP) wheel --no-build-isolation

# setuptools works in a folder that is removed, not in the checkout.
wheel: venv
	@rm -f $(DIST)/penstock-*.whl
	@build=$$(mktemp -d); trap 'rm -rf "$$build"' EXIT; \
	printf '[build]\nbuild_base = %s\n[egg_info]\negg_base = %s\n' "$$build" "$$build" >"$$build/setup.cfg"; \
	export DIST_EXTRA_CONFIG="$$build/setup.cfg"; $(PACK) --no-deps -w $(DIST) .
	@ls $(DIST)/penstock-*.whl

# For machines with this interpreter's version and this kind of processor. requirements.txt comes last, so a folder
# that has it is whole.
wheels: wheel
	@rm -rf $(DIST)/wheels
	@$(PACK) --require-hashes --use-pep517 -w $(DIST)/wheels -r envs/requirements.lock
	@cp $(DIST)/penstock-*.whl $(DIST)/wheels
	@cd $(DIST)/wheels && sha256sum *.whl | sed -E 's/^([0-9a-f]+) +([^-]+)-([^-]+)-.*/\2==\3 --hash=sha256:\1/' >requirements.txt
	@echo "$(DIST)/wheels: $$(wc -l <$(DIST)/wheels/requirements.txt) wheels, $$(du -sh $(DIST)/wheels | cut -f 1)"

bench: venv-dev
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python benchmarks/run.py $(ARGS)

cluster-up: system venv-dev
	@$(BIN)/python -m tests.cluster up

cluster-down:
	@$(BIN)/python -m tests.cluster down

lock:
	cd envs && for name in requirements requirements-dev mlcroissant snakedeploy; do uv pip compile --universal --generate-hashes --no-header --python-version 3.11 --quiet $(UPGRADE) $$name.in -o $$name.lock; done

# Releases are read-only on purpose; their folders must be writable to be removed.
clean:
	@if [ -d demo ]; then chmod -R u+rwX demo; fi
	@if [ -d .test/target ]; then chmod -R u+rwX .test/target; fi
	@rm -rf .suites demo results .test/results .test/target .test/.snakemake .snakemake build dist scripts/penstock.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis $(VENV)
