# tidemark -- see README.md. `make run` and `make test` are all a newcomer needs.
#
#   make            build/tidemark               make test     every test (ASan and UBSan on)
#   make run        deps, build, serve           make hunt     the long runs: fuzzing and full counts
#   make deps       install missing packages     make bench    measure; prints a table
#   make install    DESTDIR= PREFIX=/usr/local   make format   clang-format over the tree
#   make examples   the programs in examples/    make check    within a minute: build, layers, format, unit
#   make FEATURES="gateway sessions"   without the other features
#
# One variant lives in one folder: build/ (release), build/asan/, build/fuzz/, build/tsan/. A variant is the
# same rules with another O and SAN.

CC      ?= gcc
O       ?= build
PREFIX  ?= /usr/local
LIBDIR  ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
MANDIR  ?= $(PREFIX)/share/man
VERSION := $(shell cat VERSION)

# What is built in: all rows of src/feature/features.c, or those that FEATURES names, as in
# `make FEATURES="gateway sessions"`; with `make FEATURES=` none, the kernel alone. The environment does
# not count: packagers have a FEATURES of their own there.
ALL_FEATURES := $(shell sed -n 's/^ *X.\([a-z]*\),.*/\1/p' src/feature/features.c)
ifneq ($(origin FEATURES),command line)
FEATURES := $(ALL_FEATURES)
endif
ABSENT  := $(filter-out $(FEATURES),$(ALL_FEATURES))
needs    = $(shell sed -n 's/^static const char .const needs.. = {\(.*\)NULL.*/\1/p' src/feature/$(1)/$(1)_feature.c | tr -d '",')
UNKNOWN := $(filter-out $(ALL_FEATURES),$(FEATURES))
ifneq ($(UNKNOWN),)
$(error there is no feature $(UNKNOWN); there are: $(ALL_FEATURES))
endif
ifneq ($(ABSENT),)
UNMET   := $(strip $(foreach f,$(FEATURES),$(foreach n,$(call needs,$(f)),$(if $(filter $(n),$(FEATURES)),,$(f) needs $(n);))))
ifneq ($(UNMET),)
$(error $(UNMET) name it in FEATURES, too)
endif
ifneq ($(filter test check asan unit-tests unit-bins e2e-bins fuzz-bins fuzz crash hunt bench,$(MAKECMDGOALS)),)
$(error tests and benchmarks need all features: run this without FEATURES)
endif
endif

PKGS    := libuv openssl libcurl jansson libxxhash lmdb libnghttp2 zlib hiredis
PKGS    += $(if $(filter cascade,$(FEATURES)),sqlite3)
PROTO   := $(filter sessions cascade,$(FEATURES))
PKGS    += $(if $(PROTO),libprotobuf-c)

WARN    := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith \
           -Wwrite-strings -Wvla -Wundef -Wno-unused-parameter
HARDEN  := -fstack-protector-strong -fPIE -D_FORTIFY_SOURCE=2
CFLAGS  ?= -O2 -g
ALL_CFLAGS = -std=c11 -D_GNU_SOURCE -DTIDEMARK_VERSION='"$(VERSION)"' -Isrc -Iinclude -I$(O)/gen $(WARN) $(CFLAGS) \
             $(SAN_FLAGS) $(PKG_CFLAGS)
LDLIBS  = $(PKG_LIBS) -lpthread -lm
LDFLAGS_ALL = $(LDFLAGS) $(SAN_FLAGS) -pie -Wl,-z,relro,-z,now

ifdef CI
WARN    += -Werror
endif
ifdef SAN
SAN_FLAGS := -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -fPIC
override CFLAGS := -O1 -g
else
SAN_FLAGS := $(HARDEN)
endif
ifdef TSAN
SAN_FLAGS := -fsanitize=thread -fPIE
override CFLAGS := -O1 -g
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
             [ -z '$(PROTO)' ] || command -v protoc-c >/dev/null || echo protoc-c)
