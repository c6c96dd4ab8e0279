#!/bin/bash
# A Ceph cluster on 127.0.0.1 for `cargo trials ceph`: one monitor, one manager, and OSDs whose disks are files.
#   ceph.sh start DIR OSDS     starts it below DIR
#   ceph.sh kill DIR NAME      kills a daemon, such as osd.1, with SIGKILL
#   ceph.sh revive DIR NUMBER  starts a killed OSD again
#   ceph.sh stop DIR           ends the processes of this cluster, by their ids
# Packages of Debian 12: ceph-mon ceph-osd ceph-mgr ceph-common.
set -eu
what=${1:?start, kill, revive or stop}
dir=$(realpath -m "${2:?a directory}")
export CEPH_CONF=$dir/ceph.conf
own="--setuser root --setgroup root"

wait_for() { # wait_for COMMAND...: up to a minute
  local try
  for ((try = 0; try < 120; try++)); do
    "$@" && return 0
    sleep 0.5
  done
  echo "gave up: $*" >&2
  return 1
}
are_up() { ceph osd stat 2> /dev/null | grep -q "$1 up"; }

case $what in
  kill)
    kill -9 "$(cat "$dir/${3:?a daemon}.pid")"
    exit 0 ;;
  revive)
    ceph-osd -i "${3:?a number}" $own
    exit 0 ;;
  stop)
    for file in "$dir"/*.pid; do
      [ -f "$file" ] || continue
      pid=$(cat "$file")
      # A number may belong to another process by now.
      tr '\0' ' ' < "/proc/$pid/cmdline" 2> /dev/null | grep -q ceph && kill -9 "$pid" || true
      rm -f "$file"
    done
    exit 0 ;;
  start) ;;
  *) echo "expected start, kill, revive or stop" >&2; exit 2 ;;
esac

osds=${3:?a number of OSDs}
port=${CEPH_PORT:-16789}
fsid=$(cat /proc/sys/kernel/random/uuid)
monitors="[v2:127.0.0.1:$port,v1:127.0.0.1:$((port + 1))]"
mkdir -p "$dir/mon" "$dir/mgr" "$dir/run" "$dir/log"
# A write is acknowledged when two copies have it. With fewer OSDs than that, requests wait.
least=$((osds > 2 ? 2 : 1))
cat > "$CEPH_CONF" << END
[global]
fsid = $fsid
mon host = $monitors
public network = 127.0.0.0/8
cluster network = 127.0.0.0/8
auth cluster required = none
auth service required = none
auth client required = none
osd pool default size = $osds
osd pool default min size = $least
osd crush chooseleaf type = 0
mon allow pool size one = true
mon warn on pool no redundancy = false
mon osd min down reporters = 1
mon osd down out interval = 0
osd heartbeat grace = 6
osd heartbeat interval = 2
osd client watch timeout = 5
run dir = $dir/run
admin socket = $dir/run/\$cluster-\$name.asok
pid file = $dir/\$type.\$id.pid
log file = $dir/log/\$name.log
mon data = $dir/mon
mgr data = $dir/mgr
osd data = $dir/osd.\$id
osd objectstore = bluestore
bluestore block create = true
bluestore block size = ${OSD_SIZE:-4294967296}
bluestore block db create = false
bluestore block wal create = false
osd memory target = 1073741824
osd op num shards = 2
setuser match path = $dir/none
[client]
admin socket =
pid file =
log file =
END
monmaptool --create --fsid "$fsid" --addv a "$monitors" "$dir/monmap" > /dev/null
ceph-mon --mkfs -i a --monmap "$dir/monmap" $own
ceph-mon -i a $own
ceph-mgr -i x $own
for ((osd = 0; osd < osds; osd++)); do
  uuid=$(cat /proc/sys/kernel/random/uuid)
  ceph osd new "$uuid" "$osd" > /dev/null
  mkdir -p "$dir/osd.$osd"
  ceph-osd -i "$osd" --mkfs --osd-uuid "$uuid" $own 2> /dev/null
  ceph-osd -i "$osd" $own
done
wait_for are_up "$osds"
ceph osd pool create rbd 8 > /dev/null 2>&1
rbd pool init rbd
