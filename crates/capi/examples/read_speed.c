/* read_speed.c IMAGE PATH [PASSES] - reads a file in pieces of 1 MiB, and prints the bytes of a second for each pass. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <spinney.h>

#define PIECE_BYTES (1u << 20)

int main(int argc, char **argv) {
  spinney_open_options options = {.struct_size = sizeof options, .flags = SPINNEY_READ_ONLY};
  char *piece = malloc(PIECE_BYTES);
  spinney_volume *volume;
  spinney_file *file;
  int pass, passes;

  if (argc < 3 || piece == NULL) {
    fprintf(stderr, "usage: read_speed IMAGE PATH [PASSES]\n");
    return 2;
  }
  passes = argc > 3 ? atoi(argv[3]) : 1;
  if (spinney_open(argv[1], &options, &volume) < 0 ||
      spinney_file_open(volume, argv[2], SPINNEY_FILE_READ, 0, &file) < 0) {
    fprintf(stderr, "%s\n", spinney_error_message(NULL));
    return 1;
  }
  for (pass = 0; pass < passes; pass++) {
    struct timespec begin, end;
    int64_t at = 0, count;
    double seconds;

    clock_gettime(CLOCK_MONOTONIC, &begin);
    while ((count = spinney_file_read(file, piece, PIECE_BYTES, at)) > 0)
      at += count;
    clock_gettime(CLOCK_MONOTONIC, &end);
    if (count < 0) {
      fprintf(stderr, "%s\n", spinney_error_message(file));
      return 1;
    }
    seconds = (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) / 1e9;
    printf("%" PRId64 " bytes, %.0f MiB/s\n", at, (double)at / seconds / (1 << 20));
  }
  spinney_close(file);
  free(piece);
  return spinney_close(volume) < 0;
}
