/* spinney.h - btrfs and f2fs without root and without the kernel: make, read, change and check images.
 *
 * Results. A call returns 0, or a number that it documents, and in the case of an error a negative errno of Linux
 * (-ENOENT). spinney_error_message() returns the text of the error, the same that the program spinney prints.
 *
 * Handles. A handle (spinney_volume and the other incomplete types) belongs to the caller until spinney_close(). A
 * closed handle, a handle of another type and a pointer that is no handle are refused with -EBADF: handles are numbers
 * of a table, not addresses. NULL is refused with -EINVAL where it is not allowed.
 *
 * Memory. A struct begins with its size in bytes, which the caller sets (sizeof) in structs that it passes: an older
 * program works with a newer library, and a newer one with an older library as long as it leaves new fields 0, else
 * -E2BIG. The library fills as many bytes as the caller has. It returns no memory that the caller has to free: texts
 * behind `const char *` in results belong to a handle, and stay until it is closed. Calls that copy a value of any
 * length return its length; with a size of 0 they copy nothing, and with one that is too small they return -ERANGE.
 *
 * Threads. All calls may be made by any thread at any time, also on the same handle. Closing a handle that another
 * thread uses is safe: its call goes on to its end. After fork() a child must not use handles of its parent. Callbacks
 * must return: no exception and no longjmp() may leave them.
 *
 * Failures of the library itself. A panic does not cross into the caller: the call returns -EIO, and all later calls on
 * the handle and on others of its volume return -EUCLEAN, until they are closed. (This needs a library that was built
 * with unwinding, as `cargo xtask capi` does.)
 *
 * Paths are bytes that end with NUL, relative to the root of the volume; a leading `/` makes no difference. All calls
 * with paths follow symbolic links inside the path, and at its end as each call says.
 */
#ifndef SPINNEY_H
#define SPINNEY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this header: major * 10000 + minor * 100 + patch. */
#define SPINNEY_VERSION 100

/* An open volume. */
typedef struct spinney_volume spinney_volume;
/* An open file of a volume. It stays usable when its name is removed, and when the handle of the volume is closed. */
typedef struct spinney_file spinney_file;
/* An open directory, for its names. */
typedef struct spinney_dir spinney_dir;
/* A list of subvolumes. */
typedef struct spinney_subvolumes spinney_subvolumes;
/* A list of differences between two subvolumes. */
typedef struct spinney_changes spinney_changes;
/* The report of a check. */
typedef struct spinney_report spinney_report;
/* A device for volumes. */
typedef struct spinney_device spinney_device;

/* ---- Progress ---- */

/* How far a long operation has come. */
typedef struct spinney_progress {
  size_t struct_size;
  uint64_t bytes;       /* bytes done */
  uint64_t bytes_total; /* an estimate of `bytes` at the end, which may change; 0 if it is not known */
  uint64_t inodes;      /* inodes, or names, that are done */
} spinney_progress;

/* Called at most every 50 ms, by any thread, but never by two at once. 0 continues, any other value cancels the
 * operation, which then returns -ECANCELED. */
typedef int (*spinney_progress_fn)(void *context, const spinney_progress *progress);

/* ---- The library ---- */

/* SPINNEY_VERSION of the library. */
uint32_t spinney_version(void);

/* The text of the last error of `handle`, or for NULL and closed handles that of the last error of this thread. Empty
 * if there was none. It stays until the next call of this function by the same thread. Never NULL. */
const char *spinney_error_message(const void *handle);

/* Closes a handle of any type; NULL is allowed. For a volume that can be written everything is made durable first. Its
 * failure is returned, and the handle is closed all the same. What was written to a file is durable with its volume, or
 * after spinney_file_sync(). The volume itself, with its lock on the image, is closed with the last handle of it and of
 * its files and directories. */
int spinney_close(void *handle);

/* ---- Open and make ---- */

/* Nothing is written. */
#define SPINNEY_READ_ONLY 1u

typedef struct spinney_open_options {
  size_t struct_size;
  uint32_t flags; /* SPINNEY_READ_ONLY or 0 */
  uint32_t uid;   /* owner of files that are created */
  uint32_t gid;
  uint32_t reserved;   /* 0 */
  const char *options; /* as `mount -o`: "ro,noatime,subvol=home,compress=zstd"; or NULL */
} spinney_open_options;

