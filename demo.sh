#!/bin/bash
# demo.sh [DIR [IMAGE]] - builds Spinney, makes a btrfs image of DIR (default: docs/) and lists what is in it.
# Needs a Rust toolchain (1.95 or newer, https://rustup.rs) and a C compiler; installs the latter when run as root.
set -eu
cd "$(dirname "$0")"
source=${1:-docs}
image=${2:-target/demo.img}
if ! command -v cargo > /dev/null; then
  echo "demo: cargo is missing: install Rust 1.95 or newer from https://rustup.rs" >&2
  exit 1
fi
if ! command -v cc > /dev/null; then
  if [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null; then
    apt-get update -qq && apt-get install -y -qq --no-install-recommends gcc libc6-dev
  else
    echo "demo: a C compiler is missing (Debian: apt-get install gcc libc6-dev)" >&2
    exit 1
  fi
fi
cargo build --release --package spinney-cli
mkdir -p "$(dirname "$image")"
rm -f "$image"
set -x
target/release/spinney mkfs --rootdir "$source" -L demo "$image"
target/release/spinney info "$image"
target/release/spinney tree "$image"
