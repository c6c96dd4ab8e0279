#!/bin/bash
# Stands in PATH before df, findmnt, mount and umount, under each of these names. A mount of Spinney shows a loop
# device of its own and `fuseblk.spinney` where xfstests looks for the image that it mounted and for `fuse`. Here one
# name is put in the place of the other.
work=${BASH_SOURCE[0]%/bin/*}
name=${0##*/}

# the real program of a name: the first in PATH that is none of these
real() {
    type -aP "$1" | grep -v "^$work/bin/" | head -n 1
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
        # the folder that was mounted last
        folder=$("$(real findmnt)" -rncv -S "$(shown_of "$word")" -o TARGET | tail -n 1)
        words+=("${folder:-$word}")
        ;;
    df:"$work"/*.img | findmnt:"$work"/*.img) words+=("$(shown_of "$word")") ;;
    *) words+=("$word") ;;
    esac
done

case $name in
umount) exec "$(real umount)" "${words[@]}" ;;
mount) [ $# = 0 ] || exec "$(real mount)" "${words[@]}" ;;
esac
script='s/\bfuse\(blk\)\?\.spinney\b/fuse/'
for given in "$work"/{test,scratch}.img; do
    shown=$(shown_of "$given")
    [ "$shown" = "$given" ] || script="$script;s#\\(^\\| \\)$shown\\b#\\1$given#"
done
"$(real "$name")" "${words[@]}" | sed "$script"
exit "${PIPESTATUS[0]}"