/* Opens the volume in an image file or on an unmounted block device, and recognises its format. `image` is a locator:
 * a path; `IMAGE?offset=N&size=M` for a part of it; `A,B` for a volume on several devices. `options` may be NULL: to
 * read and write. */
int spinney_open(const char *image, const spinney_open_options *options, spinney_volume **volume);

typedef struct spinney_make_options {
  size_t struct_size;
  uint64_t size; /* bytes of the volume; 0: those of the device. A new file needs them. */
  uint32_t uid;  /* owner of the root directory */
  uint32_t gid;
  const char *label;   /* or NULL */
  const uint8_t *uuid; /* 16 bytes, or NULL for a random one */
  const char *options; /* those of the format: "csum=xxhash64,nodesize=16K"; or NULL */
} spinney_make_options;

/* Makes a volume of `format` ("btrfs", "f2fs") in an image file or on an unmounted block device, and opens it for
 * writing. What was there is lost. `options` may be NULL. */
int spinney_make(const char *image, const char *format, const spinney_make_options *options, spinney_volume **volume);

/* ---- Devices of the caller ---- */

/* A device that the caller provides. The library calls it by any thread, also by several at once. Each function returns
 * 0, or a negative errno. `write`, `flush` and `discard` may be NULL for a device that is read-only. */
typedef struct spinney_device_calls {
  size_t struct_size;
  const char *name; /* for messages */
  uint64_t size;    /* bytes of the device */
  /* Fills the whole buffer. */
  int (*read)(void *context, uint64_t offset, void *buffer, size_t length);
  /* NULL: the device is read-only. */
  int (*write)(void *context, uint64_t offset, const void *buffer, size_t length);
  /* Makes durable all writes that have returned. NULL: there is nothing to do. */
  int (*flush)(void *context);
  /* These bytes are no longer needed. NULL: there is nothing to do. */
  int (*discard)(void *context, uint64_t offset, uint64_t length);
  /* Called once, when the library will not use `context` again: after the handles of the device and of all volumes on
   * it are closed. May be NULL. */
  void (*release)(void *context);
} spinney_device_calls;

/* Makes a device of the caller's functions. */
int spinney_device_new(const spinney_device_calls *calls, void *context, spinney_device **device);

/* Makes a device in memory, of `size` bytes that are 0. */
int spinney_device_memory(uint64_t size, spinney_device **device);

/* As spinney_open(), for a volume on these devices. Their handles may be closed afterwards. */
int spinney_open_devices(spinney_device *const *devices, size_t count, const spinney_open_options *options,
                         spinney_volume **volume);

/* As spinney_make(), for these devices. */
int spinney_make_devices(spinney_device *const *devices, size_t count, const char *format,
                         const spinney_make_options *options, spinney_volume **volume);

/* ---- The volume ---- */

typedef struct spinney_info {
  size_t struct_size;
  char format[16]; /* "btrfs", "f2fs" */
  uint8_t uuid[16];
  uint64_t total_bytes;
  uint64_t free_bytes; /* as df(1) shows them */
  uint32_t block_bytes;
  uint32_t flags; /* SPINNEY_READ_ONLY or 0 */
} spinney_info;

int spinney_get_info(spinney_volume *volume, spinney_info *info);

/* Copies the label, which has no NUL at its end. */
int64_t spinney_get_label(spinney_volume *volume, char *buffer, size_t size);

/* Makes all changes durable. */
int spinney_sync(spinney_volume *volume);

/* ---- Files ---- */

#define SPINNEY_FILE_READ 1u
#define SPINNEY_FILE_WRITE 2u
#define SPINNEY_FILE_APPEND 4u   /* every write goes to the end */
#define SPINNEY_FILE_CREATE 8u   /* creates the file if there is none */
#define SPINNEY_FILE_NEW 16u     /* creates the file; -EEXIST if the name is taken */
#define SPINNEY_FILE_TRUNCATE 32u

/* Opens a file; `mode` has the permission bits of one that is created. Follows symbolic links. */
int spinney_file_open(spinney_volume *volume, const char *path, uint32_t flags, uint32_t mode, spinney_file **file);

