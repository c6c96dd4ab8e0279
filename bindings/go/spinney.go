// Package spinney reads and writes btrfs and f2fs images without root and without the kernel, through the C library
// libspinney.
//
// A Volume is an fs.FS, an fs.ReadDirFS and an fs.StatFS (and an fs.ReadLinkFS of Go 1.25), so that fs.WalkDir,
// http.FS and others read from images:
//
//	volume, err := spinney.Open("disk.img", spinney.ReadOnly)
//	if err != nil { ... }
//	defer volume.Close()
//	data, err := fs.ReadFile(volume, "etc/passwd")
//
// All methods may be called by any goroutine. Building needs cgo, a C compiler, and the spinney.pc of libspinney.
package spinney

/*
#cgo pkg-config: spinney
#include <stdlib.h>
#include <spinney.h>
*/
import "C"

import (
	"io/fs"
	"runtime"
	"strings"
	"syscall"
	"unsafe"
)

// ReadOnly opens a volume for reading, or makes a snapshot that cannot be changed.
const ReadOnly = C.SPINNEY_READ_ONLY

// Error is a failure of the library: a number of Linux, and the message that the program spinney prints.
type Error struct {
	Errno   syscall.Errno
	Message string
}

func (e *Error) Error() string { return e.Message }

// Unwrap returns the number, so that errors.Is(err, fs.ErrNotExist) and others work.
func (e *Error) Unwrap() error { return e.Errno }

// call makes a call, and returns its result and its error. The message belongs to the thread, so the goroutine stays
// on it until the message is copied.
func call(made func() C.int64_t) (int64, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	code := int64(made())
	if code < 0 {
		return 0, &Error{syscall.Errno(-code), C.GoString(C.spinney_error_message(nil))}
	}
	return code, nil
}

// texts copies texts for C. A text with a NUL cannot be copied.
func texts(from ...string) ([]*C.char, func(), error) {
	for _, text := range from {
		if strings.IndexByte(text, 0) >= 0 {
			return nil, nil, &Error{syscall.EINVAL, "a name with a NUL"}
		}
	}
	copies := make([]*C.char, len(from))
	for i, text := range from {
		copies[i] = C.CString(text)
	}
	return copies, func() {
		for _, text := range copies {
			C.free(unsafe.Pointer(text))
		}
	}, nil
}

// Volume is an open volume.
type Volume struct {
	handle *C.spinney_volume
}

// Open opens the volume in an image file or on a block device; flags is ReadOnly or 0.
func Open(image string, flags uint32) (*Volume, error) {
	copies, free, err := texts(image)
	if err != nil {
		return nil, err
	}
	defer free()
	options := C.spinney_open_options{struct_size: C.sizeof_spinney_open_options, flags: C.uint32_t(flags)}
	volume := new(Volume)
	_, err = call(func() C.int64_t { return C.int64_t(C.spinney_open(copies[0], &options, &volume.handle)) })
	if err != nil {
		return nil, err
	}
	return volume, nil
}

// Make makes a volume of a format ("btrfs", "f2fs") of size bytes, and opens it. What was there is lost.
func Make(image, format string, size uint64) (*Volume, error) {
	copies, free, err := texts(image, format)
	if err != nil {
		return nil, err
	}
	defer free()
	options := C.spinney_make_options{struct_size: C.sizeof_spinney_make_options, size: C.uint64_t(size)}
	volume := new(Volume)
	_, err = call(func() C.int64_t {
		return C.int64_t(C.spinney_make(copies[0], copies[1], &options, &volume.handle))
	})
	if err != nil {
		return nil, err
	}
	return volume, nil
}

// Close makes all changes durable and closes the volume.
func (v *Volume) Close() error { return closeHandle(unsafe.Pointer(v.handle)) }

func closeHandle(handle unsafe.Pointer) error {
	_, err := call(func() C.int64_t { return C.int64_t(C.spinney_close(handle)) })
	return err
}

// Sync makes all changes durable.
func (v *Volume) Sync() error {
	_, err := call(func() C.int64_t { return C.int64_t(C.spinney_sync(v.handle)) })
	return err
}

// onPath makes a call with one path, and names operation and path in its error.
func (v *Volume) onPath(op, name string, made func(path *C.char) C.int) error {
	copies, free, err := texts(name)
	if err == nil {
		defer free()
		_, err = call(func() C.int64_t { return C.int64_t(made(copies[0])) })
	}
	if err != nil {
		return &fs.PathError{Op: op, Path: name, Err: err}
	}
	return nil
}

// onPaths makes a call with two paths.
func (v *Volume) onPaths(op, from, to string, made func(from, to *C.char) C.int) error {
	copies, free, err := texts(from, to)
	if err == nil {
		defer free()
		_, err = call(func() C.int64_t { return C.int64_t(made(copies[0], copies[1])) })
	}
	if err != nil {
		return &fs.PathError{Op: op, Path: to, Err: err}
	}
	return nil
}

// Mkdir makes a directory.
func (v *Volume) Mkdir(name string, mode fs.FileMode) error {
	return v.onPath("mkdir", name, func(path *C.char) C.int {
		return C.spinney_mkdir(v.handle, path, C.uint32_t(mode.Perm()))
	})
}

// Remove removes a file, or an empty directory.
func (v *Volume) Remove(name string) error {
	return v.onPath("remove", name, func(path *C.char) C.int {
		if code := C.spinney_unlink(v.handle, path); code != -C.int(syscall.EISDIR) {
			return code
		}
		return C.spinney_rmdir(v.handle, path)
	})
}

// Rename gives a node another name, and replaces a file that has it.
func (v *Volume) Rename(from, to string) error {
	return v.onPaths("rename", from, to, func(from, to *C.char) C.int {
		return C.spinney_rename(v.handle, from, to)
	})
}

// Symlink makes a symbolic link that leads to target.
func (v *Volume) Symlink(target, name string) error {
	return v.onPaths("symlink", target, name, func(target, name *C.char) C.int {
		return C.spinney_symlink(v.handle, target, name)
	})
}

// CreateSubvolume makes an empty subvolume (btrfs).
func (v *Volume) CreateSubvolume(name string) error {
	return v.onPath("create subvolume", name, func(path *C.char) C.int {
		return C.spinney_subvolume_create(v.handle, path)
	})
}

// Snapshot makes a snapshot of the subvolume source (btrfs); flags is ReadOnly or 0.
func (v *Volume) Snapshot(source, target string, flags uint32) error {
	return v.onPaths("snapshot", source, target, func(source, target *C.char) C.int {
		return C.spinney_snapshot(v.handle, source, target, C.uint32_t(flags))
	})
}
