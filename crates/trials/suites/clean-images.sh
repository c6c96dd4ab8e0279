#!/bin/bash
# clean-images.sh DIR COUNT [MKFS [SPINNEY]] - makes images that nothing is wrong with, of all kinds, in which every
# check has to find nothing: `cargo trials damaged --compare DIR`.
#
# Needs root, loop devices and the kernel's btrfs. What an image is like follows from its number: who made it
# (mkfs.btrfs or Spinney), who wrote to it (the kernel or Spinney), node size, checksums, features, profiles,
# compression, quotas, snapshots, deletions that are not finished, a log of fsyncs that waits to be replayed, a device
# that has become larger.
set -eu
dir=$1; count=$2; mkfs=${3:-mkfs.btrfs}; spinney=${4:-target/release/spinney}
mkdir -p "$dir"
mnt=$(mktemp -d)
trap 'umount -q "$mnt" || true; rmdir "$mnt"' EXIT
pick() { local number=$1; shift; shift $((number % $#)); echo "$1"; }

fill() { # fill NUMBER MOUNT: something of everything; what a writer cannot do is left out
  local number=$1 at=$2 sub
  mkdir -p "$at/dir/deep/er"
  for one in $(seq 1 $((20 + number % 7 * 40))); do
    head -c $((one * 37 % 5000)) /dev/urandom > "$at/dir/file$one"
    [ $((one % 5)) != 0 ] || ln "$at/dir/file$one" "$at/dir/deep/link$one"
    [ $((one % 7)) != 0 ] || ln -s "../file$one" "$at/dir/deep/symlink$one"
  done
  head -c $((300000 + number * 7919)) /dev/urandom > "$at/large"
  yes "all alike" | head -c 400000 > "$at/squeezed"
  truncate -s 5000000 "$at/holes"
  printf end | dd of="$at/holes" bs=1 seek=2345678 conv=notrunc status=none
  fallocate -n -o 1000000 -l 300000 "$at/holes" 2> /dev/null || true
  cp --reflink=auto "$at/large" "$at/shared"
  setfattr -n user.note -v "$(head -c 60 /dev/urandom | base64 -w 0)" "$at/large" 2> /dev/null || true
  mkfifo "$at/fifo"; mknod "$at/device" c 1 3 2> /dev/null || true
  rm -f "$at"/dir/file*3
  mv "$at/dir/file4" "$at/dir/deep/er/moved"
}

for number in $(seq 1 "$count"); do
  image="$dir/clean-$number.img"
  rm -f "$image"
  node=$(pick "$number" 16384 4096 16384 65536 8192 32768)
  sums=$(pick $((number / 2)) crc32c xxhash sha256 blake2)
  features=$(pick $((number / 3)) no-holes,free-space-tree ^no-holes,^block-group-tree \
    ^free-space-tree,^block-group-tree extref block-group-tree)
  profiles=$(pick $((number / 5)) "-m dup -d single" "-m single -d single" "-m dup -d dup" "--mixed -n 4096")
  case $profiles in *mixed*) node=4096;; esac
  truncate -s $((260 + number % 3 * 60))M "$image"
  if [ $((number % 4)) = 3 ]; then
    case $profiles in *mixed*) features=$features,mixed-bg;; esac
    "$spinney" mkfs -q -f -O "$features" "$image"
  else
    # shellcheck disable=SC2086
    "$mkfs" -q -f -n "$node" --csum "$sums" -O "$features" $profiles "$image" > /dev/null
  fi
  if [ $((number % 3)) = 0 ]; then
    "$spinney" mount "$image" "$mnt" $(pick $((number / 3)) "" "-o compress=zstd" "-o compress=lzo")
    fill "$number" "$mnt"
    "$spinney" umount "$mnt"
    "$spinney" subvolume create "$image" sub > /dev/null
    "$spinney" put --quiet "$image" "$0" /sub/inside
    "$spinney" subvolume snapshot "$image" sub snap > /dev/null
    [ $((number % 2)) = 1 ] || "$spinney" subvolume delete "$image" sub > /dev/null
    continue
  fi
  option=$(pick $((number / 2)) compress=zstd compress=zlib noatime compress-force=lzo nodatacow)
  mount -o "loop,commit=300,$option" "$image" "$mnt"
  [ $((number % 5)) != 1 ] || btrfs quota enable "$mnt" > /dev/null 2>&1 || true
  fill "$number" "$mnt"
  btrfs subvolume create "$mnt/sub" > /dev/null
  cp -r "$mnt/dir" "$mnt/sub/"
  btrfs subvolume snapshot "$mnt/sub" "$mnt/snap" > /dev/null
  btrfs subvolume snapshot -r "$mnt/sub" "$mnt/frozen" > /dev/null
  rm -rf "$mnt/snap/dir/deep"
  sync -f "$mnt"
  case $((number % 7)) in
    1) btrfs subvolume delete "$mnt/frozen" > /dev/null ;;
    2) btrfs balance start -musage=100 -dusage=100 "$mnt" > /dev/null ;;
    4)
      truncate -s 400M "$image"
      losetup -c "$(findmnt -no SOURCE "$mnt")"
      btrfs filesystem resize max "$mnt" > /dev/null ;;
    5) # A log: what the device has now, taken before the commit.
      for one in 1 2 3; do
        head -c 9000 /dev/urandom > "$mnt/logged$one"
        mv "$mnt/dir/file$((one + 10))" "$mnt/dir/renamed$one" 2> /dev/null || true
        dd if=/dev/urandom of="$mnt/large" bs=4096 count=3 seek=$one conv=notrunc,fsync status=none
        python3 -c "import os, sys; os.fsync(os.open(sys.argv[1], os.O_RDONLY))" "$mnt/logged$one"
      done
      cp --sparse=always "$image" "$image.log"
      umount "$mnt"
      mv "$image.log" "$image"
      continue ;;
  esac
  umount "$mnt"
done
