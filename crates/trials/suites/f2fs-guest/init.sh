#!/bin/sh
# /init of the guest that run.sh boots: loads the modules, runs /command, writes what it left in /results, its exit
# status and the kernel's messages as a tar archive to the first disk, and powers off. The other disks are /dev/vdb
# and on, in the order of run.sh's options. With root=DEVICE on the kernel's command line it starts the system on that.
export PATH=/bin:/sbin:/usr/bin:/usr/sbin HOME=/
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mount -t tmpfs tmpfs /tmp
loaded=
load() { # load LIST: loads the modules of a list that are not loaded yet
  while read -r module; do
    case " $loaded " in *" $module "*) continue ;; esac
    insmod "/modules/$module" || echo "guest: $module was not loaded"
    loaded="$loaded $module"
  done < "/modules/$1"
}
load order
root= rootflags=
for word in $(cat /proc/cmdline); do
  case $word in
    net)
      load net
      ifconfig lo 127.0.0.1 up && ifconfig eth0 10.0.2.15 netmask 255.255.255.0 up || echo "guest: no network" ;;
    fs) load fs ;;
    root=*) root=${word#root=} ;;
    rootflags=*) rootflags=${word#rootflags=} ;;
  esac
done
if [ -n "$root" ]; then
  mount -t btrfs -o "rw${rootflags:+,$rootflags}" "$root" /mnt || { echo "guest: $root was not mounted"; poweroff -f; }
  mount --move /dev /mnt/dev && mount --move /proc /mnt/proc && mount --move /sys /mnt/sys
  exec switch_root -c /dev/console /mnt /sbin/init
fi
mkdir -p /results
cd /results || poweroff -f
sh /command
echo $? > /results/status
dmesg > /results/dmesg
tar -C /results -c -f /dev/vda .
sync
poweroff -f
