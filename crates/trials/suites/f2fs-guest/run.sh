#!/bin/sh
# run.sh [OPTION...] -- COMMAND [ARGUMENT...]: runs COMMAND as root on a kernel that has f2fs and fs-verity, which this
# one may lack: Debian's, in qemu-system-x86_64 (without KVM too), from an initramfs, with a serial console and without
# a network.
#
#   --cache DIR      where kernel and initramfs are kept (default target/f2fs-guest); 75 MB
#   --disk FILE      an image that the guest sees as /dev/vdb, the next one as /dev/vdc, ...
#   --program FILE   a program that the guest gets in /bin, with its shared libraries
#   --net            with a network that ends at this machine: the guest reaches its 127.0.0.1 as 10.0.2.2; and a client
#                    of NFS
#   --virtiofs PATH  with a virtio-fs device, tagged `spinney`, of the server at this socket
#   --results DIR    where the files go that COMMAND leaves in its current directory, `dmesg`, `status` and `console`
#   --console FILE   where the console goes while the guest runs
#   --seconds N      time limit (default 300), after which qemu is killed
#   --root DEVICE    starts /sbin/init of the btrfs on DEVICE (/dev/vdb2) in place of COMMAND: use it with --cut-at
#   --rootflags LIST  the options to mount it with
#   --cut-at TEXT    kills qemu as soon as TEXT is on the console: a power cut. There are no results then but `console`
#
# No name of a file may have a space or a comma. Exits as COMMAND did; 0 after a power cut; 124 when the time was over,
# 125 when the guest could not be run or gave no status. Needs Debian's qemu-system-x86, f2fs-tools, fsverity,
# busybox-static, cpio, kmod, xz-utils and the lists of packages (apt-get update): it downloads a kernel and unpacks it,
# and installs nothing. No root.
set -u
fail() { echo "f2fs-guest: $*" >&2; exit 125; }
here=$(cd "$(dirname "$0")" && pwd) || exit 125
cache=target/f2fs-guest; seconds=300; cut=; results=; disks=; programs=; root=; net=; virtiofs=; console=
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  case $1 in
    --net) net=yes; shift; continue ;;
    --virtiofs) virtiofs=$2 ;; --console) console=$2 ;;
    --cache) cache=$2 ;; --seconds) seconds=$2 ;; --cut-at) cut=$2 ;; --results) results=$2 ;;
    --disk) disks="$disks $2" ;; --program) programs="$programs $2" ;;
    --root) root="$root root=$2" ;; --rootflags) root="$root rootflags=$2" ;;
    *) fail "unknown option $1" ;;
  esac
  shift 2
