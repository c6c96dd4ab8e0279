package spinney

/*
#include <spinney.h>
*/
import "C"

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"sort"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

var (
	_ fs.ReadDirFS   = (*Volume)(nil)
	_ fs.StatFS      = (*Volume)(nil)
	_ fs.File        = (*File)(nil)
	_ fs.ReadDirFile = (*dir)(nil)
	_ io.ReaderAt    = (*File)(nil)
	_ io.WriterAt    = (*File)(nil)
	_ io.Seeker      = (*File)(nil)
)

// Open opens a file or directory for reading. It follows symbolic links, which never lead out of the volume.
func (v *Volume) Open(name string) (fs.File, error) {
	info, err := v.info("open", name, true)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		entries, err := v.ReadDir(name)
		if err != nil {
			return nil, err
		}
		return &dir{info: info, entries: entries}, nil
	}
	return v.OpenFile(name, os.O_RDONLY, 0)
}

// OpenFile opens a file as os.OpenFile does.
func (v *Volume) OpenFile(name string, flags int, mode fs.FileMode) (*File, error) {
	var asked C.uint32_t
	switch flags & (os.O_RDONLY | os.O_WRONLY | os.O_RDWR) {
	case os.O_RDONLY:
		asked = C.SPINNEY_FILE_READ
	case os.O_WRONLY:
		asked = C.SPINNEY_FILE_WRITE
	default:
		asked = C.SPINNEY_FILE_READ | C.SPINNEY_FILE_WRITE
	}
	for _, pair := range []struct {
		flag  int
		asked C.uint32_t
	}{
		{os.O_APPEND, C.SPINNEY_FILE_APPEND},
		{os.O_TRUNC, C.SPINNEY_FILE_TRUNCATE},
	} {
		if flags&pair.flag != 0 {
			asked |= pair.asked
		}
	}
	if flags&os.O_CREATE != 0 {
		if flags&os.O_EXCL != 0 {
			asked |= C.SPINNEY_FILE_NEW
		} else {
			asked |= C.SPINNEY_FILE_CREATE
		}
	}
	file := &File{name: name}
	err := v.onPath("open", name, func(path *C.char) C.int {
		return C.spinney_file_open(v.handle, path, asked, C.uint32_t(mode.Perm()), &file.handle)
	})
	if err != nil {
		return nil, err
	}
	return file, nil
}

// ReadDir returns the names of a directory, sorted.
func (v *Volume) ReadDir(name string) ([]fs.DirEntry, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: fs.ErrInvalid}
	}
	var handle *C.spinney_dir
	err := v.onPath("readdir", name, func(path *C.char) C.int { return C.spinney_dir_open(v.handle, path, &handle) })
	if err != nil {
		return nil, err
	}
	defer closeHandle(unsafe.Pointer(handle))
	entries := []fs.DirEntry{}
	found := C.spinney_entry{struct_size: C.sizeof_spinney_entry}
	for {
		more, err := call(func() C.int64_t { return C.int64_t(C.spinney_dir_read(handle, &found)) })
		if err != nil {
			return entries, &fs.PathError{Op: "readdir", Path: name, Err: err}
		}
		if more == 0 {
			break
		}
		own := C.GoString(&found.name[0])
		entries = append(entries, &entry{volume: v, dir: name, name: own, kind: typeOf(uint32(found._type))})
	}
	sort.Slice(entries, func(a, b int) bool { return entries[a].Name() < entries[b].Name() })
	return entries, nil
}

// Stat returns the attributes of what a path leads to.
func (v *Volume) Stat(name string) (fs.FileInfo, error) { return v.info("stat", name, true) }

// Lstat returns the attributes of a node, also of a symbolic link.
func (v *Volume) Lstat(name string) (fs.FileInfo, error) { return v.info("lstat", name, false) }

