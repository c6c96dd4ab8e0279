/* every_call.c DIR - makes each call of the header once at least, and compares its result. Prints `done`. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <spinney.h>

static int line;
#define MUST(condition)                                                                                  \
  do {                                                                                                   \
    line = __LINE__;                                                                                     \
    if (!(condition)) {                                                                                  \
      fprintf(stderr, "line %d: %s: %s\n", line, #condition, spinney_error_message(NULL));               \
      exit(1);                                                                                           \
    }                                                                                                    \
  } while (0)

struct stream {
  unsigned char *bytes;
  size_t length, at, room;
  int calls;
};

static int64_t put(void *context, const void *buffer, size_t length) {
  struct stream *stream = context;
  if (stream->length + length > stream->room) {
    stream->room = 2 * (stream->length + length);
    stream->bytes = realloc(stream->bytes, stream->room);
  }
  memcpy(stream->bytes + stream->length, buffer, length);
  stream->length += length;
  return (int64_t)length;
}

static int64_t get(void *context, void *buffer, size_t length) {
  struct stream *stream = context;
  size_t rest = stream->length - stream->at;
  if (length > rest)
    length = rest;
  memcpy(buffer, stream->bytes + stream->at, length);
  stream->at += length;
  return (int64_t)length;
}

static int64_t refuse(void *context, const void *buffer, size_t length) {
  (void)context, (void)buffer, (void)length;
  return -ENOSPC;
}

static int count_calls(void *context, const spinney_progress *progress) {
  struct stream *stream = context;
  if (progress->struct_size != sizeof *progress)
    return 1;
  stream->calls++;
  return 0;
}

static int cancel(void *context, const spinney_progress *progress) {
  (void)context, (void)progress;
  return 1;
}

static void files(spinney_volume *volume) {
  spinney_attributes found = {.struct_size = sizeof found};
  spinney_time then = {.seconds = 1234567890, .nanoseconds = 5};
  spinney_time omit = {.nanoseconds = SPINNEY_TIME_OMIT};
  spinney_entry entry = {.struct_size = sizeof entry};
  spinney_file *file;
  spinney_dir *dir;
  char buffer[100];

  MUST(spinney_mkdir(volume, "dir", 0700) == 0);
  MUST(spinney_file_open(volume, "dir/file", SPINNEY_FILE_READ | SPINNEY_FILE_WRITE | SPINNEY_FILE_CREATE, 0640,
                         &file) == 0);
  MUST(spinney_file_write(file, "hello", 5, 3) == 5);
  MUST(spinney_file_read(file, buffer, sizeof buffer, 0) == 8 && memcmp(buffer, "\0\0\0hello", 8) == 0);
  MUST(spinney_file_read(file, buffer, sizeof buffer, -1) == -EINVAL);
  MUST(spinney_file_truncate(file, 4) == 0 && spinney_file_truncate(file, -4) == -EINVAL);
  MUST(spinney_file_sync(file, 0) == 0 && spinney_file_sync(file, SPINNEY_DATA_ONLY) == 0);
  MUST(spinney_file_stat(file, &found) == 0 && found.size == 4 && found.mode == 0100640);
  MUST(spinney_link(volume, "dir/file", "dir/second") == 0 && spinney_symlink(volume, "file", "dir/link") == 0);
  MUST(spinney_readlink(volume, "dir/link", NULL, 0) == 4);
  MUST(spinney_readlink(volume, "dir/link", buffer, 3) == -ERANGE);
  MUST(spinney_readlink(volume, "dir/link", buffer, sizeof buffer) == 4 && memcmp(buffer, "file", 4) == 0);
  MUST(spinney_chmod(volume, "dir/link", 0600) == 0 && spinney_chown(volume, "dir/file", 7, UINT32_MAX) == 0);
  MUST(spinney_utimens(volume, "dir/file", &omit, &then) == 0);
  MUST(spinney_stat(volume, "dir/link", &found) == 0 && found.mode == 0100600 && found.uid == 7 && found.gid == 0);
  MUST(found.nlink == 2 && found.mtime.seconds == 1234567890 && found.mtime.nanoseconds == 5);
  MUST(spinney_lstat(volume, "dir/link", &found) == 0 && (found.mode & 0170000) == 0120000);
  MUST(spinney_setxattr(volume, "dir/file", "user.a", "value", 5, SPINNEY_XATTR_CREATE) == 0);
  MUST(spinney_setxattr(volume, "dir/file", "user.a", "value", 5, SPINNEY_XATTR_CREATE) == -EEXIST);
  MUST(spinney_getxattr(volume, "dir/file", "user.a", buffer, sizeof buffer) == 5 && memcmp(buffer, "value", 5) == 0);
  MUST(spinney_listxattr(volume, "dir/file", buffer, sizeof buffer) == 7 && strcmp(buffer, "user.a") == 0);
  MUST(spinney_removexattr(volume, "dir/file", "user.a") == 0);
  MUST(spinney_getxattr(volume, "dir/file", "user.a", NULL, 0) == -ENODATA);
  MUST(spinney_unlink(volume, "dir/second") == 0 && spinney_rename(volume, "dir/link", "dir/moved") == 0);
  MUST(spinney_dir_open(volume, "dir", &dir) == 0);
  MUST(spinney_dir_read(dir, &entry) == 1 && strcmp(entry.name, "file") == 0 && entry.type == 0100000);
  MUST(spinney_dir_read(dir, &entry) == 1 && strcmp(entry.name, "moved") == 0 && entry.name_length == 5);
  MUST(spinney_dir_read(dir, &entry) == 0 && spinney_close(dir) == 0 && spinney_close(file) == 0);
  MUST(spinney_rmdir(volume, "dir") == -ENOTEMPTY);
  MUST(strcmp(spinney_error_message(volume), "dir: directory not empty") == 0);
  MUST(spinney_mkdir(volume, "empty", 0755) == 0 && spinney_rmdir(volume, "empty") == 0);
}

static void subvolumes(spinney_volume *volume) {
  spinney_subvolume row = {.struct_size = sizeof row};
  spinney_change change = {.struct_size = sizeof change};
  spinney_subvolumes *list;
  spinney_changes *changes;
  spinney_file *file;

  MUST(spinney_subvolume_create(volume, "sub") == 0);
  MUST(spinney_file_open(volume, "sub/f", SPINNEY_FILE_WRITE | SPINNEY_FILE_NEW, 0644, &file) == 0);
  MUST(spinney_file_write(file, "one", 3, 0) == 3);
  MUST(spinney_snapshot(volume, "sub", "monday", SPINNEY_READ_ONLY) == 0);
  MUST(spinney_file_write(file, "longer", 6, 0) == 6 && spinney_close(file) == 0);
  MUST(spinney_rename(volume, "sub/f", "sub/g") == 0 && spinney_snapshot(volume, "sub", "tuesday", 0) == 0);
  MUST(spinney_subvolume_set_flags(volume, "tuesday", SPINNEY_READ_ONLY) == 0);
  MUST(spinney_subvolumes_open(volume, &list) == 0);
  MUST(spinney_subvolumes_next(list, &row) == 1 && strcmp(row.path, "sub") == 0 && row.flags == 0);
  MUST(spinney_subvolumes_next(list, &row) == 1 && strcmp(row.path, "monday") == 0);
  MUST(row.flags == SPINNEY_READ_ONLY && row.parent == 5 && row.created.seconds > 0);
  MUST(spinney_subvolumes_next(list, &row) == 1 && spinney_subvolumes_next(list, &row) == 0);
  MUST(spinney_close(list) == 0);
  MUST(spinney_changes_open(volume, "monday", "tuesday", &changes) == 0);
  do {
    MUST(spinney_changes_next(changes, &change) == 1);
  } while (change.type != 0100000);
  MUST(change.kind == SPINNEY_CHANGED && strcmp(change.path, "g") == 0 && change.resized == 1);
  MUST(change.size_before == 3 && change.size_after == 6 && change.data_count == 1 && change.data[0].end >= 6);
  MUST(change.name_count == 1 && change.names[0].kind == SPINNEY_RENAMED);
  MUST(strcmp(change.names[0].from, "f") == 0 && strcmp(change.names[0].to, "g") == 0);
  MUST(spinney_changes_next(changes, &change) == 0 && spinney_close(changes) == 0);
}

static void streams(spinney_volume *volume, const char *dir) {
  spinney_send_options options = {.struct_size = sizeof options, .parent = "monday", .version = 2};
  struct stream stream = {0};
  spinney_device *device;
  spinney_volume *other;
  char path[4096];
  int fd;

  MUST(spinney_send_to(volume, "monday", NULL, refuse, NULL, NULL) == -ENOSPC);
  MUST(spinney_send_to(volume, "sub", NULL, put, NULL, &stream) == -EINVAL);
  MUST(strstr(spinney_error_message(volume), "only read-only ones are sent") != NULL);
  stream.length = 0;
  MUST(spinney_send_to(volume, "monday", NULL, put, count_calls, &stream) == 0 && stream.calls > 0);
  MUST(spinney_device_memory(64u << 20, &device) == 0);
  MUST(spinney_make_devices(&device, 1, "btrfs", NULL, &other) == 0);
  MUST(spinney_receive_from(other, "/", get, NULL, &stream) == 0);
  snprintf(path, sizeof path, "%s/stream", dir);
  fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
  MUST(fd >= 0 && spinney_send(volume, "tuesday", &options, fd, NULL, NULL) == 0);
  MUST(lseek(fd, 0, SEEK_SET) == 0 && spinney_receive(other, "/", fd, NULL, NULL) == 0 && close(fd) == 0);
  MUST(spinney_receive(other, "/", fd, NULL, NULL) == -EBADF);
  MUST(spinney_subvolume_delete(other, "tuesday") == 0);
  MUST(spinney_sync(other) == 0 && spinney_close(other) == 0 && spinney_close(device) == 0);
  free(stream.bytes);
}

static void copies(spinney_volume *volume, const char *dir) {
  char path[4096], below[5000];
  const char *sources[1];
  spinney_attributes found = {.struct_size = sizeof found};
  FILE *out;

  snprintf(path, sizeof path, "%s/tree", dir);
  MUST(spinney_export(volume, "dir", path, NULL, NULL) == 0);
  snprintf(below, sizeof below, "%s/file", path);
  MUST(access(below, R_OK) == 0);
  MUST(spinney_import(volume, path, "back", NULL, NULL) == 0);
  MUST(spinney_stat(volume, "back/file", &found) == 0 && found.size == 4);
  snprintf(below, sizeof below, "cd '%s' && tar cf ../tree.tar .", path);
  MUST(system(below) == 0);
  snprintf(below, sizeof below, "%s/tree.tar", dir);
  sources[0] = below;
  MUST(spinney_import_contents(volume, sources, 1, "from-tar", NULL, NULL) == 0);
  MUST(spinney_stat(volume, "from-tar/file", &found) == 0 && found.size == 4);
  out = fopen(below, "w");
  MUST(out != NULL && fputs("no archive", out) >= 0 && fclose(out) == 0);
  MUST(spinney_import_contents(volume, sources, 1, "from-tar", NULL, NULL) < 0);
}

int main(int argc, char **argv) {
  spinney_make_options make = {.struct_size = sizeof make, .size = 128u << 20, .label = "ada"};
  spinney_open_options options = {.struct_size = sizeof options, .options = "ro,noatime"};
  spinney_check_options check = {.struct_size = sizeof check, .flags = SPINNEY_CHECK_DATA, .threads = 1};
  spinney_summary summary = {.struct_size = sizeof summary};
  spinney_finding finding = {.struct_size = sizeof finding};
  spinney_info info = {.struct_size = sizeof info};
  struct stream calls = {0};
  spinney_report *report;
  spinney_device *device;
  spinney_volume *volume;
  char image[4096], label[300];

  (void)argc;
  make.options = "csum=sha256";
  MUST(spinney_version() == SPINNEY_VERSION);
  snprintf(image, sizeof image, "%s/every.img", argv[1]);
  unlink(image);
  MUST(spinney_make(image, "btrfs", &make, &volume) == 0);
  MUST(spinney_get_info(volume, &info) == 0 && strcmp(info.format, "btrfs") == 0 && info.flags == 0);
  MUST(spinney_get_label(volume, label, sizeof label) == 3 && memcmp(label, "ada", 3) == 0);
  files(volume);
  subvolumes(volume);
  streams(volume, argv[1]);
  copies(volume, argv[1]);
  MUST(spinney_sync(volume) == 0 && spinney_close(volume) == 0);
  MUST(spinney_open(image, &options, &volume) == 0 && spinney_get_info(volume, &info) == 0);
  MUST(info.flags == SPINNEY_READ_ONLY && spinney_mkdir(volume, "x", 0755) == -EROFS && spinney_close(volume) == 0);
  MUST(spinney_check(image, &check, cancel, NULL, &report) == -ECANCELED || spinney_close(report) == 0);
  MUST(spinney_check(image, &check, count_calls, &calls, &report) == 0 && calls.calls > 0);
  MUST(spinney_report_summary(report, &summary) == 0 && summary.errors == 0 && summary.inodes > 10);
  MUST(spinney_report_next(report, &finding) == 0 && spinney_close(report) == 0);
  MUST(spinney_device_memory(64u << 20, &device) == 0);
  MUST(spinney_make_devices(&device, 1, "f2fs", NULL, &volume) == 0);
  MUST(spinney_snapshot(volume, "a", "b", 0) < 0 && spinney_close(volume) == 0);
  MUST(spinney_open_devices(&device, 1, NULL, &volume) == 0 && spinney_close(volume) == 0);
  MUST(spinney_check_devices(&device, 1, NULL, NULL, NULL, &report) == 0 && spinney_close(report) == 0);
  MUST(spinney_close(device) == 0 && spinney_close(device) == -EBADF && spinney_close(NULL) == 0);
  puts("done");
  return 0;
}
