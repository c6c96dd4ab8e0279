#!/bin/bash
# containers.sh DIR - the stores of buildah and podman in DIR, with their overlay driver: an image is built in layers,
# run, committed, exported and removed, by root and by a user (USER_ID, default 1000, who needs ranges in /etc/subuid
# and /etc/subgid). Nothing comes from the network.
#
# Needs buildah, podman, runc (RUNTIME names another one), busybox-static; for the user uidmap. The last line is
# `containers: N passed, N failed`.
set -u
dir=$(cd "${1:?a directory}" && pwd) || exit 2
place=$(mktemp -d "$dir/containers.XXXX") && chmod 755 "$place" || exit 2
work=$(mktemp -d) && chmod 755 "$work" || exit 2
user=${USER_ID:-1000}
clean() { # the stores have files of other users
  as_user podman system migrate > /dev/null 2>&1
  rm -rf "$place" "$work"
}
as_user() {
  setpriv --reuid "$user" --regid "$user" --clear-groups env HOME="$work/home" XDG_RUNTIME_DIR="$work/run" "$@"
}
as_root() { "$@"; }
trap clean EXIT
passed=0; failed=0
try() { # try WHAT COMMAND...
  local what=$1 out; shift
  if out=$("$@" 2>&1); then
    passed=$((passed + 1))
  else
    failed=$((failed + 1)); echo "FAILED: $what: $out"
  fi
}
export -f as_user as_root; export work user
is() { # is EXPECTED COMMAND...: the command prints just that
  local expected=$1 found; shift
  found=$("$@" 2> /dev/null) && [ "$found" = "$expected" ] || { echo "expected $expected, found $found"; return 1; }
}
export -f is
mkdir -p "$work/base/bin" "$work/base/etc" "$work/base/old/deep" "$work/home" "$work/run"
cp "$(command -v busybox)" "$work/base/bin/busybox" && ln -s busybox "$work/base/bin/sh"
echo root:x:0:0:root:/:/bin/sh > "$work/base/etc/passwd"
echo gone > "$work/base/old/deep/file"
cat > "$work/Containerfile" << 'END'
FROM scratch
COPY base /
RUN /bin/busybox mkdir -p /srv/d && /bin/busybox echo built > /srv/file && /bin/busybox ln /srv/file /srv/link
RUN /bin/busybox rm -r /old && /bin/busybox mkdir /old && /bin/busybox echo new > /old/new
RUN /bin/busybox mv /srv/d /srv/e
RUN /bin/busybox chown 7:8 /srv/e && /bin/busybox chmod 4755 /srv/file && /bin/busybox mknod /srv/pipe p
END
chmod -R a+rX "$work"; chown -R "$user:$user" "$work/home" "$work/run"; chmod 700 "$work/run"
# Low limits, which need no privilege where this process has higher ones; there is no network.
limits="--ulimit nofile=1024:1024 --ulimit nproc=1000:1000 --network none"

one() { # one WHO ENGINE: the whole life of an image
  local who=as_$1 name="$1, $2" store="$place/$1-$2" engine
  mkdir "$store" && [ "$1" = root ] || chown "$user:$user" "$store"
  mkdir -p "$work/run/$1-$2"; [ "$1" = root ] || chown "$user:$user" "$work/run/$1-$2"
  engine="$2 --root $store/graph --runroot $work/run/$1-$2 --storage-driver overlay"
  [ "$2" = buildah ] || engine="$engine --runtime ${RUNTIME:-runc}"
  local change='/bin/busybox rm /srv/link; /bin/busybox echo 1 > /one' build=bud; [ "$2" = buildah ] || build=build
  build="$engine $build --isolation chroot --layers -f $work/Containerfile"
  try "$name: build" $who $build -t built "$work"
  try "$name: build again from its layers" $who $build -t again "$work"
  if [ "$2" = buildah ]; then
    try "$name: from" $who $engine from --name box localhost/built
    try "$name: run" is "built" $who $engine run --isolation chroot box /bin/busybox cat /srv/link
    try "$name: what was removed is gone" is "new" $who $engine run --isolation chroot box /bin/busybox ls /old
    try "$name: change" $who $engine run --isolation chroot box /bin/sh -c "$change"
    try "$name: commit" $who $engine commit box changed
    try "$name: remove" $who $engine rm box
    try "$name: from what was committed" $who $engine from --name box localhost/changed
    try "$name: it has the change" is "1" $who $engine run --isolation chroot box /bin/busybox cat /one
    try "$name: export" $who $engine push localhost/changed "oci:$store/layout:changed"
    try "$name: remove all" $who $engine rm -a
    try "$name: remove the images" $who $engine rmi -a -f
  else
    try "$name: run" is "built" $who $engine run --rm $limits built /bin/busybox cat /srv/link
    try "$name: owners" is "7:8" $who $engine run --rm $limits built /bin/busybox stat -c %u:%g /srv/e
    try "$name: mode" is "4755" $who $engine run --rm $limits built /bin/busybox stat -c %a /srv/file
    try "$name: change" $who $engine run --name box $limits built /bin/sh -c "$change"
    try "$name: commit" $who $engine commit box changed
    try "$name: it has the change" is "1" $who $engine run --rm $limits changed /bin/busybox cat /one
    try "$name: ten at once" ten "$who" "$engine"
    try "$name: export" $who $engine export -o "$store/box.tar" box
    try "$name: remove" $who $engine rm box
    try "$name: prune" $who $engine system prune -a -f
    try "$name: nothing is left" is "" $who $engine images -q
  fi
}
ten() { # ten WHO ENGINE: containers of one image that write at the same time
  local number pids= bad=0 pid
  for number in $(seq 10); do
    $1 $2 run --rm $limits built /bin/sh -c \
      "/bin/busybox echo $number > /n; [ \$(/bin/busybox cat /n) = $number ]" & pids="$pids $!"
  done
  for pid in $pids; do wait "$pid" || bad=1; done
  return $bad
}
export limits; export -f ten
who_list=root
[ "$(id -u)" = 0 ] && command -v newuidmap > /dev/null && grep -q . /etc/subuid && who_list="root user"
for who in $who_list; do
  for engine in buildah podman; do
    command -v $engine > /dev/null || { echo "FAILED: $engine is not installed"; failed=$((failed + 1)); continue; }
    one $who $engine
  done
done
echo "containers: $passed passed, $failed failed"
[ $failed = 0 ]
