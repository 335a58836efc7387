# Two commands on a fresh machine: `make demo` and `make test`. Each sets up .venv by itself, with the
# versions of constraints.txt, which were tested.
PYTHON ?= python3
BIN := .venv/bin
PIP := -m pip install --quiet --disable-pip-version-check
LOWEST := tests/protocol tests/device/test_randomize.py tests/device/test_memory.py tests/batch tests/analysis/test_estimates.py \
	tests/analysis/test_tally.py tests/planning/test_plan.py tests/theory/test_proven.py tests/curator tests/reports tests/cli \
	tests/server/test_store.py tests/server/test_limits.py tests/server/test_oblivious.py tests/server/test_schemas.py

.PHONY: demo test test-all coverage mutate lint bench docs outputs constraints requirements images lowest dist sbom clean

demo: .venv/.ready
	$(BIN)/shoal demo
	@echo 'If your shell does not find shoal, run: . $(BIN)/activate'

# Under five minutes; a file stays in one process, which shares its fixtures. `make test-all` adds kills, browsers, demos, databases, Spark, and large crowds.
# Bytecode is kept even where the environment says not to: each process would compile all tests anew.
test: .venv/.ready-dev
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow" $(PYTEST_ARGS)

test-all: .venv/.ready-spark
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 2 $(PYTEST_ARGS)

# Cheap with Python 3.12 or newer, which can watch lines without a trace function.
coverage: .venv/.ready-dev
	COVERAGE_CORE=sysmon $(BIN)/python -m pytest -n 2 -m "not slow" --cov --cov-report=term:skip-covered $(PYTEST_ARGS)

# Mutate one module and list the mutants that its tests miss: MODULE=src/... TESTS=tests/...
mutate: .venv/.ready-dev
	$(BIN)/python $(PIP) cosmic-ray
	printf '[cosmic-ray]\nmodule-path = "%s"\ntimeout = 120.0\nexcluded-modules = []\ntest-command = "%s"\n[cosmic-ray.distributor]\nname = "local"\n' \
	  '$(MODULE)' '$(BIN)/python -m pytest -x -q $(TESTS)' > .venv/mutate.toml
	rm -f .venv/mutate.sqlite
	$(BIN)/cosmic-ray init .venv/mutate.toml .venv/mutate.sqlite
	$(BIN)/cosmic-ray exec .venv/mutate.toml .venv/mutate.sqlite
	$(BIN)/cr-report --surviving-only --show-diff .venv/mutate.sqlite

lint: .venv/.ready-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: .venv/.ready-bench
	$(BIN)/python -m bench

docs: .venv/.ready-dev
	$(BIN)/python -m sphinx -W -q -b html docs docs/_build/html
	@echo "open docs/_build/html/index.html"

# Write what the commands of the documents print into the documents.
outputs: .venv/.ready-dev
	$(BIN)/python -m tests.doc_pages

# The newest versions that fit, into constraints.txt.
constraints:
	rm -rf .venv-constraints
	$(PYTHON) -m venv .venv-constraints
	.venv-constraints/bin/python $(PIP) -e '.[dev,bench,spark]'
	( echo "# The versions that were tested. Written by \`make constraints\`; \`make demo\` and \`make test\` use it."; \
	  .venv-constraints/bin/python -m pip freeze --exclude-editable ) > constraints.txt
	rm -rf .venv-constraints

# Write the hashes of the packages that the container and the release install to deploy/*requirements.txt. Needs Python 3.13, as they do.
requirements:
	$(PYTHON) -m tests.requirements hashes

# Write the current digests of the image tags to deploy/ and the workflows. Needs Docker with buildx.
images:
	for image in python:3.13-slim python:3.13-bookworm caddy:2-alpine; do \
	  digest=$$(docker buildx imagetools inspect $$image --format '{{.Manifest.Digest}}') || exit 1; \
	  sed -i "s|$$image@sha256:[0-9a-f]*|$$image@$$digest|" deploy/Dockerfile deploy/*.yaml .github/workflows/*.yml; \
	done

# The lowest versions that pyproject.toml allows, and tests of what they are used for. Their own dependencies are newer and may
# warn about them, which is no failure here.
lowest: .venv/.ready-dev
	rm -rf .venv-lowest
	$(PYTHON) -m venv .venv-lowest
	$(BIN)/python -m tests.requirements lowest > .venv-lowest/constraints.txt
	.venv-lowest/bin/python $(PIP) -c .venv-lowest/constraints.txt -e '.[curator,plots,server,test]'
	.venv-lowest/bin/python -m pytest -q -n 2 -m "not slow" -W default::DeprecationWarning $(LOWEST)

# Wheels and source distribution, tried alone in a clean environment.
dist: .venv/.ready-dev
	rm -rf dist
	SHOAL_KERNELS=off $(BIN)/python -m hatchling build -d dist -t wheel
	$(BIN)/python -m hatchling build -d dist
	rm -rf .venv-dist && $(PYTHON) -m venv .venv-dist
	.venv-dist/bin/python $(PIP) "$$(ls dist/*.whl | tail -1)[server]"
	$(BIN)/python -m tests.whole_way .venv-dist/bin/python
	rm -rf .venv-dist

# A bill of materials (CycloneDX) of the wheels of `make dist` and the packages that the container installs. Needs Python
# 3.13, which the hashes are for.
sbom:
	rm -rf .venv-sbom
	$(PYTHON) -m venv .venv-sbom
	.venv-sbom/bin/python $(PIP) --only-binary :all: --require-hashes -r deploy/sbom-requirements.txt
	$(PYTHON) -m venv --without-pip .venv-sbom/described
	.venv-sbom/bin/python -m pip --python .venv-sbom/described install --quiet --disable-pip-version-check \
	  --only-binary :all: --require-hashes -r deploy/requirements.txt
	.venv-sbom/bin/python -m pip --python .venv-sbom/described install --quiet --disable-pip-version-check \
	  --no-deps --no-index --find-links dist shoal
	.venv-sbom/bin/cyclonedx-py environment --pyproject pyproject.toml --mc-type library --output-reproducible \
	  -o dist/sbom.cdx.json .venv-sbom/described
	rm -rf .venv-sbom

clean:
	rm -rf .venv .venv-constraints .venv-dist .venv-lowest .venv-sbom docs/_build .mypy_cache .pytest_cache .ruff_cache .hypothesis dist

.venv/.ready: pyproject.toml hatch_build.py src/shoal/support/kernels.c src/shoal/support/vdaf.c constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Shoal needs Python 3.11 or newer; set PYTHON=...")'
	@echo "Setting up .venv: Shoal and the libraries of the extras curator, plots and server."
	@echo "This downloads about 180 MB, takes one to three minutes, and happens once."
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@date +%s > .venv/.started
	$(BIN)/python $(PIP) -c constraints.txt -e '.[curator,plots,server]'
	@echo "Installed $$($(BIN)/python -m pip list --disable-pip-version-check | tail -n +3 | wc -l) packages in $$(( $$(date +%s) - $$(cat .venv/.started) )) s; .venv takes $$(du -sh .venv | cut -f1)."
	touch $@

.venv/.ready-dev: .venv/.ready
	$(BIN)/python $(PIP) -c constraints.txt -e '.[dev]'
	touch $@

.venv/.ready-spark: .venv/.ready-dev
	$(BIN)/python $(PIP) -c constraints.txt -e '.[spark]'
	touch $@

.venv/.ready-bench: .venv/.ready-spark
	$(BIN)/python $(PIP) -c constraints.txt -e '.[bench]'
	touch $@
