package spinney

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/fstest"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, volume *Volume, name, text string) {
	t.Helper()
	file, err := volume.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o640)
	must(t, err)
	_, err = file.WriteAt([]byte(text), 0)
	must(t, err)
	must(t, file.Close())
}

func made(t *testing.T, format string) (*Volume, string) {
	t.Helper()
	image := filepath.Join(t.TempDir(), "a.img")
	volume, err := Make(image, format, 64<<20)
	must(t, err)
	must(t, volume.Mkdir("dir", 0o755))
	must(t, volume.Mkdir("dir/empty", 0o700))
	write(t, volume, "dir/file", "hello")
	write(t, volume, "top", "one")
	must(t, volume.Symlink("dir/file", "link"))
	return volume, image
}

func TestFS(t *testing.T) {
	for _, format := range []string{"btrfs", "f2fs"} {
		volume, image := made(t, format)
		must(t, fstest.TestFS(volume, "dir", "dir/empty", "dir/file", "top", "link"))
		must(t, volume.Close())
		volume, err := Open(image, ReadOnly)
		must(t, err)
		must(t, fstest.TestFS(volume, "dir/file", "link"))
		if err := volume.Mkdir("no", 0o755); !errors.Is(err, fs.ErrPermission) && err == nil {
			t.Fatal("a read-only volume was changed")
		}
		must(t, volume.Close())
	}
}

func TestErrors(t *testing.T) {
	volume, image := made(t, "btrfs")
	_, err := volume.Open("none")
	if !errors.Is(err, fs.ErrNotExist) || err.Error() != "open none: none: no such file or directory" {
		t.Fatal(err)
	}
	if err := volume.Mkdir("dir", 0o755); !errors.Is(err, fs.ErrExist) {
		t.Fatal(err)
	}
	for _, name := range []string{"/top", "dir/../top", "a\x00b", ""} {
		if _, err := volume.Open(name); err == nil {
			t.Fatalf("%q was opened", name)
		}
	}
	file, err := volume.OpenFile("top", os.O_RDONLY, 0)
	must(t, err)
	if _, err := file.ReadAt(make([]byte, 1), -1); err == nil {
		t.Fatal("a negative offset")
	}
	must(t, file.Close())
	if err := file.Close(); !errors.Is(err, fs.ErrClosed) {
		t.Fatal(err)
	}
	if _, err := file.Read(make([]byte, 1)); err == nil {
		t.Fatal("a closed file was read")
	}
	must(t, volume.Close())
	if _, err := volume.Stat("top"); err == nil {
		t.Fatal("a closed volume was read")
	}
	must(t, os.Truncate(image, 1<<20))
	var failure *Error
	if _, err := Open(image, ReadOnly); !errors.As(err, &failure) || failure.Message == "" {
		t.Fatal(err)
	}
}

func TestChanges(t *testing.T) {
	volume, _ := made(t, "btrfs")
	must(t, volume.CreateSubvolume("sub"))
	write(t, volume, "sub/f", "before")
	must(t, volume.Snapshot("sub", "old", ReadOnly))
	write(t, volume, "sub/f", "behind")
	data, err := fs.ReadFile(volume, "old/f")
	must(t, err)
	if string(data) != "before" {
		t.Fatalf("%q", data)
	}
	must(t, volume.Rename("top", "dir/top"))
	must(t, volume.Remove("dir/top"))
	must(t, volume.Remove("dir/empty"))
	file, err := volume.OpenFile("dir/file", os.O_RDWR, 0)
	must(t, err)
	must(t, file.Truncate(4))
	must(t, file.Sync())
	end, err := file.Seek(-2, io.SeekEnd)
	must(t, err)
	rest, err := io.ReadAll(file)
	must(t, err)
	if end != 2 || string(rest) != "ll" {
		t.Fatal(end, rest)
	}
	must(t, file.Close())
	must(t, volume.Close())
}

func TestGoroutines(t *testing.T) {
	volume, _ := made(t, "btrfs")
	var group sync.WaitGroup
	for number := 0; number < 8; number++ {
		group.Add(1)
		go func(number int) {
			defer group.Done()
			name := fmt.Sprintf("own-%d", number)
			text := bytes.Repeat([]byte(name), 1000)
			for round := 0; round < 50; round++ {
				file, err := volume.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
				if err != nil {
					t.Error(err)
					return
				}
				_, err = file.WriteAt(text, int64(round))
				read := make([]byte, len(text))
				_, err2 := file.ReadAt(read, int64(round))
				if err != nil || err2 != nil || !bytes.Equal(read, text) {
					t.Error(err, err2)
				}
				_, err = volume.Stat(name + "-none")
				if err == nil || err.Error() != "stat "+name+"-none: "+name+"-none: no such file or directory" {
					t.Error(err)
				}
				file.Close()
			}
		}(number)
	}
	group.Wait()
	must(t, volume.Close())
}

// failures reads everything in an image; the result is the failures, by path.
func failures(image string) map[string]*Error {
	found := map[string]*Error{}
	add := func(name string, err error) {
		var failure *Error
		if errors.As(err, &failure) {
			found[name] = failure
		}
	}
	volume, err := Open(image, ReadOnly)
	if err != nil {
		add("", err)
		return found
	}
	defer volume.Close()
	left := 40
	fs.WalkDir(volume, ".", func(name string, entry fs.DirEntry, err error) error {
		if left--; left < 0 {
			return fs.SkipAll
		}
		if err != nil {
			add(name, err)
			return nil
		}
		if entry.Type().IsRegular() {
			_, err = fs.ReadFile(volume, name)
			add(name, err)
		}
		return nil
	})
	return found
}

// The contents of these images are wrong, and their checksums are right.
func TestImagesThatLie(t *testing.T) {
	folder, program := os.Getenv("SPINNEY_HOSTILE"), os.Getenv("SPINNEY_PROGRAM")
	if folder == "" || program == "" {
		t.Skip("SPINNEY_HOSTILE and SPINNEY_PROGRAM do not name a folder of images and the program")
	}
	images, err := filepath.Glob(filepath.Join(folder, "*.img"))
	must(t, err)
	count, compared := 0, 0
	for _, image := range images {
		for name, failure := range failures(image) {
			count++
			words := []string{"cat", image, name}
			if name == "" || name == "." {
				words = []string{"ls", image}
			}
			var told bytes.Buffer
			command := exec.Command(program, words...)
			command.Stderr = &told
			command.Run()
			if failure.Errno != syscall.EIO || told.Len() == 0 {
				continue
			}
			cause := strings.TrimPrefix(strings.TrimPrefix(failure.Message, name+": "), image+": ")
			if !strings.Contains(told.String(), cause) {
				t.Errorf("%s: %s: %s: %s", image, name, cause, told.String())
			}
			compared++
		}
	}
	t.Logf("%d failures, of which %d have the message of the program", count, compared)
	if compared == 0 {
		t.Fatal("no image made the program fail")
	}
}