/* Reads at a position. Returns how many bytes were read: fewer than `length` only at the end of the file. */
int64_t spinney_file_read(spinney_file *file, void *buffer, size_t length, int64_t offset);

/* Writes all of the buffer at a position, and returns `length`. */
int64_t spinney_file_write(spinney_file *file, const void *buffer, size_t length, int64_t offset);

/* Cuts the file, or extends it with a hole. */
int spinney_file_truncate(spinney_file *file, int64_t length);

/* Makes the file durable with the names that lead to it; with SPINNEY_DATA_ONLY its data, and what reading it needs. */
#define SPINNEY_DATA_ONLY 1u
int spinney_file_sync(spinney_file *file, uint32_t flags);

/* Seconds since 1970, and nanoseconds. */
typedef struct spinney_time {
  int64_t seconds;
  uint32_t nanoseconds;
  uint32_t reserved; /* 0 */
} spinney_time;

typedef struct spinney_attributes {
  size_t struct_size;
  uint64_t ino;       /* a number that no other node of the volume has */
  uint64_t subvolume; /* number of the subvolume; 0 where the format has none */
  uint64_t size;
  uint64_t blocks; /* of 512 bytes */
  uint32_t mode;   /* type and permissions, as st_mode */
  uint32_t nlink;
  uint32_t uid;
  uint32_t gid;
  uint32_t rdev;
  uint32_t block_bytes;
  spinney_time atime;
  spinney_time mtime;
  spinney_time ctime;
  spinney_time btime;
} spinney_attributes;

int spinney_file_stat(spinney_file *file, spinney_attributes *attributes);

/* ---- Directories ---- */

typedef struct spinney_entry {
  size_t struct_size;
  uint64_t ino;
  uint32_t type; /* as st_mode & S_IFMT */
  uint32_t name_length;
  char name[256]; /* with NUL */
} spinney_entry;

/* Opens a directory to read its names; `.` and `..` are left out. */
int spinney_dir_open(spinney_volume *volume, const char *path, spinney_dir **dir);

/* Reads the next name: returns 1, or 0 at the end. */
int spinney_dir_read(spinney_dir *dir, spinney_entry *entry);

/* ---- Names ---- */

int spinney_mkdir(spinney_volume *volume, const char *path, uint32_t mode);
int spinney_rmdir(spinney_volume *volume, const char *path);
int spinney_unlink(spinney_volume *volume, const char *path);
/* Replaces `to` if it is there, as rename(2). */
int spinney_rename(spinney_volume *volume, const char *from, const char *to);
/* Gives the node named `path` the further name `link`. */
int spinney_link(spinney_volume *volume, const char *path, const char *link);
int spinney_symlink(spinney_volume *volume, const char *target, const char *link);
/* Copies the target of a symbolic link, which has no NUL at its end. */
int64_t spinney_readlink(spinney_volume *volume, const char *path, char *buffer, size_t size);

/* ---- Attributes. Only spinney_stat() and spinney_chmod() follow a symbolic link at the end of the path. ---- */

int spinney_stat(spinney_volume *volume, const char *path, spinney_attributes *attributes);
int spinney_lstat(spinney_volume *volume, const char *path, spinney_attributes *attributes);
int spinney_chmod(spinney_volume *volume, const char *path, uint32_t mode);
/* UINT32_MAX leaves the user or the group as it is. */
int spinney_chown(spinney_volume *volume, const char *path, uint32_t uid, uint32_t gid);

/* Values for `nanoseconds`: the present time; leave the time as it is. */
#define SPINNEY_TIME_NOW 1073741823u
#define SPINNEY_TIME_OMIT 1073741822u
/* NULL stands for the present time. */
int spinney_utimens(spinney_volume *volume, const char *path, const spinney_time *atime, const spinney_time *mtime);

#define SPINNEY_XATTR_CREATE 1u  /* -EEXIST if the attribute is there */
#define SPINNEY_XATTR_REPLACE 2u /* -ENODATA if it is not */
int64_t spinney_getxattr(spinney_volume *volume, const char *path, const char *name, void *buffer, size_t size);
int spinney_setxattr(spinney_volume *volume, const char *path, const char *name, const void *value, size_t size,
                     uint32_t flags);
