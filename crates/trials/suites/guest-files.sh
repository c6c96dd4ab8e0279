# Commands of a guest in a file system that this machine serves to it, by busybox's shell, in the current directory: it
# makes, moves, links and removes files, as two users, many of them ($FILES), and by programs that sync (git, SQLite,
# where they are here). It prints what is not as it has to be, behind $NAME, and sets `failed` to 1 then. The scripts
# for NFS and virtio-fs begin with it, and call `use_files`.
failed=0
say() { echo "$NAME: $*"; failed=1; }
same() { [ "$2" = "$3" ] || say "$1: expected '$3', found '$2'"; }

use_files() {
  # Contents and names.
  echo one > a && echo two >> a && same append "$(cat a | tr '\n' ' ')" "one two "
  mkdir -p d/e && mv a d/b && ln d/b c && ln -s d/b s || say "names"
  same link "$(stat -c %h c)" 2
  same symlink "$(readlink s)" d/b
  echo new > n && mv n d/b && same "renamed over" "$(cat d/b)" new && same "the other link" "$(head -n 1 c)" one
  rmdir d 2> /dev/null && say "rmdir of a full directory"
  mkdir c 2> /dev/null && say "mkdir of a name that exists"
  mkfifo fifo && mknod null c 1 3 && same "device" "$(stat -c %t:%T null)" 1:3
  chmod 4750 c && chown 1000:100 c && same owner "$(stat -c %a:%u:%g c)" 750:1000:100
  touch -d "2001-02-03 04:05:06" c && same times "$(stat -c %Y c)" 981173106
  dd if=/dev/zero of=sparse bs=1 count=1 seek=99999999 2> /dev/null && same size "$(stat -c %s sparse)" 100000000
  truncate -s 5 sparse 2> /dev/null && same truncated "$(stat -c %s sparse)" 5
  echo "still here" > open && exec 3< open && rm open && same "a removed file that is open" "$(cat <&3)" "still here"
  exec 3<&-
  dd if=/dev/urandom of=big bs=1M count=24 2> /dev/null && sum=$(md5sum < big)
  echo 3 > /proc/sys/vm/drop_caches
  same "read back" "$(md5sum < big)" "$sum"

  # Another user gets what the modes permit.
  mkdir -m 755 rooms && mkdir -m 700 rooms/closed && mkdir -m 1777 rooms/shared && echo x > rooms/closed/x
  user() { /bin/setpriv --reuid 1000 --regid 1000 --clear-groups sh -c "$1" 2> /dev/null; }
  user "cat rooms/closed/x" && say "a user reads what is closed"
  user "echo x > rooms/y" && say "a user writes to a directory of root"
  user "echo x > rooms/shared/own && chmod 400 rooms/shared/own" || say "a user cannot write to a shared directory"
  same "the user's file" "$(stat -c %u:%a rooms/shared/own)" 1000:400

  # Many files, $FILES of them.
  mkdir many && start=$(date +%s)
  for number in $(seq "$FILES"); do echo "$number" > "many/$number" || say "create"; done
  echo "$NAME: facts: $FILES files in $(($(date +%s) - start)) s"
  echo 3 > /proc/sys/vm/drop_caches
  same "many names" "$(ls many | wc -l)" "$FILES"
  same "many contents" "$(cat many/* | sort -n | md5sum)" "$(seq "$FILES" | md5sum)"
  rm many/1* && same "names left" "$(ls many | wc -l)" "$(seq "$FILES" | grep -vc ^1)" && rm -r many || say "rm"

  # Programs that sync.
  if command -v sqlite3 > /dev/null; then
    sqlite3 t.db "create table t(n); with recursive c(n) as (select 1 union all select n+1 from c where n<5000)
      insert into t select n from c;" && sqlite3 t.db "delete from t where n%3=0; vacuum;" || say "sqlite3"
    found=$(sqlite3 t.db 'pragma integrity_check; select count(*), sum(n) from t;' | tr '\n' ' ')
    same sqlite3 "$found" "ok 3334|8336667 "
  fi
  if command -v git > /dev/null; then
    export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a GIT_CONFIG_NOSYSTEM=1
    mkdir tree && for number in $(seq 60); do seq "$number" > "tree/$number"; done
    (cd tree && git init -q . 2> /dev/null && git add . && git commit -qm first && rm 1* && git commit -qam second &&
      git checkout -q HEAD~1 && git gc -q) || say git
    same "git" "$(cd tree && ls | wc -l; git status --porcelain; git fsck 2>&1 | grep -v '^notice')" 60
  fi
}
