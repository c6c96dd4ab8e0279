# Runs xfstests' `check` where nothing stays: in mount and process namespaces of its own. The mount helper, the
# accounts that tests want and all mounts are seen here only, and end with the first process.
#
# namespace.sh WORK SUITE SYSTEM ARGUMENTS-OF-CHECK...
#   WORK    folder with local.config, helper and stand_in (where there are such), backing.device (passthrough)
#   SUITE   the built copy of xfstests
#   SYSTEM  spinney, passthrough or btrfs
set -eu
work=$1 suite=$2 system=$3
shift 3

mkdir -p "$work"/{suite,sbin,bin,tmp,test,scratch,results,accounts,backing}
chmod 755 "$work"
chmod 1777 "$work/tmp"
mountpoint -q /sys/fs/fuse/connections || mount -t fusectl none /sys/fs/fuse/connections
mount --bind "$suite" "$work/suite"

if [ -e "$work/helper" ]; then
    install -m 755 "$work/helper" "$work/sbin/mount.fuse.$system"
    sbin=$(readlink -f /sbin)
    mount -t overlay overlay -o "lowerdir=$work/sbin:$sbin" "$sbin"
fi
if [ -e "$work/stand_in" ]; then
    for program in df findmnt mount umount; do
        install -m 755 "$work/stand_in" "$work/bin/$program"
    done
fi
if [ -e "$work/backing.device" ]; then
    mount -t btrfs "$(cat "$work/backing.device")" "$work/backing"
    mkdir -p "$work"/backing/{test,scratch}
fi

for file in passwd group shadow gshadow; do
    [ -e /etc/$file ] || continue
    cp -p /etc/$file "$work/accounts/$file"
    number=61000
    for name in fsgqa fsgqa2 123456-fsgqa; do
        number=$((number + 1))
        grep -q "^$name:" /etc/$file && continue
        case $file in
        passwd) line="$name:*:$number:$number::/tmp:/bin/bash" ;;
        group) line="$name:x:$number:" ;;
        shadow) line="$name:*:19000:0:99999:7:::" ;;
        gshadow) line="$name:!::" ;;
        esac
        echo "$line" >>"$work/accounts/$file"
    done
    mount --bind "$work/accounts/$file" /etc/$file
done

mount --bind "$work/tmp" /tmp
cd "$work/suite"
export HOST_OPTIONS="$work/local.config" RESULT_BASE="$work/results" PATH="$work/bin:$PATH"
exec ./check "$@"
