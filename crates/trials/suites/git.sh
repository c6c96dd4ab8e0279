#!/bin/bash
# git.sh DIR - a repository in DIR: commits, branches, a merge, packing, a clone, and git's own check of all of it.
#
# The last line is `git: N passed, N failed`.
set -u
dir=$(cd "${1:?a directory}" && pwd) || exit 2
place=$(mktemp -d "$dir/git.XXXX") || exit 2
trap 'rm -rf "$place"' EXIT
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
export GIT_AUTHOR_NAME=Test GIT_AUTHOR_EMAIL=test@example.org
export GIT_COMMITTER_NAME=Test GIT_COMMITTER_EMAIL=test@example.org
passed=0; failed=0
try() { # try WHAT COMMAND...
  local what=$1 out; shift
  if out=$("$@" 2>&1); then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: $what: $out"; fi
}
same() { [ "$("$@")" = "" ]; }
fill() { # fill ROUND: three hundred files in thirty folders, some of which change with the round
  local file
  for file in $(seq 300); do
    mkdir -p "work/d$((file % 30))"
    echo "$file $((file % 7 == 0 ? $1 : 0))" > "work/d$((file % 30))/f$file"
  done
}
cd "$place" || exit 2
try 'make a repository' git init -q -b main work
for round in 1 2 3; do
  fill $round
  try "add, round $round" git -C work add -A
  try "commit, round $round" git -C work commit -q -m "round $round"
  try "nothing is left, round $round" same git -C work status --porcelain
done
try 'branch' git -C work checkout -q -b side HEAD~1
echo side > work/side
try 'add on the branch' git -C work add side
try 'commit on the branch' git -C work commit -q -m side
try 'back' git -C work checkout -q main
try 'merge' git -C work merge -q --no-edit side
try 'pack' git -C work gc -q --prune=now
try 'check' git -C work fsck --full --strict
try 'clone' git clone -q work clone
try 'clone is the same' diff -r --exclude=.git work clone
try 'remove all' git -C work rm -q -r .
try 'restore' git -C work reset -q --hard
try 'same again' diff -r --exclude=.git work clone
echo "git: $passed passed, $failed failed"
[ $failed = 0 ]
