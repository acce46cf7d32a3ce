# Forwards to Meson; the two commands a newcomer needs are `make run` and `make test`.
BUILD ?= build
PREFIX ?= /usr/local
LISTEN ?= 127.0.0.1:8080
STATE ?=
CACHE ?= $(if $(filter 0,$(shell id -u)),/var/cache/sandgate,$(HOME)/.cache/sandgate)

.PHONY: all run test test-long bench deps release debug asan tsan fuzz check format install clean

all: release

deps:
	@tools/deps build run test bench

release debug asan tsan fuzz:
	@tools/build $@ $(BUILD)/$@

run:
	@tools/deps build run
	@tools/build release $(BUILD)/release
	@emulator/base/make-base $(CACHE)/base.tar
	@exec $(BUILD)/release/server/sandgate dev --listen $(LISTEN) --base $(CACHE)/base.tar $(if $(STATE),--state $(STATE))

test:
	@tools/deps build run test
	@tests/run

test-long:
	@tools/deps build run test
	@tests/run --long

bench:
	@tools/deps build run bench
	@tools/build release $(BUILD)/release
	@bench/run

check:
	@tools/check

format:
	@git ls-files '*.c' '*.h' | xargs clang-format-14 -i

install:
	@tools/deps build
	@tools/build release $(BUILD)/release
	@DESTDIR=$(DESTDIR) meson install -C $(BUILD)/release --no-rebuild

clean:
	rm -rf $(BUILD)
