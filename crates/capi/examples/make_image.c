/* make_image.c IMAGE - makes a btrfs image, writes and reads a file, makes a snapshot, and checks the image. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <spinney.h>

/* Prints the message of a failed call. */
static int failed(const char *what, const void *handle) {
  fprintf(stderr, "%s: %s\n", what, spinney_error_message(handle));
  return 1;
}

static int fill(spinney_volume *volume) {
  static const char text[] = "The engine can do whatever we know how to order it to.\n";
  char read[sizeof text];
  spinney_file *file;
  int64_t count;

  if (spinney_subvolume_create(volume, "home") < 0 || spinney_mkdir(volume, "home/ada", 0750) < 0)
    return failed("mkdir", volume);
  if (spinney_file_open(volume, "home/ada/notes", SPINNEY_FILE_READ | SPINNEY_FILE_WRITE | SPINNEY_FILE_NEW, 0644,
                        &file) < 0)
    return failed("open", volume);
  if (spinney_file_write(file, text, strlen(text), 0) < 0)
    return failed("write", file);
  count = spinney_file_read(file, read, sizeof read, 0);
  if (count != (int64_t)strlen(text) || memcmp(read, text, strlen(text)) != 0)
    return failed("read", file);
  spinney_close(file);
  if (spinney_snapshot(volume, "home", "monday", SPINNEY_READ_ONLY) < 0)
    return failed("snapshot", volume);
  return 0;
}

static int check(const char *image) {
  spinney_report *report;
  spinney_summary summary = {.struct_size = sizeof summary};
  spinney_finding finding = {.struct_size = sizeof finding};

  if (spinney_check(image, NULL, NULL, NULL, &report) < 0)
    return failed("check", NULL);
  while (spinney_report_next(report, &finding) > 0)
    printf("%s: %s: expected %s, found %s\n", finding.code, finding.about, finding.expected, finding.found);
  spinney_report_summary(report, &summary);
  printf("%" PRIu64 " inodes, %" PRIu64 " errors\n", summary.inodes, summary.errors);
  spinney_close(report);
  return summary.errors > 0;
}

int main(int argc, char **argv) {
  spinney_make_options options = {.struct_size = sizeof options, .size = 128u << 20, .label = "ada"};
  spinney_volume *volume;
  int status;

  if (argc != 2) {
    fprintf(stderr, "usage: make_image IMAGE\n");
    return 2;
  }
  if (spinney_make(argv[1], "btrfs", &options, &volume) < 0)
    return failed("make", NULL);
  status = fill(volume);
  /* Everything is durable when this returns 0. */
  if (spinney_close(volume) < 0)
    return failed("close", NULL);
  return status != 0 ? status : check(argv[1]);
}
