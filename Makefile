# The commands for developers. `make help` lists them; longer logic is in tests/tools.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

export PATH := $(CURDIR)/.venv/bin:$(PATH)
export ANSIBLE_CONFIG := $(CURDIR)/ansible.cfg
# molecule/shared is not a scenario.
export MOLECULE_GLOB := molecule/*/molecule.yml
# Images of containers often set it. Each of the hundreds of processes of Ansible would then compile its sources anew.
unexport PYTHONDONTWRITEBYTECODE
# On an emulated machine sudo is slow while another lane uses the processor.
export ANSIBLE_TIMEOUT := 120
# Hosts can be made and removed even if the cluster file has errors.
export MOLECULE_ANSIBLE_ARGS_STRICT_MODE := 1

ready := .venv/.ready
# Evaluated when they are needed, not when make starts: on a fresh clone `make setup` makes them in between.
environments = $(shell ls -d .venv .venv-new 2> /dev/null)
newest = $(lastword $(environments))
typed := .cache/types/ansible_collections/gpucluster/slurm
demo := inventory/demo/demo.cluster.yml
demo-hosts := .lab/default/ssh_config
demo-ssh := ANSIBLE_SSH_COMMON_ARGS='-F $(CURDIR)/$(demo-hosts)'

# The lanes of each tier. Two lanes run in parallel, in this order: the longest first. Scenarios in one word have hosts
# with the same names, so they run one after another, and so do stages with one copy of the checkout. Without KVM,
# scenario driver takes hours.
check-lanes := unit lint sanity doc-lint
test-lanes := unit molecule-containers molecule-default molecule-slurm-26.05 \
  $(filter-out unit,$(check-lanes))
all-lanes := molecule-driver@360 'molecule-default@90 molecule-wide-22.05 molecule-wide-26.05 molecule-commands' 'molecule-machines molecule-machines-26.05' \
  molecule-faults molecule-people molecule-upgrade molecule-recovery molecule-rolling molecule-accept molecule-remove molecule-reset molecule-hundred@150 molecule-thousand@90 molecule-prologs \
  molecule-firewall molecule-strict molecule-adopt molecule-doctor molecule-update molecule-controllers@90 \
  molecule-metrics@90 'molecule-rest molecule-rest-26.05' \
  'molecule-rotation molecule-rotation-26.05' 'molecule-cases@150 molecule-cases-26.05@150' molecule-gpu-use molecule-guide molecule-notebook molecule-first \
  molecule-image molecule-slurm-22.05 molecule-single device rdma bmc site \
  'sanity sanity-rest sanity-hosts' core-2.20 galaxy \
  $(filter-out molecule-default sanity,$(test-lanes))

help: ## show this list
	@awk -F ':[^#]*## ' '/^## /{print "\n" substr($$0, 4)} /^[a-z][a-z0-9.%-]*:.*## /{printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

## Tests, from the shortest to the longest (docs/design/testing.md)

check: $(ready) ## run lint, unit, sanity and doc-lint: no hosts, 3 to 6 minutes
	@tests/tools/stages $(check-lanes)

test: $(ready) ## run check, the scenarios default and containers, and one for the newest release of Slurm
	@tests/tools/stalest --old $(all-lanes)
	@tests/tools/stages $(test-lanes)

test-all: $(ready) ## run test, virtual machines, NVIDIA's driver, four hosts with each other release; hours without KVM
	@tests/tools/stages $(all-lanes)

# Tests about rare events as well, and the unit tests with each environment.
test-all test-changed: export TEST_MARKS := rare or not rare
test-changed: $(ready) ## run the stages for files that differ from the commit BASE=... (default: start of the branch)
	@stages=$$(tests/tools/changed $(BASE)) && tests/tools/stages --only "$$stages" $(all-lanes)

N ?= 4
stalest: $(ready) ## run the N=4 stages of test-all that are longest not run (or STAGES="..."), and note them in tests/ran.txt
	@tests/tools/stalest $(if $(STAGES),--only "$(STAGES)",--number $(N)) $(all-lanes)
stalest: export TEST_MARKS := rare or not rare

stages-%: ## print the stages of a tier and their time limits in minutes, as JSON: stages-check, stages-test, stages-all
	@python3 tests/tools/stages --list $($*-lanes)

## Environment

setup: ## install the machine's packages, and .venv from the lock file (PYTHON=... chooses the interpreter)
	@tests/tools/setup
	@touch $(ready)

$(ready): requirements.lock tests/tools/setup
	@$(MAKE) --no-print-directory setup

lock: $(ready) ## write requirements.lock and those of docs/site and tests/bmc again, with the newest versions
	uv pip compile --quiet --universal --python-version 3.11 --upgrade --no-emit-index-url --no-emit-find-links \
	  --custom-compile-command 'make lock' requirements.in --output-file requirements.lock
	uv pip compile --quiet --universal --python-version 3.11 --upgrade --no-emit-index-url --no-emit-find-links \
	  --custom-compile-command 'make lock' --constraints requirements.lock docs/site/requirements.in \
	  --output-file docs/site/requirements.lock
	uv pip compile --quiet --universal --python-version 3.11 --upgrade --no-emit-index-url --no-emit-find-links \
	  --custom-compile-command 'make lock' --constraints requirements.lock tests/bmc/requirements.in \
	  --output-file tests/bmc/requirements.lock

## Stages of the tests

linters := yamllint ruff mypy shellcheck ansible-lint
lint: $(ready) ## run yamllint, ruff, mypy, shellcheck and ansible-lint; each of them is also a target
	@status=0; for linter in $(linters); do \
	  echo "==> $$linter"; $(MAKE) --no-print-directory $$linter || status=1; done; exit $$status

# yamllint, ruff and ansible-lint accept `files=...`, which tests/tools/hook sets.
yamllint: files = .
yamllint: $(ready)
	yamllint --strict $(files)

# All *.py, and programs without a suffix.
ruff: files = . $(shell git grep -lE '^\#!/usr/bin/env python' -- tests/tools tests/device roles ':!*.py')
ruff: $(ready)
	ruff check $(files)
	ruff format --check $(files)

mypy: $(ready)
	@mkdir -p $(dir $(typed)) && ln -sfn $(CURDIR) $(typed)
	mypy $(typed)/plugins $(typed)/tests

shellcheck:
	shellcheck --external-sources .ci/run $$(git grep -lE '^#!.*(ba)?sh$$' -- tests roles ':!*.py' ':!*.md' ':!*.yml' ':!*.j2')

# For each playbook and role it starts Ansible, which would load the inventory plugin each time.
ansible-lint: $(ready)
	ANSIBLE_INVENTORY_ENABLED=auto ansible-lint --profile production --offline --nocolor $(files)

# pylint takes longer than all other sanity tests together; the others here repeat ruff, yamllint and antsibull-changelog.
rest := changelog pep8 pylint yamllint
sanity: $(ready) ## run ansible-test sanity, with the newest ansible-core
	tests/tools/sanity $(newest) $(rest:%=--skip-test=%)

sanity-rest: $(ready) ## run the tests that sanity leaves out
	tests/tools/sanity $(newest) $(rest:%=--test=%)

# Modules and module_utils run there. README.md names this version, and ruff's target is the same.
sanity-hosts: $(ready) ## compile and import the plugins with the oldest Python of hosts, 3.9
	tests/tools/sanity $(newest) --python=3.9 --test=compile --test=import

# The same tests as with .venv-new in stage unit, which has the oldest and the newest ansible-core.
core-2.20: export PATH := $(CURDIR)/.venv-2.20/bin:$(PATH)
core-2.20: $(ready) ## run the unit tests with ansible-core 2.20; needs Python 3.12
	.venv-2.20/bin/pytest -q tests/unit -m 'not rare and not once'

galaxy: $(ready) ## make a release in a clone, with galaxy-importer, and install it
	pytest -q tests/galaxy

unit: $(ready) ## run the unit tests, with each environment
	@status=0; choice='not rare'; for environment in $(environments); do \
	  echo "==> $$environment"; $$environment/bin/pytest -q tests/unit -m "$${TEST_MARKS:-$$choice}" || status=1; \
	  choice='not rare and not once'; done; exit $$status

doc-lint: $(ready) ## check the changelog, the documentation of plugins and roles, the roles' READMEs, the schema, the pages of playbooks, defaults, causes, failures and alerts, the dashboards, the upgrade notes, the site's pictures, the number of words
	antsibull-changelog lint
	antsibull-docs lint-collection-docs --plugin-docs --validate-collection-refs=self --skip-rstcheck .
	python tests/tools/key_files.py --check
	tests/tools/role_tables --check
	python tests/tools/cluster_schema.py --check
	python tests/tools/defaults_page.py --check
	python tests/tools/doctor_page.py --check
	python tests/tools/failures_page.py --check
	python tests/tools/findings_page.py --check
	python tests/tools/playbooks_page.py --check
	python tests/tools/alerts_page.py --check
	python tests/tools/dashboards.py --check
	python tests/tools/upgrade_notes.py --check
	python tests/tools/site_pictures.py --check
	tests/tools/count_words --check

# One cluster from bare hosts is enough to show that the collection runs on the newest ansible-core as well. That of the
# guide needs few runs, which take a quarter longer with a Python of pyenv.
molecule-guide: export PATH := $(CURDIR)/$(newest)/bin:$(PATH)

molecule-%: $(ready) ## run one scenario of the folder molecule: molecule-default, molecule-single, ...
	molecule test -s $*

# Only the environment needs a network: the pages are made without one.
site-environment := .cache/site/environment
site: $(site-environment)/.ready | $(ready) ## build the documentation site in .cache/site/html, and check it
	python tests/tools/site_source.py .cache/site/source
	rm -rf .cache/site/html
	unshare --map-root-user --net $(site-environment)/bin/sphinx-build --quiet --fail-on-warning --keep-going --fresh-env \
	  .cache/site/source .cache/site/html
	pytest -q tests/site

$(site-environment)/.ready: docs/site/requirements.lock | $(ready)
	uv venv --quiet --clear --python .venv/bin/python $(site-environment)
	VIRTUAL_ENV=$(site-environment) uv pip sync --quiet --system-certs docs/site/requirements.lock
	@touch $@

# The check of a real GPU (docs/design/device.md), here with stand-ins.
device-root := .cache/device/root.tar.xz
device: $(device-root) ## run the check of a real GPU with stand-ins, and build what it carries
	python3 tests/device/check --stand-ins

$(device-root): tests/device/build | $(ready)
	tests/device/build

rdma: $(ready) ## see a port of soft-RoCE in a virtual machine, as the health check sees it
	pytest -q tests/rdma

# BMCs are programs of Debian, and one of its own environment.
bmc-environment := .cache/bmc/environment
bmc: $(bmc-environment)/.ready | $(ready) ## start and stop machines by IPMI and Redfish: programs as BMCs, packages of two releases of Debian
	pytest -q tests/bmc

$(bmc-environment)/.ready: tests/bmc/requirements.lock | $(ready)
	uv venv --quiet --clear --python .venv/bin/python $(bmc-environment)
	VIRTUAL_ENV=$(bmc-environment) uv pip sync --quiet --system-certs tests/bmc/requirements.lock
	@touch $@

## Other things

release: $(ready) ## make a release of VERSION=1.2.3 REPOSITORY=https://...: commit, tag and files; nothing is pushed
	@tests/tools/release "$(VERSION)" "$(REPOSITORY)"

upgrade-notes: $(ready) ## print what to know for the step FROM=1.2.3 TO=1.3.0; without TO, what is not released yet
	@python tests/tools/upgrade_notes.py "$(FROM)" "$(TO)"

docs: $(ready) ## write what follows from the keys of the cluster file, the tables of the roles' READMEs, the schema, and the pages of playbooks, defaults, causes, failures and alerts, the dashboards, the upgrade notes, and the site's pictures
	python tests/tools/key_files.py
	tests/tools/role_tables
	python tests/tools/cluster_schema.py
	python tests/tools/defaults_page.py
	python tests/tools/doctor_page.py
	python tests/tools/failures_page.py
	python tests/tools/findings_page.py
	python tests/tools/playbooks_page.py
	python tests/tools/alerts_page.py
	python tests/tools/dashboards.py
	python tests/tools/upgrade_notes.py
	python tests/tools/site_pictures.py

benchmark: $(ready) ## measure site.yml, 10,000 nodes and 10,000 people, as ratios (docs/design/benchmarks.md)
	python tests/benchmark/site.py
	python tests/benchmark/slope.py
	python tests/benchmark/scale.py
	python tests/benchmark/people_plan.py
	python tests/benchmark/report_page.py
	molecule converge -s single
	python tests/benchmark/people.py
	python tests/benchmark/accounting.py
	molecule converge -s slurm-26.05
	python tests/benchmark/metrics.py
	molecule converge -s gpu-use
	python tests/benchmark/gpu_use.py

demo: $(ready) ## install and validate a cluster in containers on this machine; run it again to repair the cluster
	@echo '==> containers'
	@molecule reset -s default
	@molecule create -s default
	@echo '==> gpucluster.slurm.site'
	@$(demo-ssh) ansible-playbook gpucluster.slurm.site -i $(demo) --skip-tags validate
	@echo '==> gpucluster.slurm.validate'
	@$(demo-ssh) ansible-playbook gpucluster.slurm.validate -i $(demo)
	@echo '==> sinfo'
	@ssh -F $(demo-hosts) login1 timeout 20 sinfo
	@echo 'Log in: ssh -F $(demo-hosts) login1    then: srun -N2 hostname    Remove it: make demo-clean'

picture: $(ready) ## draw docs/run.svg again, from a run on the containers of `make demo`, which are made again, too
	molecule destroy -s default
	molecule create -s default
	rm -rf .cache/picture && mkdir -p .cache/picture && cp $(demo) .cache/picture/my.cluster.yml
	cd .cache/picture && $(demo-ssh) ANSIBLE_FORCE_COLOR=1 ansible-playbook gpucluster.slurm.site -i my.cluster.yml >run.log
	python tests/tools/picture.py .cache/picture/run.log

# Another Prometheus than that of scenario metrics: PROMETHEUS=http://...
dashboard-pictures: PROMETHEUS = http://10.213.7.212:9090
dashboard-pictures: $(ready) ## draw docs/dashboards-*.svg again, from the last hour of the Prometheus of scenario metrics
	for file in roles/slurm_metrics/files/dashboards/*.json; do \
	  python tests/tools/dashboard_picture.py $(PROMETHEUS) "$$file" docs/dashboards-"$$(basename "$$file" .json)".svg; done

page-pictures: $(ready) ## draw docs/report-*.png again: the page of clusters that do not exist, in Chromium
	python tests/tools/page_pictures.py docs

demo-clean: $(ready) ## remove the containers of `make demo`
	molecule destroy -s default

.PHONY: help check test test-all test-changed stalest setup lock lint yamllint ruff mypy shellcheck ansible-lint sanity sanity-rest sanity-hosts core-2.20 galaxy unit doc-lint device rdma bmc site release upgrade-notes docs benchmark demo picture dashboard-pictures page-pictures demo-clean
