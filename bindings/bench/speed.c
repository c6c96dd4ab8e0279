/* speed.c IMAGE - reads and stats through C, for `cargo xtask bindings-bench`; speed.py and speed.rs do the same. For
 * each line of the input (`read` or `stat`) it does the work once, and prints the seconds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <spinney.h>

#define PIECE_BYTES (1u << 20)
#define FILES 1000
#define STATS 100000

static spinney_volume *volume;
static spinney_file *file;
static char *piece;

static void fail(const void *handle) {
  fprintf(stderr, "speed: %s\n", spinney_error_message(handle));
  exit(1);
}

static void read_all(void) {
  int64_t at = 0, count;

  while ((count = spinney_file_read(file, piece, PIECE_BYTES, at)) > 0)
    at += count;
  if (count < 0)
    fail(file);
}

static void stat_all(void) {
  spinney_attributes attributes = {.struct_size = sizeof attributes};
  char path[40];
  int i;

  for (i = 0; i < STATS; i++) {
    snprintf(path, sizeof path, "/dir/file-%d", i % FILES);
    if (spinney_stat(volume, path, &attributes) < 0)
      fail(volume);
  }
}

int main(int argc, char **argv) {
  spinney_open_options options = {.struct_size = sizeof options, .flags = SPINNEY_READ_ONLY};
  char line[40];

  piece = malloc(PIECE_BYTES);
  if (argc != 2 || piece == NULL) {
    fprintf(stderr, "usage: speed IMAGE\n");
    return 2;
  }
  if (spinney_open(argv[1], &options, &volume) < 0 ||
      spinney_file_open(volume, "/large", SPINNEY_FILE_READ, 0, &file) < 0)
    fail(NULL);
  while (fgets(line, sizeof line, stdin) != NULL) {
    struct timespec begin, end;

    clock_gettime(CLOCK_MONOTONIC, &begin);
    if (strcmp(line, "read\n") == 0)
      read_all();
    else if (strcmp(line, "stat\n") == 0)
      stat_all();
    else
      return 2;
    clock_gettime(CLOCK_MONOTONIC, &end);
    printf("%.6f\n", (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) / 1e9);
    fflush(stdout);
  }
  spinney_close(file);
  free(piece);
  return spinney_close(volume) < 0;
}
