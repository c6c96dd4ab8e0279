#!/bin/bash
# Called by mount(8) as `mount.fuse.spinney SOURCE DIR [-o OPTIONS] ...`.
source=$1 folder=$2
shift 2
options=
while [ $# -gt 0 ]; do
    case $1 in
    -o) options=$2 && shift ;;
    -t | -N) shift ;;
    esac
    shift
done
case ,$options, in
# what `mount -o remount,... DIR` does, which calls no helper
*,remount,*) exec mount -i -o "$options" "$folder" ;;
esac
exec "@PROGRAM@" mount --log "@WORK@/server.log" ${options:+-o "$options"} "$source" "$folder"
