#!/bin/bash
# fsx.sh DIR - random operations on a file in DIR, which has to hold what was written. Needs `cargo install fsx`.
#
# FSX_OPS: operations of a run (default 5000). FSX_SEEDS: its seeds (default "1 2"). FSX_CONFIGS: which kinds of runs.
# TOOLS: where the program is, if not in PATH. The last line is `fsx: N passed, N failed`.
set -u
dir=$(cd "${1:?a directory}" && pwd) || exit 2
PATH=${TOOLS:+$TOOLS:}$PATH:${CARGO_HOME:-$HOME/.cargo}/bin
command -v fsx > /dev/null || { echo "install it: cargo install --locked fsx"; exit 2; }
scratch=$(mktemp -d) && place=$(mktemp -d "$dir/fsx.XXXX") || exit 2
trap 'rm -rf "$scratch" "$place"' EXIT

kind() { # kind NAME BYTES LARGEST ALIGN WEIGHT...
  local name=$1 bytes=$2 largest=$3 align=$4; shift 4
  printf 'flen = %s\n[opsize]\nmax = %s\nalign = %s\n[weights]\n' "$bytes" "$largest" "$align" > "$scratch/$name.toml"
  printf '%s\n' close_open=1 fsync=1 "$@" | sed 's/=/ = /' >> "$scratch/$name.toml"
}
kind basic 200000 50000 1 read=8 write=8 mapread=0 mapwrite=0 truncate=4 fdatasync=1
kind mmap 200000 50000 1 read=4 write=4 mapread=8 mapwrite=8 truncate=4 invalidate=1
kind punch 400000 50000 1 read=8 write=8 mapread=4 mapwrite=4 truncate=4 punch_hole=4 posix_fallocate=4
kind copy 800000 100000 1 read=8 write=8 mapread=4 mapwrite=4 truncate=3 copy_file_range=5 sendfile=2
kind aligned 1048576 131072 4096 read=8 write=8 truncate=4 punch_hole=4 copy_file_range=4

passed=0; failed=0
for kind in ${FSX_CONFIGS:-basic mmap punch copy aligned}; do
  [ -e "$scratch/$kind.toml" ] || continue
  for seed in ${FSX_SEEDS:-1 2}; do
    if timeout 300 fsx -q -N "${FSX_OPS:-5000}" -S "$seed" -f "$scratch/$kind.toml" -P "$scratch" \
        "$place/$kind.$seed" > "$scratch/out" 2>&1; then
      passed=$((passed + 1))
    else
      failed=$((failed + 1)); echo "FAILED: $kind, seed $seed"; tail -n 5 "$scratch/out"
    fi
  done
done
echo "fsx: $passed passed, $failed failed"
[ $failed = 0 ]
