# tidemark -- see README.md. `make run` and `make test` are all a newcomer needs.
#
#   make            build/tidemark               make test     every test (ASan and UBSan on)
#   make run        deps, build, serve           make hunt     the long runs: fuzzing and full counts
#   make deps       install missing packages     make bench    measure; prints a table
#   make install    DESTDIR= PREFIX=/usr/local   make format   clang-format over the tree
#
# One variant lives in one folder: build/ (release), build/asan/, build/fuzz/. A variant is the
# same rules with another O and SAN.

CC      ?= gcc
O       ?= build
PREFIX  ?= /usr/local
PKGS    := libuv openssl libcurl jansson inih libxxhash lmdb libnghttp2 libprotobuf-c zlib
VERSION := $(shell cat VERSION)

WARN    := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith \
           -Wwrite-strings -Wvla -Wundef -Wno-unused-parameter
HARDEN  := -fstack-protector-strong -fPIE -D_FORTIFY_SOURCE=2
CFLAGS  ?= -O2 -g
ALL_CFLAGS = -std=c11 -D_GNU_SOURCE -DTIDEMARK_VERSION='"$(VERSION)"' -Isrc -I$(O)/gen $(WARN) $(CFLAGS) \
             $(SAN_FLAGS) $(PKG_CFLAGS)
LDLIBS  = $(PKG_LIBS) -lpthread
LDFLAGS_ALL = $(LDFLAGS) $(SAN_FLAGS) -pie -Wl,-z,relro,-z,now

ifdef CI
WARN    += -Werror
endif
ifdef SAN
SAN_FLAGS := -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -fPIE
override CFLAGS := -O1 -g
else
SAN_FLAGS := $(HARDEN)
endif
ifdef FUZZ
CC        := clang
SAN_FLAGS := -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined -fPIE
override CFLAGS := -O2 -g
endif

# `make V=1` shows the commands.
ifndef V
Q   := @
say  = @printf '  %-5s %s\n' $(1) $(2)
endif

# Set-up targets must work before any package is there.
SETUP := deps clean help format
ifeq ($(filter $(SETUP),$(MAKECMDGOALS)),)
MISSING := $(shell for p in $(PKGS); do pkg-config --exists $$p 2>/dev/null || echo $$p; done; \
             command -v protoc-c >/dev/null || echo protoc-c)
ifneq ($(MISSING),)
ifeq ($(filter run test hunt bench fuzz,$(MAKECMDGOALS)),)
$(error missing libraries: $(MISSING). Run `make deps` to install them)
endif
endif
endif
PKG_CFLAGS = $(shell pkg-config --cflags $(PKGS))
PKG_LIBS   = $(shell pkg-config --libs $(PKGS))

SRC   := $(sort $(shell find src -name '*.c'))
CORE  := $(patsubst %.c,$(O)/%.o,$(filter-out src/main.c,$(SRC)))
GEN   := $(patsubst src/%.proto,$(O)/gen/%.pb-c,$(sort $(shell find src -name '*.proto')))
UNITS := $(patsubst tests/%.c,$(O)/tests/%,$(sort $(wildcard tests/unit/test_*.c tests/model/test_*.c tests/fault/test_*.c)))
SIMS  := $(patsubst %.c,$(O)/%.o,$(sort $(wildcard tests/fault/sim*.c)))
FUZZERS := $(patsubst tests/fuzz/%.c,%,$(sort $(wildcard tests/fuzz/fuzz_*.c)))

.PHONY: all run test asan unit-bins fuzz-bins deps install format clean hunt fuzz crash kills chaos powercut suite-tls bench help
.DELETE_ON_ERROR:

all: $(O)/tidemark

