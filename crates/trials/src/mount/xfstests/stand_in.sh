#!/bin/bash
# Stands in PATH before df, findmnt, mount and umount, under each of these names. A mount of Spinney shows a loop
# device of its own and `fuseblk.spinney` where xfstests looks for the image that it mounted and for `fuse`. Here one
# name is put in the place of the other.
work=${BASH_SOURCE[0]%/bin/*}
name=${0##*/}

# the real program of a name, as `found`: the first in PATH that is none of these. (Tests mount again 10 ms after an
# unmounting began: no other programs are run for it.)
find_real() {
    local folder IFS=:
    for folder in $PATH; do
        found=$folder/$1
        [ "$folder" = "$work/bin" ] || [ ! -x "$found" ] || return 0
    done
    return 1
}

is_mounted() {
    local place rest
    while read -r _ _ _ _ place rest; do
        [ "$place" != "$1" ] || return 0
    done </proc/self/mountinfo
    return 1
}

# what the mount of an image shows as its source: the image, or the loop device behind which it is
shown_of() {
    local device
    for device in $(awk '/ - fuseblk/ { sub(/.* - /, ""); print $2 }' /proc/self/mountinfo); do
        if [ "$(cat "/sys/block/${device#/dev/}/loop/backing_file" 2>/dev/null)" = "$1" ]; then
            echo "$device"
            return
        fi
    done
    echo "$1"
}

words=()
for word; do
    case $name:$word in
    umount:"$work"/*.img)
        # where the suite mounts it, or else the folder that was mounted last
        folder=${word%.img}
        if ! is_mounted "$folder"; then
            find_real findmnt
            folder=$("$found" -rncv -S "$(shown_of "$word")" -o TARGET | tail -n 1)
        fi
        words+=("${folder:-$word}")
        ;;
    df:"$work"/*.img | findmnt:"$work"/*.img) words+=("$(shown_of "$word")") ;;
    *) words+=("$word") ;;
    esac
done

find_real "$name"
real=$found
case $name in
umount) exec "$real" "${words[@]}" ;;
mount) [ $# = 0 ] || exec "$real" "${words[@]}" ;;
esac
script='s/\bfuse\(blk\)\?\.spinney\b/fuse/'
for given in "$work"/{test,scratch}.img; do
    shown=$(shown_of "$given")
    [ "$shown" = "$given" ] || script="$script;s#\\(^\\| \\)$shown\\b#\\1$given#"
done
"$real" "${words[@]}" | sed "$script"
exit "${PIPESTATUS[0]}"
