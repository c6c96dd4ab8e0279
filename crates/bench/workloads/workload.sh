#!/bin/bash
# workload.sh NAME DIR - runs one workload of `bench mount` in DIR, which is mounted and writable. Knows nothing of the
# file system. The last line is `NAME value unit`. What a workload works on is made first, untimed, where it is missing;
# rows of the same files share them (DIR/w-...).
#
# `workload.sh --lacks NAME` prints the Debian packages that the workload needs and that are not here.
# Environment: BENCH is the bench program. RUNTIME: seconds of what runs for a time (20). NMETA: files of the loops over
# names (50000). BENCH_TAR: a tar file, not packed, in the place of Debian's linux-source. BENCH_SHM: where what all
# runs share is kept (/dev/shm/bench).
set -eu -o pipefail
export LC_ALL=C
seconds=${RUNTIME:-20}; files=${NMETA:-50000}; shared=${BENCH_SHM:-/dev/shm/bench}
tree_tar=${BENCH_TAR:-$shared/linux.tar}

packages() { # packages NAME: what a workload needs, as `command=package`
  case $1 in
    snap_*) echo fio=fio python3=python3 ;;
    *rand*|seqread_*) echo fio=fio ;;
    fsmark) echo fs_mark=fsmark ;;
    git_*) echo git=git; [ -n "${BENCH_TAR:-}" ] || echo /usr/src/linux-source=linux-source xz=xz-utils ;;
    trees|untar|cptree|readtree_*|find_*|lsr|du_cold|rmtree)
      [ -n "${BENCH_TAR:-}" ] || echo /usr/src/linux-source=linux-source xz=xz-utils ;;
  esac
}
if [ "$1" = --lacks ]; then
  for pair in $(packages "$2"); do
    case ${pair%=*} in
      /*) compgen -G "${pair%=*}*.tar.xz" > /dev/null || [ -s "$tree_tar" ] || echo "${pair#*=}" ;;
      *) command -v "${pair%=*}" > /dev/null || echo "${pair#*=}" ;;
    esac
  done
  exit 0
fi
name=$1; dir=$2
mkdir -p "$shared"

say() { echo "$name $1 $2"; exit 0; }
settle() { sync -f "$dir"; }
forget() { sync; echo 3 > /proc/sys/vm/drop_caches; }
# What fails within `$(...)` has to end the whole script: there is no figure then.
fail() { echo "$name: $* failed" >&2; kill -TERM $$; exit 1; }
# Seconds that a command takes, in microseconds' precision.
timed() {
  local from=$EPOCHREALTIME
  "$@" > /dev/null || fail "$@"
  awk "BEGIN { printf \"%.6f\", $EPOCHREALTIME - $from }"
}
rate() { awk "BEGIN { printf \"%.1f\", $1 / $2 }"; } # rate AMOUNT SECONDS

# job FIELD ARGUMENT...: runs fio, of whose line for machines field FIELD counts: 7 read KiB/s, 8 reads/s,
# 48 written KiB/s, 49 writes/s.
job() {
  local field=$1; shift
  (cd "$shared" && fio --minimal --terse-version=3 --group_reporting --thread --name=job "$@") |
    awk -F ';' -v field="$field" 'NF > 50 { value = $field } END { print value; exit value == "" }' || fail fio "$@"
}
mib() { awk "BEGIN { printf \"%.1f\", $1 / 1024 }"; }
loop() { "$BENCH" names "$@"; } # loop OPERATION DIR COUNT [BYTES]: files per second

big_file() {
  [ -e "$dir/w-big" ] || job 48 --filename="$dir/w-big" --rw=write --bs=1M --size=1G --ioengine=psync \
    --refill_buffers --end_fsync=1 > /dev/null
  settle
}
tree_source() {
  [ -s "$tree_tar" ] && return
  xz -T0 -dc "$(compgen -G '/usr/src/linux-source*.tar.xz' | head -n 1)" > "$tree_tar.new"
  mv "$tree_tar.new" "$tree_tar"
}
unpack() { mkdir "$1" && tar -xf "$tree_tar" -C "$1" && settle; }
tree() { tree_source; [ -d "$dir/w-tree" ] || unpack "$dir/w-tree"; }
tree_bytes() { stat -c %s "$tree_tar"; }
pack_tree() { tar -cf - -C "$dir/w-tree" . | cat; }
write_file() { dd if=/dev/zero of="$dir/w-out" bs=1M count=1024 conv=fsync status=none; }
read_file() { dd if="$dir/w-big" of=/dev/null bs=1M status=none; }
repository() { # a packed one of a part of the tree, outside of DIR
  [ -d "$shared/part.git" ] && return
  tree_source
  local work; work=$(mktemp -d "$shared/part.XXXX")
  tar -xf "$tree_tar" -C "$work" --strip-components=1
  git -C "$work" init -q && git -C "$work" add -A
  git -C "$work" -c user.name=bench -c user.email=bench@localhost commit -q -m tree
  git -C "$work" gc -q
  mv "$work/.git" "$shared/part.git"; rm -rf "$work"
}
clone() { git clone -q --shared "$shared/part.git" "$dir/w-git" && settle; }
names() { [ -d "$dir/w-names" ] || { mkdir "$dir/w-names"; loop create "$dir/w-names" "$files" > /dev/null; settle; }; }
# subvolume NAME [SOURCE]: makes one in DIR, or a snapshot of one; false where there are none, and the end of the script
# where that failed otherwise. By ioctl(2): the tools ask for the kernel's btrfs first.
subvolume() {
  local status=0
  make_subvolume "$@" || status=$?
  [ $status -le 1 ] || fail subvolume "$@"
  return $status
}
make_subvolume() {
  python3 - "$dir" "$1" "${2:-}" "$(stat -f -c %T "$dir")" <<'END'
import errno, fcntl, os, struct, sys
folder, name, source, kind = sys.argv[1:]
CREATE, LOOKUP, SNAPSHOT, BY_ID = 0x5000940E, 0xD0009412, 0x50009417, 1 << 4
def call(file, number, *arguments):  # ioctl takes no more than 1024 bytes unless it may change them
    fcntl.ioctl(file, number, bytearray(struct.pack(*arguments)))
top = os.open(folder, os.O_RDONLY)
try:
    if not source:
        call(top, CREATE, "=q4088s", 0, name.encode())
        sys.exit(0)
    of = os.open(os.path.join(folder, source), os.O_RDONLY)
    found = bytearray(struct.pack("=QQ4080x", 0, 256))
    fcntl.ioctl(of, LOOKUP, found)
    number = struct.unpack_from("=Q", found)[0]
    # The kernel takes a descriptor of the source, a FUSE server its number.
    what = (of, 0, 0) if kind == "btrfs" else (0, number, BY_ID)
    call(top, SNAPSHOT, "=qQQ32x4040s", *what, name.encode())
except OSError as error:
    sys.exit(1 if error.errno in (errno.ENOTTY, errno.EPERM, errno.EOPNOTSUPP) else 2)
except Exception as error:
    print(repr(error), file=sys.stderr)
    sys.exit(2)
END
}
small_writes() { # small_writes FLAG...: four threads write 4 KiB each into a file that a snapshot shares, for some time
  many_small_writes --runtime="$seconds" --time_based "$@"
}
many_small_writes() {
  local part=$dir/w-shared
  subvolume w-shared || mkdir "$part"
  fallocate -l 1G "$part/file" 2> /dev/null ||
    job 48 --filename="$part/file" --rw=write --bs=1M --size=1G --ioengine=psync --fallocate=none > /dev/null
  settle
  # Where there are none, the file is overwritten: that is not the same work.
  subvolume w-shared-copy w-shared || echo "$name: no snapshots here" >&2
  job 49 --filename="$part/file" --rw=randwrite --bs=4k --numjobs=4 --ioengine=psync --size=1G \
    --end_fsync=1 --overwrite=1 --fallocate=none --norandommap "$@"
}
ring_writes() {
  mkdir -p "$dir/w-ring"
  [ "$name" = uring_randwrite ] || chattr +C "$dir/w-ring"
  job 48 --filename="$dir/w-ring/file" --rw=randwrite --bssplit=4k/20:8k/20:16k/20:32k/20:64k/20 --direct=1 \
    --numjobs=16 --fallocate=posix --size=2G --runtime="$seconds" --time_based --ioengine=io_uring --iodepth=16
}
three_trees() { local n; mkdir "$dir/w-trees"; for n in 1 2 3; do unpack "$dir/w-trees/$n"; done; }
copy_tree() { cp -a --reflink=never "$dir/w-tree" "$dir/w-tree-2" && settle; }
mark() { fs_mark -t 16 -L 1 -n 250 -s 524288 -S 1 -d "$dir/w-mark" -l "$shared/fs_mark.log"; }
remove_tree() { rm -rf "$dir/w-tree" && settle; }

case $name in
  seqwrite) say "$(rate 1073.741824 "$(timed write_file)")" MB/s ;;
  seqread_cold) big_file; forget; say "$(rate 1073.741824 "$(timed read_file)")" MB/s ;;
  seqread_warm) big_file; read_file; say "$(rate 1073.741824 "$(timed read_file)")" MB/s ;;
  randread_*)
    big_file
    case $name in
      *_cold) forget; how="--io_size=128M --invalidate=0" ;;
      *_warm) read_file; how="--io_size=1G --invalidate=0" ;;
      *_dio) how="--direct=1 --runtime=5 --time_based" ;;
    esac
    say "$(job 8 --filename="$dir/w-big" --rw=randread --bs=4k --size=1G --ioengine=psync $how)" IOPS ;;
  randwrite_buf)
    big_file
    say "$(job 49 --filename="$dir/w-big" --rw=randwrite --bs=4k --size=1G --io_size=512M --ioengine=psync \
      --end_fsync=1 --overwrite=1 --fallocate=none)" IOPS ;;
  fsync_randwrite)
    mkdir -p "$dir/w-synced"
    say "$(mib "$(job 48 --directory="$dir/w-synced" --rw=randwrite --fsync=1 --ioengine=sync --numjobs=8 \
      --filesize=128M --bssplit=4k/20:8k/20:16k/20:32k/10:64k/10:128k/5:256k/5:512k/5:1m/5 --fallocate=none \
      --runtime="$seconds" --time_based)")" MiB/s ;;
  snap_randwrite) say "$(small_writes)" IOPS ;;
  # The same number of writes each time, so that what they do can be counted.
  snap_randwrite_count) say "$(many_small_writes --io_size=128M)" IOPS ;;
  snap_randwrite_dio) say "$(small_writes --direct=1)" IOPS ;;
  uring_randwrite*) say "$(mib "$(ring_writes)")" MiB/s ;;
  fsmark) mkdir -p "$dir/w-mark"; say "$(timed mark)" s ;;
  trees) tree_source; say "$(rate "3 * $(tree_bytes) / 1e6" "$(timed three_trees)")" MB/s ;;
  meta_create) rm -rf "$dir/w-names"; mkdir "$dir/w-names"; say "$(loop create "$dir/w-names" "$files")" ops/s ;;
  meta_stat) names; say "$(loop stat "$dir/w-names" "$files")" ops/s ;;
  meta_stat_cold) names; forget; say "$(loop stat "$dir/w-names" "$files")" ops/s ;;
  meta_unlink) names; rate=$(loop unlink "$dir/w-names" "$files"); rmdir "$dir/w-names"; say "$rate" ops/s ;;
  smallfiles) mkdir "$dir/w-small"; say "$(loop write "$dir/w-small" "$files" 1000)" files/s ;;
  smallfiles_fsync) mkdir "$dir/w-small"; say "$(loop write-fsync "$dir/w-small" 2000 4000)" files/s ;;
  git_checkout) repository; rm -rf "$dir/w-git"; say "$(timed clone)" s ;;
  git_status)
    repository; [ -d "$dir/w-git" ] || clone
    git -C "$dir/w-git" status -s > /dev/null; say "$(timed git -C "$dir/w-git" status -s)" s ;;
  untar) tree_source; rm -rf "$dir/w-tree"; say "$(rate "$(tree_bytes) / 1e6" "$(timed unpack "$dir/w-tree")")" MB/s ;;
  cptree) tree; took=$(timed copy_tree); rm -rf "$dir/w-tree-2"; say "$(rate "$(tree_bytes) / 1e6" "$took")" MB/s ;;
  readtree_cold) tree; forget; say "$(rate "$(tree_bytes) / 1e6" "$(timed pack_tree)")" MB/s ;;
  readtree_warm) tree; pack_tree > /dev/null; say "$(rate "$(tree_bytes) / 1e6" "$(timed pack_tree)")" MB/s ;;
  find_cold) tree; forget; say "$(timed find "$dir/w-tree" -type f)" s ;;
  find_warm) tree; find "$dir/w-tree" > /dev/null; say "$(timed find "$dir/w-tree" -type f)" s ;;
  lsr) tree; ls -lR "$dir/w-tree" > /dev/null; say "$(timed ls -lR "$dir/w-tree")" s ;;
  du_cold) tree; forget; say "$(timed du -s "$dir/w-tree")" s ;;
  rmtree) tree; say "$(timed remove_tree)" s ;;
esac
echo "no workload is named $name" >&2
exit 2
