#!/bin/sh
# install.sh ARCHIVE PREFIX [LIBDIR] - lays out the library for C: libspinney.so.0 with versions of its symbols,
# libspinney.a, spinney.h, spinney.pc and spinney(3).
#
# ARCHIVE is the libspinney_capi.a that cargo has built; the shared library is linked from it, because rustc passes a
# version script of its own and the linker takes one. LIBDIR is `lib` unless given: `lib/x86_64-linux-gnu`. DESTDIR is
# put before PREFIX, as packagers do. Needs a C compiler (CC, else cc). Called by `cargo xtask capi` and by the tests.
set -eu
archive=$1 prefix=$2 libdir=${3:-lib}
here=$(dirname "$0")
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$here/../../Cargo.toml" | head -n 1)
major=${version%%.*}
root=${DESTDIR:-}$prefix
lib=$root/$libdir
# What the archive needs of the system (`rustc --print native-static-libs`).
private="-lgcc_s -lutil -lrt -lpthread -lm -ldl -lc"

mkdir -p "$lib/pkgconfig" "$root/include" "$root/share/man/man3"
cp "$archive" "$lib/libspinney.a"
"${CC:-cc}" -shared -o "$lib/libspinney.so.$version" \
  -Wl,-soname,"libspinney.so.$major" -Wl,--version-script="$here/spinney.map" -Wl,--gc-sections \
  -Wl,-z,relro,-z,now -Wl,-z,defs \
  -Wl,--whole-archive "$archive" -Wl,--no-whole-archive $private
ln -sf "libspinney.so.$version" "$lib/libspinney.so.$major"
ln -sf "libspinney.so.$major" "$lib/libspinney.so"
cp "$here/include/spinney.h" "$root/include/spinney.h"
cp "$here/spinney.3" "$root/share/man/man3/spinney.3"
cat > "$lib/pkgconfig/spinney.pc" << END
prefix=$prefix
libdir=\${prefix}/$libdir
includedir=\${prefix}/include

Name: spinney
Description: btrfs and f2fs without root: make, read, change and check images
Version: $version
Libs: -L\${libdir} -lspinney
Libs.private: $private
Cflags: -I\${includedir}
END
