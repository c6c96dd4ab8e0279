#!/bin/bash
# test.sh - everything that has to pass before a change goes in. The last line is `N passed, N failed`.
#
# Runs anywhere with Rust and a C compiler. As root it installs from Debian what it needs, and also runs what needs loop
# devices and the kernel's btrfs; otherwise it names what is missing and skips that. With CI=true nothing may be
# skipped. `./test.sh --quick` is what a change needs before it is shown: the rules, the lints and the unit tests, under
# five minutes where the tests are built. SPINNEY_SEEDS (default 200, in CI 24) is the length of the property test. The
# images go to target/images, or where SPINNEY_IMAGES says; those of the property test to /dev/shm.
# `./test.sh --long` runs what proves less for its time: the planted bugs, more states of power cuts, random calls of
# the library for C under sanitizers, the static programs, other systems, and installations on bare ones (needs rustup,
# musl-tools, lintian, debootstrap, systemd-container, qemu-user-static, and `ziglang` and `maturin` of pip).
set -u
cd "$(dirname "$0")"
packages="gcc libc6-dev btrfs-progs attr acl e2fsprogs xz-utils zstd util-linux kmod strace python3 groff-base"
packages="$packages fuse3 perl-base git f2fs-tools qemu-system-x86 busybox-static cpio fsverity fakeroot pseudo"
packages="$packages g++ pkg-config python3-pytest python3-fsspec nbdkit libnbd-bin qemu-utils"
needed="cc btrfs mkfs.btrfs btrfstune setfattr setfacl lsattr xz zstd losetup modprobe strace python3"
needed="$needed fusermount3 perl setpriv git g++ pkg-config groff mkfs.f2fs sload.f2fs dump.f2fs"
needed="$needed qemu-system-x86_64 busybox cpio fsverity fakeroot pseudo pytest-3 nbdkit nbdinfo nbdcopy"
packages="$packages age"
packages="$packages curl openssl libnfs-utils dpkg-dev rpm rpm2cpio fdisk dosfstools procps"
needed="$needed age"
needed="$needed qemu-nbd qemu-img curl openssl nfs-ls dpkg-shlibdeps rpmbuild rpm2cpio sfdisk mkfs.vfat pgrep"
images=${SPINNEY_IMAGES:-target/images}
[ "${CI:-}" = true ] && seeds=${SPINNEY_SEEDS:-24} || seeds=${SPINNEY_SEEDS:-200}
passed=0; failed=0; skipped=0; failures=
reasons=target/tests.reasons # why tests failed: told at the end again, where a long output was cut off
# In CI all is built once: without what later builds would take over, and without lines for debuggers.
[ "${CI:-}" = true ] && export CARGO_INCREMENTAL=0 CARGO_PROFILE_CHECKED_DEBUG=0 CARGO_PROFILE_CHECKED_OPT_LEVEL=2
export RUST_BACKTRACE=${RUST_BACKTRACE:-0} PATH="$PATH:/usr/sbin:/sbin"

step() { # step NAME COMMAND...: runs it and counts the outcome
  local name=$1 start=$SECONDS; shift
  echo "=== $name"
  if "$@"; then
    passed=$((passed + 1)); echo "=== $name: passed, $((SECONDS - start)) s"
  else
    failed=$((failed + 1)); failures="$failures $name"; echo "=== $name: FAILED, $((SECONDS - start)) s"
  fi
}
skip() { # skip NAME WHY: legal on a developer's machine, a failure in CI
  if [ "${CI:-}" = true ]; then
    failed=$((failed + 1)); failures="$failures $1"; echo "=== $1: FAILED, must not be skipped in CI: $2"
  else
    skipped=$((skipped + 1)); echo "=== $1: SKIPPED: $2"
  fi
}
missing() { local tool; for tool in $needed; do command -v "$tool" > /dev/null || echo "$tool"; done; }