$(O)/tidemark: $(O)/src/main.o $(O)/libcore.a
	$(call say,LINK,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $^ $(LDLIBS)

$(O)/libcore.a: $(CORE) $(addsuffix .o,$(GEN))
	$(Q)rm -f $@ && ar rcs $@ $^

$(O)/src/%.o: src/%.c Makefile VERSION
	@mkdir -p $(@D)
	$(call say,CC,$@)
	$(Q)$(CC) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<

# C from .proto files, which is nobody's to read or to warn about. That the headers are there before
# anything is compiled is all that has to be said here: who includes them is told by the .d files.
$(O)/gen/%.pb-c.c $(O)/gen/%.pb-c.h: src/%.proto Makefile
	@mkdir -p $(O)/gen
	$(call say,PROTO,$@)
	$(Q)protoc-c --proto_path=src --c_out=$(O)/gen $<

$(addsuffix .o,$(GEN)): %.o: %.c Makefile
	$(call say,CC,$@)
	$(Q)$(CC) -std=c11 -w -I$(O)/gen $(CFLAGS) $(SAN_FLAGS) $(PKG_CFLAGS) -c -o $@ $<

$(CORE) $(O)/src/main.o: | $(addsuffix .h,$(GEN))

# The simulated disk and its company, for the tests that want them.
$(O)/tests/fault/sim%.o: tests/fault/sim%.c Makefile
	@mkdir -p $(@D)
	$(call say,CC,$@)
	$(Q)$(CC) $(ALL_CFLAGS) -Itests -MMD -MP -c -o $@ $<

$(O)/libsim.a: $(SIMS)
	$(Q)rm -f $@ && ar rcs $@ $^

$(O)/tests/%: tests/%.c $(O)/libsim.a $(O)/libcore.a
	@mkdir -p $(@D)
	$(call say,TEST,$@)
	$(Q)$(CC) $(ALL_CFLAGS) -Itests -MMD -MP $(LDFLAGS_ALL) -o $@ $< $(O)/libsim.a $(O)/libcore.a $(LDLIBS) -lcmocka

$(O)/bench/%.o: bench/%.c Makefile
	@mkdir -p $(@D)
	$(call say,CC,$@)
	$(Q)$(CC) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<

$(O)/bench/bench: $(patsubst %.c,$(O)/%.o,$(sort $(wildcard bench/*.c))) $(O)/libcore.a
	$(call say,LINK,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $^ $(LDLIBS)

# llhttp, built strict, is the oracle of the HTTP fuzzer and no part of the product.
LLHTTP_DIR := /usr/share/llhttp
$(O)/llhttp/%.o: $(LLHTTP_DIR)/%.c
	@mkdir -p $(@D)
	$(CC) -O2 -g -w -DLLHTTP_STRICT_MODE=1 -I/usr/share/include/llhttp -I$(LLHTTP_DIR) -c -o $@ $<

$(O)/fuzz_%: tests/fuzz/fuzz_%.c $(O)/libsim.a $(O)/libcore.a $(O)/llhttp/llhttp.o $(O)/llhttp/api.o $(O)/llhttp/http.o
	$(CC) $(ALL_CFLAGS) -Itests -I/usr/share/include/llhttp -MMD -MP -fsanitize=fuzzer,address,undefined -o $@ $< \
	    $(O)/libsim.a $(O)/libcore.a $(O)/llhttp/llhttp.o $(O)/llhttp/api.o $(O)/llhttp/http.o $(LDLIBS)

# The disk under the power cuts is no part of the product either; libfuse3 is for it alone.
$(O)/tests/powercut/disk: tests/powercut/disk.c Makefile
	@mkdir -p $(@D)
	$(call say,CC,$@)
	$(Q)$(CC) $(ALL_CFLAGS) -Itests $$(pkg-config --cflags fuse3) -MMD -MP $(LDFLAGS_ALL) -o $@ $< \
	    $$(pkg-config --libs fuse3)

unit-bins: $(UNITS)
fuzz-bins: $(addprefix $(O)/,$(FUZZERS))

deps:
	scripts/deps

# Both cores, unless told otherwise.
JOBS ?= -j$(shell nproc)

run: deps
	$(MAKE) $(JOBS) all
	$(O)/tidemark serve

asan:
	$(MAKE) $(JOBS) O=build/asan SAN=1 all unit-bins

test: deps
	$(MAKE) $(JOBS) all
	$(MAKE) asan
	scripts/test

# The long runs. FUZZ_RUNS executions per target; see docs/testing.md for the rest.
FUZZ_RUNS ?= 100000000
fuzz: deps
	$(MAKE) $(JOBS) O=build/fuzz FUZZ=1 fuzz-bins
	scripts/fuzz --runs $(FUZZ_RUNS)

# Simulated crashes and kills of the real server, with full counts.
CRASH_SEEDS ?= 5000
crash:
	$(MAKE) $(JOBS) all unit-bins
	TIDEMARK_SEEDS=$(CRASH_SEEDS) $(O)/tests/fault/test_journal_crash
	TIDEMARK_SEEDS=$(CRASH_SEEDS) $(O)/tests/fault/test_store_crash
	TIDEMARK_SEEDS=$(CRASH_SEEDS) $(O)/tests/fault/test_session_crash
	TIDEMARK_SEEDS=$(CRASH_SEEDS) $(O)/tests/unit/test_session_random
	TIDEMARK_SEEDS=$(CRASH_SEEDS) $(O)/tests/model/test_store

kills: all
	cd tests/e2e && npm ci --no-audit --no-fund && TIDEMARK_BIN=$(abspath $(O)/tidemark) node kill-hunt.mjs

# Sessions whose connections are cut at every turn, with full counts.
chaos: all
	cd tests/e2e && npm ci --no-audit --no-fund && TIDEMARK_BIN=$(abspath $(O)/tidemark) node session-hunt.mjs

# Power cuts below a real file system; skipped where that cannot be had.
CUTS ?= 100
powercut: all
	O=$(O) CUTS=$(CUTS) tests/powercut/run

# The whole public suite over TLS; `make test` runs what does not wait for the clock.
suite-tls: all
	cd tests/conformance && npm ci --no-audit --no-fund && TIDEMARK_TLS=1 TIDEMARK_BIN=$(abspath $(O)/tidemark) npm test

hunt: fuzz crash kills chaos powercut suite-tls

bench: deps
	$(MAKE) $(JOBS) all $(O)/bench/bench
	scripts/bench

install: all
	install -d $(DESTDIR)$(PREFIX)/bin
	install -m 755 $(O)/tidemark $(DESTDIR)$(PREFIX)/bin/tidemark

format:
	clang-format -i $$(git ls-files -co --exclude-standard '*.c' '*.h')

clean:
	rm -rf build

help:
	@sed -n '3,7s/^# \{0,1\}//p' Makefile

-include $(shell find $(O) -name '*.d' 2>/dev/null)
