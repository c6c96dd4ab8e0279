#!/bin/bash
# systems.sh up|down NAME - mounts a fresh file system to compare with, of SIZE_MB MiB (default 6144) in memory, and
# prints where; or unmounts it. `systems.sh --lacks NAME` prints what it needs and is not here.
#
# With BENCH_DISK=DIR the image is a file there, and not in memory.
#
# Names: btrfs, ext4, xfs, tmpfs; fuse2fs and ntfs-3g on a loop device; fuse-ll, the example passthrough_ll of libfuse
# over a tmpfs, which lies where PASSTHROUGH says. The image's pages all exist before: a virtual machine takes long for
# those that it touches first. Nothing discards, so they stay.
set -eu
size=${SIZE_MB:-6144}; disk=${BENCH_DISK:-}; ram=${disk:-/mnt/bench-ram}; image=$ram/image
passthrough=${PASSTHROUGH:-passthrough_ll}
action=${1:?up or down}; name=${2:?a system}; dir=/mnt/bench-$name

lacks() {
  local what
  case $name in
    btrfs) what="mkfs.btrfs=btrfs-progs" ;;
    ext4) what="mkfs.ext4=e2fsprogs" ;;
    xfs) what="mkfs.xfs=xfsprogs" ;;
    tmpfs) return ;;
    fuse2fs) what="fuse2fs=fuse2fs" ;;
    ntfs-3g) what="mkntfs=ntfs-3g" ;;
    fuse-ll) what="$passthrough=passthrough_ll-of-libfuse(PASSTHROUGH=its-path)" ;;
    *) echo "a-system-that-is-named-$name"; return ;;
  esac
  command -v "${what%%=*}" > /dev/null || echo "${what#*=}"
}
device() { # a loop device on the image, whose old file system is forgotten
  mkdir -p "$ram"
  [ -n "$disk" ] || mountpoint -q "$ram" || mount -t tmpfs -o size=$((size + 64))m none "$ram"
  [ "$(stat -c %s "$image" 2> /dev/null)" = $((size << 20)) ] ||
    dd if=/dev/zero of="$image" bs=1M count="$size" status=none
  wipefs -qa "$image"
  losetup -f --show "$image"
}
up() {
  mkdir -p "$dir"
  case $name in
    tmpfs) mount -t tmpfs -o size="${size}m" none "$dir"; return ;;
    fuse-ll)
      mkdir -p "$dir.below"; mount -t tmpfs -o size="${size}m" none "$dir.below"
      # It keeps a descriptor for each inode.
      ulimit -n 1048576
      "$passthrough" -o source="$dir.below",writeback,cache=always,allow_other,default_permissions,timeout=86400 "$dir"
      return ;;
  esac
  local loop; loop=$(device)
  echo "$loop" > "$ram/$name.loop"
  case $name in
    btrfs) mkfs.btrfs -q -f -K -m dup "$loop"; mount -o ssd,nodiscard "$loop" "$dir" ;;
    ext4) mkfs.ext4 -q -F -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 "$loop"; mount "$loop" "$dir" ;;
    xfs) mkfs.xfs -q -f -K "$loop"; mount "$loop" "$dir" ;;
    fuse2fs)
      mkfs.ext4 -q -F -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 "$loop"
      fuse2fs -o rw,allow_other,default_permissions "$loop" "$dir" ;;
    ntfs-3g) mkntfs -q -F -Q "$loop" > /dev/null; ntfs-3g -o big_writes,permissions "$loop" "$dir" ;;
  esac
}
again() { # again COMMAND...: for a minute, since servers end after what they served
  local try
  for try in $(seq 600); do "$@" 2> /dev/null && return; sleep 0.1; done
  echo "$*: still fails after a minute" >&2; return 1
}
down() {
  ! mountpoint -q "$dir" || again umount "$dir"
  ! mountpoint -q "$dir.below" || again umount "$dir.below"
  [ -e "$ram/$name.loop" ] || return 0
  local loop; loop=$(cat "$ram/$name.loop")
  rm "$ram/$name.loop"
  again losetup -d "$loop"
}

case $action in
  --lacks) lacks ;;
  up)
    up >&2 || { down; exit 1; }
    for try in $(seq 50); do mountpoint -q "$dir" && break; sleep 0.1; done
    mountpoint -q "$dir" || { echo "$name did not mount" >&2; down; exit 1; }
    echo "$dir" ;;
  down) down ;;
  *) echo "$action: up, down or --lacks" >&2; exit 2 ;;
esac
