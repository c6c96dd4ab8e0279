#!/bin/bash
# pjdfstest.sh DIR - what POSIX says of files, owners and names, tried in DIR.
#
# Needs root, and `cargo install --locked pjdfstest`.
# PJD_EXPECT: tests that have to fail. TOOLS: where the program is, if not in PATH.
# The last line is `pjdfstest: N passed, N failed`.
set -u
dir=$(cd "${1:?a directory}" && pwd) || exit 2
PATH=${TOOLS:+$TOOLS:}$PATH:${CARGO_HOME:-$HOME/.cargo}/bin
command -v pjdfstest > /dev/null || { echo "install it: cargo install --locked pjdfstest"; exit 2; }
scratch=$(mktemp -d) && place=$(mktemp -d "$dir/pjdfstest.XXXX") || exit 2
trap 'rm -rf "$scratch" "$place"' EXIT
chmod 755 "$place"
quoted=$(for test in ${PJD_EXPECT:-}; do printf '"%s", ' "$test"; done)
cat > "$scratch/settings.toml" <<SETTINGS
[features]
posix_fallocate = {}
utime_now = {}
utimensat = {}
rename_ctime = {}
stat_st_birthtime = {}

[settings]
naptime = 0.02
allow_remount = false
expected_failures = [$quoted]

[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"], ["bin", "bin"]]
SETTINGS
pjdfstest --configuration-file "$scratch/settings.toml" --path "$place" --secondary-fs /dev/shm > "$scratch/out" 2>&1
status=$?
summary=$(grep '^Summary:' "$scratch/out") || { tail -n 20 "$scratch/out"; exit 1; }
count() { grep -oE "[0-9]+ $1" <<< "$summary" | head -n 1 | cut -d ' ' -f 1; }
failed=$(count failed)
# A test that should have failed and did not is no line of the summary.
[ $status != 0 ] && [ "${failed:-0}" = 0 ] && failed=1
grep -E ' FAILED$| success$|unexpected' "$scratch/out" | sed 's/^/FAILED: /'
echo "pjdfstest: $(count passed) passed, ${failed:-0} failed"
[ "${failed:-0}" = 0 ]
