# The part of `cargo trials nfs-guest` that runs in the guest, by busybox's shell: mounts the server of this machine at
# port $PORT, and works there. Then it tells port $CONTROL that it writes files, which it syncs one by one, while the
# server is killed and started again; their names and sums are left in `synced`. It prints what is not as it has to be,
# and fails then.
mounted() {
  mount -t nfs -o "vers=3,proto=tcp,mountproto=tcp,port=$PORT,mountport=$PORT,nolock,addr=10.0.2.2$1" \
    10.0.2.2:/ /mnt/n
}
mkdir -p /mnt/n && mounted || exit 1
cd /mnt/n || exit 1

use_files
sum=$(md5sum < big)

cd / && umount /mnt/n && mounted "" && cd /mnt/n || say "mounting again"
same "after another mount" "$(md5sum < big)" "$sum"

# Files that are synced while the server comes and goes.
mkdir storm && sync
echo storm | nc 10.0.2.2 "$CONTROL" > /dev/null
end=$(($(date +%s) + STORM)) number=0
while [ "$(date +%s)" -lt $end ]; do
  number=$((number + 1))
  dd if=/dev/urandom of="storm/$number" bs=64k count=$((number % 5 + 1)) conv=fsync 2> /dev/null || say "dd $number"
  echo "$(md5sum < "storm/$number" | cut -c 1-32) $number" >> "$HERE/synced"
done
# One writer that syncs at the end: the client sends again what a killed server lost.
dd if=/dev/urandom of=storm/long bs=64k count=400 conv=fsync 2> /dev/null || say "dd long"
echo "$(md5sum < storm/long | cut -c 1-32) long" >> "$HERE/synced"
echo "nfs-guest: facts: $number files while the server was killed"
cd / && umount /mnt/n || say "umount"
exit $failed
