# The part of `cargo trials virtiofs-guest` that runs in the guest, by busybox's shell: mounts the virtio-fs device, and
# works there. Then it writes files, each from its number, syncs them one by one and says so on the console, until the
# machine or the server is killed. It prints what is not as it has to be, and fails then.
mounted() { mount -t virtiofs spinney /mnt/n; }
mkdir -p /mnt/n && mounted && cd /mnt/n || exit 1
use_files
sum=$(md5sum < big)

# Extended attributes, access lists, locks.
if command -v setfattr > /dev/null; then
  echo x > attributes && setfattr -n user.a -v one attributes && setfattr -n trusted.b -v two attributes ||
    say "setfattr"
  same attribute "$(getfattr --only-values -n user.a attributes)" one
fi
if command -v setfacl > /dev/null; then
  mkdir shared && setfacl -m u:1000:rwx,d:u:1000:rwx shared && user "echo x > shared/y" || say "setfacl"
  user "mkdir shared/z && echo x > shared/z/y" || say "a default access list"
fi
if command -v flock > /dev/null; then
  flock lock sleep 5 & sleep 1
  flock -n lock true && say "two exclusive locks"
  wait
fi
# Names of all of a directory, and a file that grows while it is read.
(for number in $(seq 200); do echo "$number" >> grows; done) & tail -n 0 -f grows > /dev/null 2>&1 & reader=$!
wait %1 2> /dev/null
kill $reader 2> /dev/null
same "a file that grows" "$(wc -l < grows | tr -d ' ')" 200

if command -v pjdfstest > /dev/null; then
  mkdir -p /etc /pjd && cd / || exit 1
  printf '%s\n' root:x:0:0:::/bin/sh nobody:x:65534:65534:::/bin/sh daemon:x:1:1:::/bin/sh bin:x:2:2:::/bin/sh \
    > /etc/passwd
  printf '%s\n' root:x:0: nogroup:x:65534: daemon:x:1: bin:x:2: > /etc/group
  mkdir -m 755 /mnt/n/pjd && printf '%s\n' '[features]' 'posix_fallocate = {}' 'utime_now = {}' 'utimensat = {}' \
    'rename_ctime = {}' '[settings]' 'naptime = 0.1' 'allow_remount = false' \
    'expected_failures = ['"$EXPECTED"']' '[dummy_auth]' \
    'entries = [["nobody", "nogroup"], ["daemon", "daemon"], ["bin", "bin"]]' > /pjd/settings.toml
  pjdfstest --configuration-file /pjd/settings.toml --path /mnt/n/pjd --secondary-fs /tmp > "$HERE/pjdfstest" 2>&1 ||
    say "pjdfstest"
  echo "$NAME: facts: pjdfstest: $(grep '^Summary:' "$HERE/pjdfstest")"
  grep -E ' FAILED$| success$|unexpected' "$HERE/pjdfstest" | sed "s/^/$NAME: /"
  cd /mnt/n && rm -rf pjd
fi
cd / && umount /mnt/n && mounted && cd /mnt/n || say "mounting again"
same "after another mount" "$(md5sum < big)" "$sum"
[ "$failed" = 0 ] || exit 1

# Files that are synced until there is no more time.
mkdir storm && sync
echo "$NAME: storm"
number=0
while [ "$number" -lt "$STORM" ]; do
  number=$((number + 1))
  seq "$number" "$((number + number * 7919 % 30011))" > "storm/$number.new" && mv "storm/$number.new" "storm/$number" &&
    sync "storm/$number" && echo "$NAME: synced $number" || say "sync $number"
done
cd / && umount /mnt/n || say "umount"
exit "$failed"