ifneq ($(MISSING),)
ifeq ($(filter run check test hunt bench fuzz,$(MAKECMDGOALS)),)
$(error missing libraries: $(MISSING). Run `make deps` to install them)
endif
endif
endif
PKG_CFLAGS = $(shell pkg-config --cflags $(PKGS))
PKG_LIBS   = $(shell pkg-config --libs $(PKGS))

# Files of features that are absent are as good as not there.
without = $(filter-out $(foreach f,$(ABSENT),src/feature/$(f)/%),$(sort $(1)))
SRC   := $(call without,$(shell find src -name '*.c' -not -path 'src/client/*'))
SRC   := $(filter-out $(if $(PROTO),,src/base/wire_message.c) $(if $(ABSENT),src/feature/features.c),$(SRC))
CORE  := $(patsubst %.c,$(O)/%.o,$(filter-out src/app/main.c,$(SRC))) $(if $(ABSENT),$(O)/gen/features.o)
GEN   := $(patsubst src/%.proto,$(O)/gen/%.pb-c,$(call without,$(shell find src -name '*.proto')))
PAGES := $(patsubst src/feature/%/page/,%,$(call without,$(wildcard src/feature/*/page/)))
UNITS := $(patsubst tests/%.c,$(O)/tests/%,$(sort $(wildcard tests/model/test_*.c tests/fault/test_*.c) \
           $(shell find tests/unit -name 'test_*.c' -not -path 'tests/unit/client/*')))
SIMS  := $(patsubst %.c,$(O)/%.o,$(sort $(wildcard tests/fault/sim*.c)))
ASKED := $(patsubst tests/%.c,$(O)/tests/%,$(sort $(wildcard tests/e2e/*.c)))
FUZZERS := $(patsubst tests/fuzz/%.c,%,$(sort $(wildcard tests/fuzz/fuzz_*.c)))

.PHONY: all run test asan unit-tests unit-bins e2e-bins fuzz-bins examples deps install install-lib format check clean hunt fuzz crash kills kills-client kills-redis chaos torn powercut suite-tls attacks matrix bench help print-link
.DELETE_ON_ERROR:

all: $(O)/tidemark $(O)/libtidemark.a $(O)/libtidemark.so

# The commands use the library as any program does, by its header.
$(O)/tidemark: $(O)/src/app/main.o $(O)/libcore.a $(O)/libtidemark.a
	$(call say,LINK,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $^ $(LDLIBS)

$(O)/libcore.a: $(CORE) $(addsuffix .o,$(GEN)) $(O)/gen/features.list
	$(Q)rm -f $@ && ar rcs $@ $(filter %.o,$^)

$(O)/src/%.o: src/%.c Makefile VERSION
	@mkdir -p $(@D)
	$(call say,CC,$@)
	$(Q)$(CC) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<

# Another choice of features is another library. The table of a choice is the one of all, in which
# the rows of the others read ABSENT.
FORCE:
$(O)/gen/features.list: FORCE
	@mkdir -p $(@D)
	@echo '$(FEATURES)' | cmp -s - $@ || echo '$(FEATURES)' >$@

$(O)/gen/features.c: src/feature/features.c $(O)/gen/features.list
	$(Q)sed $(foreach f,$(ABSENT),-e 's/^ *X.$(f),/    ABSENT\x28$(f),/') $< >$@

$(O)/gen/features.o: $(O)/gen/features.c Makefile
	$(call say,CC,$@)
	$(Q)$(CC) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<

# The kernel alone, from the same objects, for the tests.
KERNEL := $(O)/src/app/main.o $(O)/src/feature/feature.o $(O)/gen/no_features.o \
          $(filter-out $(O)/src/app/main.o $(O)/src/feature/% $(O)/src/base/wire_message.o $(O)/gen/%,$(CORE))
$(O)/gen/no_features.c: src/feature/features.c
	@mkdir -p $(@D)
	$(Q)sed 's/^ *X(/    ABSENT(/' $< >$@

$(O)/gen/no_features.o: $(O)/gen/no_features.c Makefile
	$(Q)$(CC) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<

$(O)/tidemark-kernel: $(KERNEL) $(O)/libtidemark.a
	$(call say,LINK,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $^ $(filter-out -lsqlite3 -lprotobuf-c,$(LDLIBS))

# C from .proto files, which is nobody's to read or to warn about. That the headers are there before
# anything is compiled is all that has to be said here: who includes them is told by the .d files.
$(O)/gen/%.pb-c.c $(O)/gen/%.pb-c.h: src/%.proto Makefile
	@mkdir -p $(@D)
	$(call say,PROTO,$@)
	$(Q)protoc-c --proto_path=src --c_out=$(O)/gen $<

$(addsuffix .o,$(GEN)): %.o: %.c Makefile
	$(call say,CC,$@)
	$(Q)$(CC) -std=c11 -w -I$(O)/gen $(CFLAGS) $(SAN_FLAGS) $(PKG_CFLAGS) -c -o $@ $<

# Pages of features are part of the program.
.SECONDEXPANSION:
$(O)/gen/%_page.h: scripts/embed $$(wildcard src/feature/$$*/page/*) Makefile
	@mkdir -p $(@D)
	$(call say,EMBED,$@)
	$(Q)scripts/embed $* $(filter src/%,$^) >$@

# So are the scripts of the store on Redis, each with what they share in front.
LUA_COMMON := src/store/redis/lua/stream.lua
LUA := $(filter-out $(LUA_COMMON),$(sort $(wildcard src/store/redis/lua/*.lua)))
$(O)/gen/redis_lua.h: scripts/embed $(LUA_COMMON) $(LUA) Makefile
	@mkdir -p $(O)/gen
	$(call say,EMBED,$@)
	$(Q)scripts/embed lua $(LUA_COMMON) $(LUA) >$@

$(CORE) $(O)/src/app/main.o: | $(addsuffix .h,$(GEN)) $(PAGES:%=$(O)/gen/%_page.h) $(O)/gen/redis_lua.h

$(O)/tests/%.o: tests/%.c Makefile
	@mkdir -p $(@D)
	$(call say,CC,$@)
	$(Q)$(CC) $(ALL_CFLAGS) -Itests -MMD -MP -c -o $@ $<

.PRECIOUS: $(O)/tests/%.o

# The simulated disk and its company, for the tests that want them.
$(O)/libsim.a: $(SIMS)
	$(Q)rm -f $@ && ar rcs $@ $^

$(O)/tests/%: $(O)/tests/%.o $(O)/libsim.a $(O)/libcore.a $(O)/libtidemark.a
	$(call say,TEST,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $@.o $(O)/libsim.a $(O)/libcore.a $(O)/libtidemark.a $(LDLIBS) -lcmocka

# With sanitizers the unit tests share the core instead: a change in src/ links one library, and not
# every test. What a test defines comes before what the library does, as it would in an archive; and
# `now`, as in the server, for a late binder leaves registers, and so secrets, on the stack.
ifdef SAN
$(O)/libcore.so: $(CORE) $(addsuffix .o,$(GEN)) $(O)/libtidemark.a $(O)/gen/features.list
	$(call say,LINK,$@)
	$(Q)$(CC) $(LDFLAGS) $(SAN_FLAGS) -shared -Wl,-z,now -o $@ $(filter %.o %.a,$^) $(LDLIBS)

$(O)/tests/unit/%: $(O)/tests/unit/%.o $(O)/libsim.a | $(O)/libcore.so
	$(call say,TEST,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) -Wl,-rpath,$(abspath $(O)) -o $@ $@.o $(O)/libsim.a $(O)/libcore.so $(LDLIBS) -lcmocka
endif

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

$(O)/fuzz_%: tests/fuzz/fuzz_%.c $(O)/libsim.a $(O)/libcore.a $(O)/libtidemark.a $(O)/llhttp/llhttp.o $(O)/llhttp/api.o $(O)/llhttp/http.o
	$(CC) $(ALL_CFLAGS) -Itests -I/usr/share/include/llhttp -MMD -MP -fsanitize=fuzzer,address,undefined -o $@ $< \
	    $(O)/libsim.a $(O)/libcore.a $(O)/libtidemark.a $(O)/llhttp/llhttp.o $(O)/llhttp/api.o $(O)/llhttp/http.o $(LDLIBS)

# The disk under the power cuts is no part of the product either; libfuse3 is for it alone.
$(O)/tests/powercut/disk: tests/powercut/disk.c Makefile
	@mkdir -p $(@D)
	$(call say,CC,$@)
	$(Q)$(CC) $(ALL_CFLAGS) -Itests $$(pkg-config --cflags fuse3) -MMD -MP $(LDFLAGS_ALL) -o $@ $< \
	    $$(pkg-config --libs fuse3)

# libtidemark: objects of their own, with everything hidden but what tidemark.h declares, and
# without asserts. Of base/ and token/ it takes what neither allocates nor aborts.
LIB_BASE := ascii b64 clock hex http_url jcs json_number json_scan json_view num sched sse_parse str utf8
LIB_SRC  := $(sort $(wildcard src/client/*.c)) $(LIB_BASE:%=src/base/%.c) \
            $(patsubst %,src/token/%.c,cbor cursor_form hkdf)
LIB_OBJ  := $(patsubst src/%.c,$(O)/lib/%.o,$(LIB_SRC))
LIB_PKGS := libnghttp2 openssl
LIB_LIBS = $(shell pkg-config --libs $(LIB_PKGS))
LIB_ABI  := $(shell sed -n 's/^.define TM_ABI  *\([0-9]*\).*/\1/p' include/tidemark.h)
LIB_SO   := libtidemark.so.$(LIB_ABI)
LIB_TESTS := $(patsubst tests/%.c,$(O)/tests/%,$(sort $(wildcard tests/unit/client/test_*.c)))

$(O)/lib/%.o: src/%.c Makefile VERSION
	@mkdir -p $(@D)
	$(call say,CC,$@)
	$(Q)$(CC) $(ALL_CFLAGS) -fPIC -fvisibility=hidden -DNDEBUG -MMD -MP -c -o $@ $<

# One object, in which what is hidden is made local: a program that links it may call its own
# functions whatever it likes.
$(O)/libtidemark.a: $(LIB_OBJ)
	$(call say,LIB,$@)
	$(Q)$(LD) -r -o $(O)/lib/tidemark.o $^
	$(Q)objcopy --localize-hidden $(O)/lib/tidemark.o
	$(Q)rm -f $@ && ar rcs $@ $(O)/lib/tidemark.o

$(O)/$(LIB_SO): $(LIB_OBJ) src/client/exports.map
	$(call say,LIB,$@)
	$(Q)$(CC) $(LDFLAGS) $(SAN_FLAGS) -shared -Wl,-soname,$(LIB_SO) -Wl,-z,relro,-z,now \
	    -Wl,--version-script=src/client/exports.map -o $@ $(LIB_OBJ) $(LIB_LIBS)

$(O)/libtidemark.so: $(O)/$(LIB_SO)
	$(Q)ln -sf $(LIB_SO) $@

# For tests, which look inside.
$(O)/lib/libinside.a: $(LIB_OBJ)
	$(Q)rm -f $@ && ar rcs $@ $^

$(O)/tests/unit/client/%: $(O)/tests/unit/client/%.o $(O)/lib/libinside.a
	$(call say,TEST,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $@.o $(O)/lib/libinside.a $(LIB_LIBS) -lpthread -lcmocka $(TEST_LIBS)

# It drives the library from that loop.
$(O)/tests/unit/client/test_client_loop: TEST_LIBS = $(shell pkg-config --libs libuv)

# Fuzz targets of the library's own parsers; the shorter stem is chosen over fuzz_% above.
$(O)/fuzz_lib_%: tests/fuzz/fuzz_lib_%.c $(O)/lib/libinside.a
	$(CC) $(ALL_CFLAGS) -Itests -MMD -MP -fsanitize=fuzzer,address,undefined -o $@ $< $(O)/lib/libinside.a $(LIB_LIBS)

# Examples are built as a newcomer would, against what `make install` puts down: the header and
# -ltidemark, with no other flag of ours. One is C++.
EXAMPLES := $(patsubst examples/%.c,$(O)/examples/%,$(wildcard examples/*.c)) \
            $(patsubst examples/%.cc,$(O)/examples/%,$(wildcard examples/*.cc))
STAGE     = $(abspath $(O))/stage
STRICT   := -Wall -Wextra -Wpedantic -Werror

$(O)/stage/done: $(O)/libtidemark.a $(O)/libtidemark.so include/tidemark.h src/client/tidemark.pc.in Makefile
	$(call say,STAGE,$(O)/stage)
	$(Q)rm -rf $(O)/stage && $(MAKE) --no-print-directory O=$(O) DESTDIR=$(STAGE) PREFIX=/usr install-lib >/dev/null
	$(Q)touch $@

$(O)/examples/%: examples/%.c $(O)/stage/done
	@mkdir -p $(@D)
	$(call say,CC,$@)
	$(Q)$(CC) -std=c11 $(STRICT) $(CFLAGS) $(EXAMPLE_SAN) -I$(STAGE)/usr/include -o $@ $< \
	    -L$(STAGE)/usr/lib -Wl,-rpath,$(STAGE)/usr/lib -ltidemark

$(O)/examples/%: examples/%.cc $(O)/stage/done
	@mkdir -p $(@D)
	$(call say,CXX,$@)
	$(Q)$(CXX) -std=c++11 $(STRICT) $(CFLAGS) $(EXAMPLE_SAN) -I$(STAGE)/usr/include -o $@ $< \
	    -L$(STAGE)/usr/lib -Wl,-rpath,$(STAGE)/usr/lib -ltidemark

ifdef SAN
EXAMPLE_SAN := $(SAN_FLAGS)
endif

examples: $(EXAMPLES)

# What the public client suite talks to.
ADAPTER := $(O)/tests/conformance/client-adapter/adapter
$(ADAPTER): $(ADAPTER).o $(O)/libtidemark.a
	$(call say,TEST,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) -o $@ $@.o $(O)/libtidemark.a $(LIB_LIBS)

e2e-bins: $(ASKED) $(ADAPTER)
unit-tests: $(filter $(O)/tests/unit/%,$(UNITS)) $(LIB_TESTS)
unit-bins: $(UNITS) $(LIB_TESTS) e2e-bins
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
	@scripts/deps browser || echo 'there is no browser to be had: the tests of the page /lab will be skipped'
	$(MAKE) $(JOBS) all $(O)/bench/bench
	$(MAKE) asan
	scripts/test

# After every change: what can be known of it within a minute.
check: deps
	$(MAKE) $(JOBS) all
	scripts/test --quick tree unit

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
	TIDEMARK_SEEDS=$(CRASH_SEEDS) $(O)/tests/unit/feature/sessions/test_session_random
	TIDEMARK_SEEDS=$(CRASH_SEEDS) $(O)/tests/model/test_store_model

kills: all
	cd tests/e2e && npm ci --no-audit --no-fund && TIDEMARK_BIN=$(abspath $(O)/tidemark) node kill-hunt.mjs

# The example client killed 200 times in its conversations, with a backend and with an echo.
kills-client: all examples
	cd tests/e2e && npm ci --no-audit --no-fund && export TIDEMARK_BIN=$(abspath $(O)/tidemark) && \
	    node lib-kill-hunt.mjs && TIDEMARK_KILLS=200 node --test --test-reporter=spec session-chat.test.mjs

# Redis killed under two servers, stopped, and cut off; sessions and answers that go from one server to the other.
kills-redis: all
	cd tests/e2e && npm ci --no-audit --no-fund && TIDEMARK_BIN=$(abspath $(O)/tidemark) TIDEMARK_REDIS_KILLS=20 \
	    TIDEMARK_REDIS_STALL_MS=10000 TIDEMARK_REDIS_STALLS=full TIDEMARK_REDIS_CUTS=500 TIDEMARK_MOVES=200 node --test \
	    --test-reporter=spec --test-concurrency=1 redis.test.mjs redis-netns.test.mjs redis-stall.test.mjs redis-chaos.test.mjs \
	    redis-processes.test.mjs

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

# Logs whose writers are killed, with full counts.
torn: all
	cd tests/e2e && npm ci --no-audit --no-fund && TIDEMARK_BIN=$(abspath $(O)/tidemark) node log-hunt.mjs

# Attacks on access with full counts: a full deny list, 2 GiB of one subject, 100,000 mutated tokens.
attacks: all e2e-bins
	cd tests/e2e && npm ci --no-audit --no-fund && TIDEMARK_BIN=$(abspath $(O)/tidemark) TIDEMARK_REVOCATIONS=100001 \
	    TIDEMARK_STORED_MIB=2048 TIDEMARK_TOKENS=100000 node --test --test-reporter=spec --test-concurrency=1 \
	    access-grants.test.mjs access-limits.test.mjs jwt-oracles.test.mjs

# SDKs with resumableFetch: every call under every fault, in Node.js and in a browser.
matrix: all
	cd tests/e2e && npm ci --no-audit --no-fund && TIDEMARK_BIN=$(abspath $(O)/tidemark) TIDEMARK_MATRIX=full node --test \
	    --test-reporter=spec --test-concurrency=1 sdk-matrix.test.mjs clients-js-browser.test.mjs

hunt: fuzz crash kills kills-client kills-redis chaos torn powercut suite-tls attacks matrix

bench: deps
	$(MAKE) $(JOBS) all $(O)/bench/bench
	scripts/bench

install: all install-lib
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(MANDIR)/man1 $(DESTDIR)$(MANDIR)/man3
	install -m 755 $(O)/tidemark $(DESTDIR)$(PREFIX)/bin/tidemark
	install -m 644 man/tidemark.1 $(DESTDIR)$(MANDIR)/man1/tidemark.1
	install -m 644 man/libtidemark.3 $(DESTDIR)$(MANDIR)/man3/libtidemark.3

# What a program needs that is built with the library. The .pc file says where it went, so that it
# is made anew each time.
install-lib: $(O)/libtidemark.a $(O)/libtidemark.so
	install -d $(DESTDIR)$(LIBDIR)/pkgconfig $(DESTDIR)$(INCLUDEDIR)
	install -m 644 include/tidemark.h $(DESTDIR)$(INCLUDEDIR)/tidemark.h
	install -m 644 $(O)/libtidemark.a $(DESTDIR)$(LIBDIR)/libtidemark.a
	install -m 644 $(O)/$(LIB_SO) $(DESTDIR)$(LIBDIR)/$(LIB_SO)
	ln -sf $(LIB_SO) $(DESTDIR)$(LIBDIR)/libtidemark.so
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR)|' -e 's|@INCLUDEDIR@|$(INCLUDEDIR)|' \
	    -e 's|@VERSION@|$(VERSION)|' src/client/tidemark.pc.in > $(DESTDIR)$(LIBDIR)/pkgconfig/tidemark.pc

format:
	clang-format -i $$(git ls-files -co --exclude-standard '*.c' '*.h' '*.cc')

clean:
	rm -rf build

# For tests that link objects of theirs with those of a build.
print-link:
	@echo "CC='$(CC)' LINK_FLAGS='$(LDFLAGS_ALL)' LINK_LIBS='$(LDLIBS)'"

help:
	@sed -n '3,9s/^# \{0,1\}//p' Makefile

-include $(shell find $(O) -name '*.d' 2>/dev/null)