int spinney_removexattr(spinney_volume *volume, const char *path, const char *name);
/* Copies the names one after the other, each with NUL at its end. */
int64_t spinney_listxattr(spinney_volume *volume, const char *path, char *buffer, size_t size);

/* ---- Subvolumes (btrfs; -EOPNOTSUPP for other formats) ---- */

int spinney_subvolume_create(spinney_volume *volume, const char *path);
/* Deletes a subvolume with everything in it. */
int spinney_subvolume_delete(spinney_volume *volume, const char *path);
/* `flags` is SPINNEY_READ_ONLY or 0. */
int spinney_subvolume_set_flags(spinney_volume *volume, const char *path, uint32_t flags);
/* Makes a snapshot of the subvolume at `source`; `flags` is SPINNEY_READ_ONLY or 0. */
int spinney_snapshot(spinney_volume *volume, const char *source, const char *target, uint32_t flags);

typedef struct spinney_subvolume {
  size_t struct_size;
  uint64_t id;
  uint64_t parent; /* the subvolume that contains it; 0 for the top level */
  uint64_t generation;
  const char *path; /* from the top level, without a leading `/` */
  uint8_t uuid[16];
  uint8_t parent_uuid[16];   /* of the subvolume that it is a snapshot of, or 0 */
  uint8_t received_uuid[16]; /* its UUID at the sender, or 0 */
  spinney_time created;
  uint32_t flags;    /* SPINNEY_READ_ONLY or 0 */
  uint32_t reserved; /* 0 */
} spinney_subvolume;

int spinney_subvolumes_open(spinney_volume *volume, spinney_subvolumes **list);
/* Returns 1 with the next subvolume, or 0 at the end. */
int spinney_subvolumes_next(spinney_subvolumes *list, spinney_subvolume *subvolume);

/* ---- Differences (btrfs) ---- */

#define SPINNEY_ADDED 1u
#define SPINNEY_REMOVED 2u
#define SPINNEY_CHANGED 3u
#define SPINNEY_RENAMED 4u

typedef struct spinney_range {
  uint64_t begin;
  uint64_t end; /* the byte after the last one */
} spinney_range;

typedef struct spinney_name_change {
  uint32_t kind;     /* SPINNEY_ADDED, SPINNEY_REMOVED or SPINNEY_RENAMED */
  uint32_t reserved; /* 0 */
  const char *from;  /* the old name of one that was removed or renamed, else NULL */
  const char *to;    /* the new name of one that was added or renamed, else NULL */
} spinney_name_change;

typedef struct spinney_change {
  size_t struct_size;
  uint64_t ino;      /* within the subvolume */
  uint32_t kind;     /* SPINNEY_ADDED, SPINNEY_REMOVED or SPINNEY_CHANGED */
  uint32_t type;     /* as st_mode & S_IFMT */
  const char *path;  /* of one that was changed: a path in the new subvolume; else NULL */
  uint32_t metadata; /* 1 if owner, permissions, attributes or, except for a directory, times differ */
  uint32_t resized;  /* 1 if size_before and size_after differ */
  uint64_t size_before;
  uint64_t size_after;
  const spinney_range *data; /* bytes of a file that may differ */
  size_t data_count;
  const spinney_name_change *names;
  size_t name_count;
} spinney_change;

/* Collects the differences between two subvolumes. Only blocks that they do not share are read. Syncs first. */
int spinney_changes_open(spinney_volume *volume, const char *old_subvolume, const char *new_subvolume,
                         spinney_changes **changes);
/* Returns 1 with the next change, or 0 at the end. */
int spinney_changes_next(spinney_changes *changes, spinney_change *change);

/* ---- Send and receive (btrfs) ---- */

#define SPINNEY_SEND_COMPRESSED 1u /* sends compressed data as it is; needs version 2 */
#define SPINNEY_SEND_NO_DATA 2u    /* sends which bytes differ, without them */

typedef struct spinney_send_options {
  size_t struct_size;
  const char *parent;        /* a snapshot that the receiver has, or NULL */
  const char *const *clones; /* further subvolumes that the receiver has, to clone from; or NULL */
  size_t clone_count;
  uint32_t version; /* of the stream: 1 or 2; 0 is 1 */
  uint32_t flags;
} spinney_send_options;