// ReadLink returns the target of a symbolic link.
func (v *Volume) ReadLink(name string) (string, error) {
	if !fs.ValidPath(name) {
		return "", &fs.PathError{Op: "readlink", Path: name, Err: fs.ErrInvalid}
	}
	buffer := make([]byte, 4096)
	length := 0
	err := v.onPath("readlink", name, func(path *C.char) C.int {
		code := C.spinney_readlink(v.handle, path, (*C.char)(unsafe.Pointer(&buffer[0])), C.size_t(len(buffer)))
		length = int(code)
		return C.int(code)
	})
	if err != nil {
		return "", err
	}
	return string(buffer[:length]), nil
}

func (v *Volume) info(op, name string, follows bool) (fs.FileInfo, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	found := C.spinney_attributes{struct_size: C.sizeof_spinney_attributes}
	err := v.onPath(op, name, func(path *C.char) C.int {
		if follows {
			return C.spinney_stat(v.handle, path, &found)
		}
		return C.spinney_lstat(v.handle, path, &found)
	})
	if err != nil {
		return nil, err
	}
	return infoOf(path.Base(name), &found), nil
}

// File is an open file.
type File struct {
	handle *C.spinney_file
	name   string
	lock   sync.Mutex
	offset int64
}

// Close closes the file. What was written to it is durable after Volume.Sync or Volume.Close, or File.Sync before.
func (f *File) Close() error { return f.named("close", closeHandle(unsafe.Pointer(f.handle))) }

func (f *File) named(op string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, syscall.EBADF) && op == "close" {
		err = fs.ErrClosed
	}
	return &fs.PathError{Op: op, Path: f.name, Err: err}
}

// Stat returns the attributes of the file.
func (f *File) Stat() (fs.FileInfo, error) {
	found := C.spinney_attributes{struct_size: C.sizeof_spinney_attributes}
	_, err := call(func() C.int64_t { return C.int64_t(C.spinney_file_stat(f.handle, &found)) })
	if err != nil {
		return nil, f.named("stat", err)
	}
	return infoOf(path.Base(f.name), &found), nil
}

// ReadAt reads at a position.
func (f *File) ReadAt(buffer []byte, offset int64) (int, error) {
	if len(buffer) == 0 {
		return 0, nil
	}
	count, err := call(func() C.int64_t {
		return C.spinney_file_read(f.handle, unsafe.Pointer(&buffer[0]), C.size_t(len(buffer)), C.int64_t(offset))
	})
	if err != nil {
		return 0, f.named("read", err)
	}
	if int(count) < len(buffer) {
		return int(count), io.EOF
	}
	return int(count), nil
}

// WriteAt writes at a position.
func (f *File) WriteAt(data []byte, offset int64) (int, error) {
	if len(data) == 0 {
		return 0, nil
	}
	count, err := call(func() C.int64_t {
		return C.spinney_file_write(f.handle, unsafe.Pointer(&data[0]), C.size_t(len(data)), C.int64_t(offset))
	})
	return int(count), f.named("write", err)
}

// Read reads where the last read has ended.
func (f *File) Read(buffer []byte) (int, error) {
	f.lock.Lock()
	defer f.lock.Unlock()
	count, err := f.ReadAt(buffer, f.offset)
	f.offset += int64(count)
	if count > 0 && errors.Is(err, io.EOF) {
		err = nil
	}
	return count, err
}

// Seek sets where the next Read begins.
func (f *File) Seek(offset int64, whence int) (int64, error) {
	f.lock.Lock()
	defer f.lock.Unlock()
	switch whence {
	case io.SeekStart:
	case io.SeekCurrent:
		offset += f.offset
	default:
		info, err := f.Stat()
		if err != nil {
			return 0, err
		}
		offset += info.Size()
	}
	if offset < 0 {
		return 0, f.named("seek", fs.ErrInvalid)
	}
	f.offset = offset
	return offset, nil
}

// Truncate cuts the file, or extends it with a hole.
func (f *File) Truncate(size int64) error {
	_, err := call(func() C.int64_t { return C.int64_t(C.spinney_file_truncate(f.handle, C.int64_t(size))) })
	return f.named("truncate", err)
}