if [ "${1:-}" != --quick ] && [ -n "$(missing)" ]; then
  if [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null; then
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages
  fi
  [ -z "$(missing)" ] || echo "missing: $(missing | tr '\n' ' ')(Debian: apt-get install $packages)"
fi
command -v cargo > /dev/null || { echo "cargo is missing: install Rust 1.95 or newer from https://rustup.rs"; exit 1; }

# Tests and our tasks share one build: optimised, with every check of arithmetic, of the order of locks and of our own
# bugs. What is chosen of it is always chosen of the whole workspace: packages that are built together have the same
# features, or their dependencies would be built once for each. (In the release profile they would be built twice, as
# programs abort on a panic and tests cannot; and programs are linked with LTO.)
together="--profile checked --workspace"
# In CI the programs are those of that build, with all its checks: a second build in the release profile takes minutes.
programs() {
  local built="${CARGO_TARGET_DIR:-target}"
  if [ "${CI:-}" = true ]; then
    cargo build --quiet $together --bin spinney && mkdir -p "$built/release" &&
      cp "$built/checked/spinney" "$built/release/spinney"
  else
    cargo build --quiet --release --package spinney-cli
  fi
}
docs() { RUSTDOCFLAGS="-D warnings" cargo doc --quiet $together --no-deps; }
# As docs.rs builds the pages of the library.
docs_rs() {
  DOCS_RS=1 RUSTDOCFLAGS="--cfg docsrs -D warnings" cargo +nightly doc --quiet --no-deps --package spinney \
    --target x86_64-unknown-linux-gnu --target-dir target/docs-rs
}
# The suites of Python with the packages of pip: fsspec's own tests for file systems, which Debian's package lacks, and
# the picture of the example. That of Go is among the tests of the library for C.
bindings() {
  local python="$PWD/target/python-suites/bin/python"
  if [ ! -x "$python" ]; then
    python3 -m venv target/python-suites && "$python" -m pip install -q fsspec pytest matplotlib || return 1
  fi
  SPINNEY_PYTHON=$python cargo test $together --test package -- --nocapture && cargo test $together --test interface
}
demo() {
  programs && SPINNEY_PROGRAM="${CARGO_TARGET_DIR:-target}/release/spinney" ./demo.sh
}
# Depends on no crate of the engine, so that the rules of the source tree are checked before the engine is built.
xtask() {
  cargo build --quiet $together --bin xtask && "${CARGO_TARGET_DIR:-target}/checked/xtask" "$@"
}
trials() {
  cargo build --quiet $together --bin trials && "${CARGO_TARGET_DIR:-target}/checked/trials" "$@"
}
property() {
  SPINNEY_SEEDS=$seeds cargo test $together --test property -- --nocapture
}
# Every test program by itself, two at a time and each with one thread, the longest first: many have one long test or
# wait for a disk, so that one after the other they leave half of the processors idle.
# A test that finds something missing says SKIPPED and passes; so its output is kept and looked through. What another
# kernel lacks is no tool that could be installed: skips for that are told, and allowed. So is a skip for Go, which has
# 330 MB.
tests() {
  local log=target/tests.log logs=target/tests.d lacks name
  mkdir -p target && rm -rf "$logs" "$reasons" && mkdir "$logs"
  cargo test --quiet $together --no-run --message-format=json > "$logs/built.json" || return 1
  python3 - "$logs/built.json" > "$logs/programs" << 'END' || return 1
import json, os, sys
rows = []
for line in open(sys.argv[1]):
    it = json.loads(line)
    if it.get("reason") == "compiler-artifact" and it["profile"]["test"] and it.get("executable"):
        rows.append((it["target"]["name"] != "program", os.path.dirname(it["manifest_path"]), it["executable"]))
for _, folder, program in sorted(rows):
    print(folder, program)
END
  xargs -P 2 -L 1 bash -c 'cd "$1" && RUST_TEST_THREADS=1 "$2" --show-output > "$0/${2##*/}.log" 2>&1 ||
    echo "${2##*/}" >> "$0/failed"' "$PWD/$logs" < "$logs/programs"
  cargo test $together --doc > "$logs/doc.log" 2>&1 || echo doc >> "$logs/failed"
  cat "$logs"/*.log > "$log"
  grep '^test result' "$log"
  if [ -s "$logs/failed" ]; then
    while read -r name; do
      echo "--- $name"; grep -A60 '^failures:' "$logs/$name.log"; tail -n 40 "$logs/$name.log"
    done < "$logs/failed"
    (cd "$logs" && xargs -I{} grep -hE -A3 '^test .* FAILED$|panicked at|^error' {}.log < failed) |
      grep -vE '^--|^test .* ok$' | head -n 60 > "$reasons"
    return 1
  fi
  [ "$(grep -c '^test result: ok' "$log")" -ge "$(wc -l < "$logs/programs")" ] || return 1
  grep 'SKIPPED' "$log" | sort | uniq -c
  lacks="no io_uring here|this kernel's FUSE has no rings|no idmapped mounts of FUSE|btrfs is not here|Go is not here"
  if [ "${CI:-}" = true ] && grep 'SKIPPED' "$log" | grep -vE "$lacks" > "$reasons"; then
    echo "with CI=true nothing may be skipped"; return 1
  fi
}
# What only benchmarks are built with: statistics of locks, and the ways to compare with.
benchmarked() {
  cargo clippy --quiet --profile checked --package spinney-cli --package bench --all-targets \
    --features ablation,lock-statistics -- -D warnings
}
# All planted bugs, and what is counted of locks: the engine has to be built with them, which takes longer than to run
# them.
mutations() {
  cargo test $together --features testkit/ablation,spinney-btrfs-store/lock-statistics \
    --test mutations --test sums --test statistics
}
kernel_walk() {
  trials images --dir "$images" && trials diff-walk "$images"/*.img
}
# A kernel that has f2fs, in qemu, has images of ours: states of crashes, which it recovers, and some that the program
# makes. It changes them, and we read them again.
f2fs_guest() {
  local seed=$(($(date +%s) / 86400)) states=target/f2fs-states
  rm -rf "$states" && mkdir -p "$states" &&
    trials crash-explore --format f2fs --states 3200 --seed $seed --judge-every 200 --keep-states "$states" &&
    trials f2fs-guest --make --small --seed $seed "$states"/*
}

# What takes long, and is not run for each change.
more_states() {
  local layout lost
  for layout in raid1 raid1c3 raid1c4 raid10; do
    trials crash-explore --several "$layout" --states 40000 || return 1
    for lost in 0 1; do
      trials crash-explore --several "$layout" --lost "$lost" --states 40000 || return 1
    done
  done
}
# Runs in a process of its own, beside other steps; its counts come in a file.
beside_the_others() {
  passed=0; failed=0; failures=
  echo "0 1 beside-the-others" > target/beside.counts
  step f2fs-guest f2fs_guest
  step verity trials verity
  step disk-boot trials disk-boot
  step power-cut trials power-cut --ci
  step log-replay trials log-replay --count 4
  # The other layouts take minutes (cargo trials several-devices).
  step several-devices trials several-devices --only raid10
  step ping-pong trials several-devices --rounds 4 --seed $(($(date +%s) / 86400))
  step mkfs-cases trials mkfs-cases
  echo "$passed $failed$failures" > target/beside.counts
}
unit_tests() { cargo test --quiet $together --lib; }

if [ "${1:-}" = --quick ]; then
  step format cargo fmt --all --check
  step tidy xtask tidy
  step clippy cargo clippy --quiet $together --all-targets -- -D warnings
  step unit-tests unit_tests
  echo "$passed passed, $failed failed"
  [ $failed = 0 ]; exit
fi

if [ "${1:-}" = --long ]; then
  step benchmarked benchmarked
  step mutations mutations
  step more-states more_states
  programs && { step nfs-guest trials nfs-guest; step virtiofs-guest trials virtiofs-guest; }
  # Needs Debian's ceph-mon, ceph-osd, ceph-mgr, ceph-common, qemu-block-extra.
  step ceph trials ceph 20
  step bindings bindings
  step capi-fuzz cargo xtask capi-fuzz --sequences 500000
  step capi-fuzz-address cargo xtask capi-fuzz --sequences 100000 --sanitizer address
  step capi-fuzz-thread cargo xtask capi-fuzz --sequences 20000 --sanitizer thread --threads 3
  step docs-rs docs_rs
  # Builds for other targets.
  step static cargo xtask static
  step static-arm cargo xtask static --target aarch64-unknown-linux-musl
  cargo build --quiet --release --package spinney-cli && cargo xtask capi > /dev/null
  step lintian cargo xtask deb --lintian
  step wheel cargo xtask wheel --profile library --program target/x86_64-unknown-linux-musl/static/spinney
  step install cargo xtask install
  step portable cargo xtask portable
  echo "$passed passed, $failed failed"
  [ $failed = 0 ]; exit
fi

# Steps that need the kernel stand at the end. The fastest come first: clippy generates no code, and finds compile
# errors. What each proves is in docs/testing.md.
step format cargo fmt --all --check
step tidy xtask tidy
step clippy cargo clippy --quiet $together --all-targets -- -D warnings
# `tidy` has checked licences and origins already. The tool also finds wildcards, and takes minutes to install: where it
# is there it runs, without the list of known vulnerabilities, which has to be fetched.
cargo deny --version > /dev/null 2>&1 &&
  step deny cargo deny --offline --log-level error check --hide-inclusion-graph licenses bans sources
step docs docs
# `tidy` follows the links of all documents. Where the tool is there, the guide is built as a book.
command -v mdbook > /dev/null && step book mdbook build docs/guide --dest-dir "$PWD/target/guide"
step tests tests
step property property
step demo demo
step mutate-images trials mutate-images --count 250
step fuzz-archives trials fuzz-archives --executions 100000
# The program is the one that the demonstration has built.
step nbd-crash trials nbd-crash --states 1500 --rounds 2
step backup-kill trials backup-kill 5
modprobe btrfs 2> /dev/null
# The program and the library are those that have been built. The packages of the library take a minute: `--long`.
if command -v dpkg-deb > /dev/null; then step deb xtask deb; else skip deb "needs dpkg-deb"; fi
if command -v rpmbuild > /dev/null; then step rpm xtask rpm; else skip rpm "needs rpmbuild"; fi
step symbols xtask symbols --library "${CARGO_TARGET_DIR:-target}/checked/deps/libspinney_capi.a"
step sbom xtask sbom
# The images are others each day.
step damaged trials damaged --mutated 40 --seed $(($(date +%s) / 86400))
with_kernel="kernel-walk round-trip send-receive attack kill-mount kill-f2fs f2fs-guest power-cut log-replay"
with_kernel="$with_kernel verity disk-boot several-devices ping-pong mkfs-cases mount-checks guide"
if [ "$(id -u)" != 0 ]; then
  for name in $with_kernel; do skip "$name" "needs root, loop devices and the kernel's btrfs"; done
  step crash-explore trials crash-explore --ci --judge-every 0
elif ! grep -qw btrfs /proc/filesystems || ! losetup --find > /dev/null 2>&1; then
  for name in $with_kernel; do skip "$name" "this kernel has no btrfs or no free loop device"; done
  step crash-explore trials crash-explore --ci --judge-every 0
else
  # Two lists of steps at a time: most of them keep one processor busy. The program is that of the
  # demonstration.
  beside_the_others > target/beside.log 2>&1 &
  step kernel-walk kernel_walk
  step round-trip trials round-trip --dir "$images"
  step send-receive trials send-receive --seeds 4
  step crash-explore trials crash-explore --ci
  step attack trials attack --ci
  step kill-mount trials kill-mount --times 4
  step kill-f2fs trials kill-mount --format f2fs --times 4
  # The other suites have to be installed first (cargo trials mount-checks --help).
  step mount-checks trials mount-checks --checks crates/trials/suites --only git --mode default,writeback
  step guide trials guide
  wait
  cat target/beside.log
  read -r more_passed more_failed more < target/beside.counts
  passed=$((passed + more_passed)); failed=$((failed + more_failed)); failures="$failures${more:+ $more}"
fi
[ -z "$failures" ] || { [ ! -s "$reasons" ] || cat "$reasons"; echo "failed:$failures"; }
[ $skipped = 0 ] || echo "$skipped skipped"
echo "$passed passed, $failed failed"
[ $failed = 0 ]