/* Takes the next bytes of a stream: returns how many, or a negative errno. */
typedef int64_t (*spinney_write_fn)(void *context, const void *buffer, size_t length);
/* Gives the next bytes of a stream: returns how many, 0 at its end, or a negative errno. */
typedef int64_t (*spinney_read_fn)(void *context, void *buffer, size_t length);

/* Writes the send stream of a read-only subvolume to a file descriptor. `options` and `progress` may be NULL. The
 * library changes no signals: to get -EPIPE from a pipe that nobody reads, ignore SIGPIPE. */
int spinney_send(spinney_volume *volume, const char *subvolume, const spinney_send_options *options, int fd,
                 spinney_progress_fn progress, void *context);
/* The same to a function; both functions get the same context. */
int spinney_send_to(spinney_volume *volume, const char *subvolume, const spinney_send_options *options,
                    spinney_write_fn write, spinney_progress_fn progress, void *context);

/* Makes subvolumes of send streams in the directory `dir`, from a file descriptor, until the input ends. Subvolumes
 * that are complete stay, also after a failure; one that is not complete is deleted. `progress` may be NULL. */
int spinney_receive(spinney_volume *volume, const char *dir, int fd, spinney_progress_fn progress, void *context);
/* The same from a function; both functions get the same context. */
int spinney_receive_from(spinney_volume *volume, const char *dir, spinney_read_fn read, spinney_progress_fn progress,
                         void *context);

/* ---- Copies from and to the host. `progress` may be NULL. ---- */

/* Copies everything below the host directory `from` into the directory `to` of the volume, which is made if missing.
 * Owners, permissions, times, attributes, links and holes are kept. */
int spinney_import(spinney_volume *volume, const char *from, const char *to, spinney_progress_fn progress,
                   void *context);
/* Copies everything below the directory `from` of the volume into the host directory `to`, which is made if missing.
 * Nothing is written outside `to`. Set-user and set-group bits, capabilities and device nodes are left out. */
int spinney_export(spinney_volume *volume, const char *from, const char *to, spinney_progress_fn progress,
                   void *context);
/* Copies what sources hold, later ones over earlier ones: directories; archives of tar and cpio, also compressed;
 * container images (oci:DIR[:TAG], oci-archive:FILE[:TAG], docker-archive:FILE[:TAG]); images (IMAGE, IMAGE:/PATH). */
int spinney_import_contents(spinney_volume *volume, const char *const *sources, size_t count, const char *to,
                            spinney_progress_fn progress, void *context);

/* ---- Check ---- */

#define SPINNEY_CHECK_DATA 1u /* also reads all file data, and verifies its checksums */

typedef struct spinney_check_options {
  size_t struct_size;
  uint32_t flags;
  uint32_t threads; /* 0: one for each processor */
} spinney_check_options;

/* Checks a volume that nobody writes to, and writes nothing. Damage is no error: it is in the report. `options` and
 * `progress` may be NULL. */
int spinney_check(const char *image, const spinney_check_options *options, spinney_progress_fn progress, void *context,
                  spinney_report **report);
int spinney_check_devices(spinney_device *const *devices, size_t count, const spinney_check_options *options,
                          spinney_progress_fn progress, void *context, spinney_report **report);

typedef struct spinney_summary {
  size_t struct_size;
  uint64_t errors; /* findings, with those that the report leaves out because there are very many of one code */
  uint64_t inodes; /* that were checked */
  uint64_t bytes;  /* that were read */
} spinney_summary;

int spinney_report_summary(spinney_report *report, spinney_summary *summary);

typedef struct spinney_finding {
  size_t struct_size;
  const char *code;     /* its name, which does not change */
  const char *pass;     /* the part of the check that found it */
  const char *about;    /* the damage that the code stands for */
  const char *what;     /* the exact damage where the code stands for several, else "" */
  const char *path;     /* of the file, or NULL if none is known */
  const char *place;    /* where it is, for people */
  const char *expected; /* the value that would be consistent */
  const char *found;    /* the value on the device */
} spinney_finding;

/* Returns 1 with the next finding, or 0 at the end. */
int spinney_report_next(spinney_report *report, spinney_finding *finding);

#ifdef __cplusplus
}
#endif

#endif