done
[ $# -gt 1 ] || fail "no command; see the head of $0"
shift
PATH=$PATH:/usr/sbin:/sbin
tools="mkfs.f2fs fsck.f2fs sload.f2fs f2fs_io fsverity"
for tool in qemu-system-x86_64 cpio depmod dpkg-deb apt-get xz busybox ldd $tools; do
  command -v $tool > /dev/null || fail "$tool is missing"
done
mkdir -p "$cache" && cache=$(cd "$cache" && pwd) || exit 125
work=$(mktemp -d "$cache/run.XXXXXX") || exit 125
console=${console:-$work/console}
trap 'stop; rm -rf "$work"' EXIT
trap 'exit 125' INT TERM HUP
stop() { [ ! -s "$work/pid" ] || kill -KILL "$(cat "$work/pid")" 2> /dev/null; }

with_libraries() { # with_libraries ROOT PROGRAM: copies a program and what it is linked with to the same places
  mkdir -p "$1/bin" && cp -L "$2" "$1/bin/" || return 1
  ldd "$2" 2> /dev/null | grep -o '/[^ ]*' | while read -r library; do
    mkdir -p "$1$(dirname "$library")" && cp -L "$library" "$1$library" || return 1
  done
}
archive() { (cd "$1" && find . | cpio --quiet -o -H newc -R 0:0); }

# The kernel's modules in the order they are loaded in, each behind what it depends on.
modules_of() { # modules_of ROOT VERSION NAME...
  for wanted in $3; do
    line=$(grep -E "/$wanted\.ko[^ ]*:" "$1/lib/modules/$2/modules.dep") || continue
    printf '%s\n%s\n' "${line%%:*}" "$(printf '%s' "${line#*:}" | tr ' ' '\n')" | grep . | tac
  done | awk '!seen[$0]++'
}
add_modules() { # add_modules LIST NAMES: copies modules, and lists them in the order
  for path in $(modules_of "$kernel" "$version" "$2"); do
    name=$(basename "$path") && cp "$kernel/lib/modules/$version/$path" "$base/modules/" || return 1
    case $name in *.xz) xz -df "$base/modules/$name" && name=${name%.xz} ;; esac
    echo "$name" >> "$base/modules/$1"
  done
}
make_base() {
  package=$(apt-cache depends linux-image-amd64 | sed -n 's/.*Depends: \(linux-image-[^ ]*\)$/\1/p' | head -n 1)
  [ -n "$package" ] || fail "apt-cache knows no linux-image-amd64; run apt-get update"
  ls "$cache/$package"_*.deb > /dev/null 2>&1 || (cd "$cache" && apt-get -qq download "$package") ||
    fail "$package cannot be downloaded"
  kernel=$work/kernel base=$work/base version=${package#linux-image-}
  dpkg-deb -x "$(ls "$cache/$package"_*.deb | tail -n 1)" "$kernel" || return 1
  depmod -b "$kernel" "$version" || return 1
  mkdir -p "$base/modules" "$base/bin" "$base/sbin" "$base/proc" "$base/sys" "$base/dev" "$base/tmp" "$base/mnt"
  add_modules order "virtio_pci virtio_blk crc32_generic crc32c_generic xxhash_generic sha256_generic \
    blake2b_generic quota_v2 f2fs btrfs" && add_modules net "virtio_pci virtio_net nfsv3" &&
    add_modules fs "virtio_pci virtiofs" || return 1
  grep -q '^f2fs.ko' "$base/modules/order" || fail "$package has no f2fs"
  for tool in busybox $tools; do with_libraries "$base" "$(command -v $tool)" || return 1; done
  for applet in $("$base/bin/busybox" --list); do
    [ -e "$base/bin/$applet" ] || ln -s busybox "$base/bin/$applet"
  done
  cp "$here/init.sh" "$base/init" && chmod 755 "$base/init" || return 1
  archive "$base" > "$work/base.cpio" && cp "$kernel/boot/vmlinuz-$version" "$work/vmlinuz" || return 1
  mv "$work/vmlinuz" "$cache/vmlinuz" && mv "$work/base.cpio" "$cache/base.cpio"
  rm -rf "$kernel" "$base"
}
if [ ! -e "$cache/base.cpio" ] || [ "$here/init.sh" -nt "$cache/base.cpio" ] || [ "$0" -nt "$cache/base.cpio" ]; then
  make_base || fail "the initramfs cannot be made"
fi

mkdir "$work/more"
for program in $programs; do
  with_libraries "$work/more" "$program" || fail "$program cannot be copied"
  strip "$work/more/bin/$(basename "$program")" 2> /dev/null
done
for word in "$@"; do printf "'%s' " "$(printf '%s' "$word" | sed "s/'/'\\\\''/g")"; done > "$work/more/command"
{ cat "$cache/base.cpio"; archive "$work/more"; } > "$work/initramfs"
truncate -s 512M "$work/results"
nic="-net none"
[ -z "$net" ] || nic="-nic user,model=virtio-net-pci" root="$root net"
if [ -n "$virtiofs" ]; then
  root="$root fs" nic="$nic -object memory-backend-memfd,id=memory,size=1024M,share=on -numa node,memdev=memory
    -chardev socket,id=fs,path=$virtiofs -device vhost-user-fs-pci,chardev=fs,tag=spinney,queue-size=1024"
fi
drives="-drive file=$work/results,format=raw,if=virtio,cache=unsafe"
for disk in $disks; do drives="$drives -drive file=$disk,format=raw,if=virtio,cache=writeback,discard=unmap"; done
# Twice a limit: the loop below is for the power cut, `timeout` for when this script itself is killed.
timeout -s KILL $((seconds + 5)) qemu-system-x86_64 -accel tcg -cpu max -smp 1 -m 1024 -nodefaults \
  -nographic -no-reboot $nic -serial "file:$console" -pidfile "$work/pid" -kernel "$cache/vmlinuz" \
  -initrd "$work/initramfs" -append "console=ttyS0 quiet panic=-1 mitigations=off no_timer_check$root" $drives \
  2> "$work/errors" &
qemu=$! end=$(($(date +%s) + seconds)) status=125
while kill -0 $qemu 2> /dev/null; do
  if [ -n "$cut" ] && grep -qF "$cut" "$console" 2> /dev/null; then stop; status=0; fi
  if [ "$(date +%s)" -ge $end ]; then stop; status=124; fi
  sleep 0.2
done
wait $qemu 2> /dev/null
rm -f "$work/pid"
[ -z "$results" ] || { mkdir -p "$results" && cp "$console" "$results/console"; } || exit 125
if [ $status = 125 ] && [ -z "$cut" ]; then
  mkdir "$work/out" && tar -C "$work/out" -xf "$work/results" 2> /dev/null
  [ ! -s "$work/out/status" ] || status=$(cat "$work/out/status")
  [ -z "$results" ] || cp -R "$work/out/." "$results/" || exit 125
fi
[ "$status" = 0 ] || { cat "$work/errors"; tail -n 30 "$console"; } >&2
exit "$status"
