/* threads.c IMAGE - several threads use one volume and one file, and close handles that others use. Prints `done`. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <spinney.h>

#define THREADS 4
#define ROUNDS 200

static spinney_volume *volume;
static spinney_file *shared;

static void must(int condition, const char *what) {
  if (!condition) {
    fprintf(stderr, "%s: %s\n", what, spinney_error_message(NULL));
    exit(1);
  }
}

static void *work(void *context) {
  long number = (long)context;
  char path[50], piece[16], read[16];
  int round;

  for (round = 0; round < ROUNDS; round++) {
    spinney_file *file;
    int64_t at = (int64_t)(number * ROUNDS + round) * (int64_t)sizeof piece;

    snprintf(piece, sizeof piece, "%ld-%d", number, round);
    snprintf(path, sizeof path, "%ld-%d", number, round % 10);
    must(spinney_file_write(shared, piece, sizeof piece, at) == sizeof piece, "write");
    must(spinney_file_read(shared, read, sizeof read, at) == sizeof read, "read");
    must(strcmp(piece, read) == 0, "other bytes");
    must(spinney_file_open(volume, path, SPINNEY_FILE_WRITE | SPINNEY_FILE_CREATE, 0644, &file) == 0, "open");
    must(spinney_file_write(file, piece, sizeof piece, 0) == sizeof piece, "write");
    must(spinney_close(file) == 0, "close");
    if (round % 10 == 9)
      must(spinney_unlink(volume, path) == 0, "unlink");
    must(spinney_file_open(volume, "none", SPINNEY_FILE_READ, 0, &file) == -ENOENT && file == NULL, "none");
    must(strstr(spinney_error_message(volume), "no such file") != NULL, "message");
  }
  return NULL;
}

/* Reads until the file is closed by the other thread. */
static void *read_until_closed(void *context) {
  spinney_file *file = context;
  char byte;
  int64_t result;

  do
    result = spinney_file_read(file, &byte, 1, 0);
  while (result == 1);
  must(result == -EBADF, "closed");
  return NULL;
}

int main(int argc, char **argv) {
  spinney_make_options options = {.struct_size = sizeof options, .size = 128u << 20};
  spinney_report *report;
  spinney_summary summary = {.struct_size = sizeof summary};
  spinney_file *file;
  pthread_t threads[THREADS], reader;
  long i;

  (void)argc;
  must(spinney_make(argv[1], "btrfs", &options, &volume) == 0, "make");
  must(spinney_file_open(volume, "shared", SPINNEY_FILE_READ | SPINNEY_FILE_WRITE | SPINNEY_FILE_NEW, 0644, &shared) ==
           0,
       "open");
  for (i = 0; i < THREADS; i++)
    must(pthread_create(&threads[i], NULL, work, (void *)i) == 0, "thread");
  for (i = 0; i < THREADS; i++)
    pthread_join(threads[i], NULL);
  must(spinney_file_open(volume, "shared", SPINNEY_FILE_READ, 0, &file) == 0, "open");
  must(pthread_create(&reader, NULL, read_until_closed, file) == 0, "thread");
  must(spinney_close(file) == 0, "close");
  pthread_join(reader, NULL);
  must(spinney_close(shared) == 0 && spinney_close(volume) == 0, "close");
  must(spinney_check(argv[1], NULL, NULL, NULL, &report) == 0, "check");
  must(spinney_report_summary(report, &summary) == 0 && summary.errors == 0, "errors");
  must(spinney_close(report) == 0, "close");
  puts("done");
  return 0;
}
