#!/bin/bash
# demo.sh [DIR [IMAGE]] - builds Spinney, makes a btrfs image of DIR (default: docs/) and lists what is in it.
# Needs a Rust toolchain (1.95 or newer, https://rustup.rs) and a C compiler; installs the latter when run as root.
# SPINNEY_PROGRAM is a program that is built already.
set -eu
cd "$(dirname "$0")"
source=${1:-docs}
image=${2:-target/demo.img}
program=${SPINNEY_PROGRAM:-}
if [ -z "$program" ] && ! command -v cargo > /dev/null; then
  echo "demo: cargo is missing: install Rust 1.95 or newer from https://rustup.rs" >&2
  exit 1
fi
if [ -z "$program" ] && ! command -v cc > /dev/null; then
  if [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null; then
    apt-get update -qq && apt-get install -y -qq --no-install-recommends gcc libc6-dev
  else
    echo "demo: a C compiler is missing (Debian: apt-get install gcc libc6-dev)" >&2
    exit 1
  fi
fi
if [ -z "$program" ]; then
  cargo build --release --package spinney-cli
  program=target/release/spinney
fi
mkdir -p "$(dirname "$image")"
rm -f "$image"
set -x
"$program" mkfs --rootdir "$source" -L demo "$image"
"$program" info "$image"
"$program" tree "$image"