// Sync makes the file durable.
func (f *File) Sync() error {
	_, err := call(func() C.int64_t { return C.int64_t(C.spinney_file_sync(f.handle, 0)) })
	return f.named("sync", err)
}

// dir is an open directory, with the names that it had when it was opened.
type dir struct {
	info    fs.FileInfo
	lock    sync.Mutex
	entries []fs.DirEntry
}

func (d *dir) Stat() (fs.FileInfo, error) { return d.info, nil }
func (d *dir) Close() error               { return nil }

func (d *dir) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: d.info.Name(), Err: syscall.EISDIR}
}

func (d *dir) ReadDir(count int) ([]fs.DirEntry, error) {
	d.lock.Lock()
	defer d.lock.Unlock()
	rest := d.entries
	if count > 0 && len(rest) == 0 {
		return nil, io.EOF
	}
	if count > 0 && count < len(rest) {
		rest = rest[:count]
	}
	d.entries = d.entries[len(rest):]
	return rest, nil
}

// entry is a name of a directory.
type entry struct {
	volume    *Volume
	dir, name string
	kind      fs.FileMode
}

func (e *entry) Name() string               { return e.name }
func (e *entry) IsDir() bool                { return e.kind.IsDir() }
func (e *entry) Type() fs.FileMode          { return e.kind }
func (e *entry) Info() (fs.FileInfo, error) { return e.volume.Lstat(path.Join(e.dir, e.name)) }
func (e *entry) String() string             { return e.kind.String() + " " + e.name }

// Attributes is what FileInfo.Sys returns.
type Attributes struct {
	Ino, Subvolume, Blocks uint64
	Uid, Gid, Nlink, Rdev  uint32
	Atime, Ctime, Btime    time.Time
}

// info is what a node has.
type info struct {
	name  string
	size  int64
	mode  fs.FileMode
	mtime time.Time
	sys   Attributes
}

func (i *info) Name() string       { return i.name }
func (i *info) Size() int64        { return i.size }
func (i *info) Mode() fs.FileMode  { return i.mode }
func (i *info) ModTime() time.Time { return i.mtime }
func (i *info) IsDir() bool        { return i.mode.IsDir() }
func (i *info) Sys() any           { return &i.sys }
func (i *info) String() string     { return i.mode.String() + " " + i.name }

func infoOf(name string, found *C.spinney_attributes) fs.FileInfo {
	return &info{
		name:  name,
		size:  int64(found.size),
		mode:  modeOf(uint32(found.mode)),
		mtime: timeOf(found.mtime),
		sys: Attributes{
			Ino: uint64(found.ino), Subvolume: uint64(found.subvolume), Blocks: uint64(found.blocks),
			Uid: uint32(found.uid), Gid: uint32(found.gid), Nlink: uint32(found.nlink), Rdev: uint32(found.rdev),
			Atime: timeOf(found.atime), Ctime: timeOf(found.ctime), Btime: timeOf(found.btime),
		},
	}
}

func timeOf(found C.spinney_time) time.Time {
	return time.Unix(int64(found.seconds), int64(found.nanoseconds))
}

// modeOf returns the mode of Go for one of Linux.
func modeOf(mode uint32) fs.FileMode {
	found := fs.FileMode(mode&0o777) | typeOf(mode)
	for bit, flag := range map[uint32]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if mode&bit != 0 {
			found |= flag
		}
	}
	return found
}

func typeOf(mode uint32) fs.FileMode {
	switch mode & 0o170000 {
	case 0o040000:
		return fs.ModeDir
	case 0o120000:
		return fs.ModeSymlink
	case 0o060000:
		return fs.ModeDevice
	case 0o020000:
		return fs.ModeDevice | fs.ModeCharDevice
	case 0o010000:
		return fs.ModeNamedPipe
	case 0o140000:
		return fs.ModeSocket
	}
	return 0
}
