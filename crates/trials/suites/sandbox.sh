#!/bin/bash
# sandbox.sh DIR - tests `spinney run` in subvolumes of DIR, a directory on a mount. It installs a package in a Debian
# root, builds a part of a Linux kernel, and rewrites the history of a git repository, each once with --discard and once
# with --keep. Afterwards the base subvolume, and a directory of this machine outside the mount, must be unchanged.
#
# SPINNEY names the program. DEBIAN names a directory with a Debian root, which contains a package to install at
# /hello.deb. KERNEL names a compressed tar archive of a kernel's source. A test whose variable is not set is skipped.
# Needs git and python3. The last line of output is `sandbox: N passed, N failed`.
set -u
dir=$(cd "${1:?a directory}" && pwd) || exit 2
spinney=$(command -v "${SPINNEY:-spinney}") || { echo "SPINNEY names no program"; exit 2; }
place=$(mktemp -d "$dir/sandbox.XXXX") && chmod 755 "$place" || exit 2
host=$(mktemp -d -p /var/tmp) && chmod 755 "$host" || exit 2
passed=0; failed=0
clean() {
  local name
  for name in "$place"/*; do "$spinney" fork drop "$name" || "$spinney" subvolume delete "$name"; done > /dev/null 2>&1
  rm -rf "$place" "$host"
}
trap clean EXIT
try() { # try WHAT COMMAND...
  local what=$1 out; shift
  if out=$("$@" 2>&1); then
    passed=$((passed + 1))
  else
    failed=$((failed + 1)); echo "FAILED: $what: $(tail -n 12 <<< "$out")"
  fi
}
# Prints a digest of a directory tree: names, types, modes, owners, sizes, times, links, and the contents of all files.
state() {
  (cd "$1" && find . -printf '%P %y %m %U:%G %s %T@ %n %l\n' | LC_ALL=C sort &&
    find . -type f -print0 | LC_ALL=C sort -z | xargs -0 -r sha256sum) | sha256sum
}
same() { [ "$(state "$1")" = "$2" ] || { echo "$1 has changed"; return 1; }; }

twice() { # twice NAME CHANGED OPTIONS... -- COMMAND...: NAME: a subvolume of $place; CHANGED: a path in the kept fork
  local name=$1 changed=$2 base="$place/$1" before host_before start; shift 2
  before=$(state "$base"); host_before=$(state "$host"); start=$SECONDS
  cd "$base" || return
  try "$name, discarded" "$spinney" run --base "$base" --discard "$@"
  try "$name, the base" same "$base" "$before"
  try "$name, this machine" same "$host" "$host_before"
  local forks; forks=$("$spinney" fork list "$place" | grep -c .)
  try "$name, kept" "$spinney" run --base "$base" --keep "$@"
  try "$name, the base of the kept one" same "$base" "$before"
  try "$name, this machine beside the kept one" same "$host" "$host_before"
  local kept; kept=$("$spinney" fork list --json "$place" | python3 -c '
import json, sys
print(max(json.load(sys.stdin)["forks"], key=lambda fork: fork["id"])["path"])')
  try "$name, one fork more" test "$("$spinney" fork list "$place" | grep -c .)" -gt "$forks"
  try "$name, the change is in the fork" test -e "$root/$kept/$changed"
  echo "$name: $((SECONDS - start)) s"
  cd /
}
root=$(findmnt -n -o TARGET -T "$dir")
echo kept > "$host/file"; ln -s file "$host/link"

if [ -n "${DEBIAN:-}" ]; then
  "$spinney" subvolume create "$place/debian" > /dev/null &&
    tar -C "$DEBIAN" --one-file-system -c . | tar -C "$place/debian" -x
  twice debian usr/bin/hello --no-network -- dpkg -i /hello.deb
fi
if [ -n "${KERNEL:-}" ]; then
  "$spinney" subvolume create "$place/kernel" > /dev/null && tar -C "$place/kernel" --strip-components 1 -xf "$KERNEL"
  twice kernel kernel/fork.o --at "$host" --tmp -- sh -c 'make -s tinyconfig && make -s -j2 kernel/'
fi
"$spinney" subvolume create "$place/git" > /dev/null
(cd "$place/git" && git init -q . && git config user.name a && git config user.email a@b.c &&
  for number in $(seq 40); do echo "$number" > "file$number" && git add . && git commit -q -m "change $number"; done)
twice git .git/refs/original --at "$host" --tmp -- git filter-branch -f --msg-filter 'sed s/change/step/' HEAD
echo "sandbox: $passed passed, $failed failed"
[ $failed = 0 ]
