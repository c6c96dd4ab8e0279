/* exits.c IMAGE - ends while handles are open and other threads are inside of calls. `kept` is durable before; the image
 * has to be sound afterwards. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <spinney.h>

static spinney_volume *volume;

static void must(int condition, const char *what) {
  if (!condition) {
    fprintf(stderr, "%s: %s\n", what, spinney_error_message(NULL));
    _exit(1);
  }
}

static void *write_on(void *context) {
  static char bytes[100000];
  char path[50];
  int i;

  for (i = 0;; i++) {
    spinney_file *file;

    snprintf(path, sizeof path, "%ld-%d", (long)context, i % 100);
    must(spinney_file_open(volume, path, SPINNEY_FILE_WRITE | SPINNEY_FILE_CREATE, 0644, &file) == 0, "open");
    must(spinney_file_write(file, bytes, sizeof bytes, 0) == sizeof bytes, "write");
    if (i % 10 == 0)
      must(spinney_file_sync(file, 0) == 0, "sync");
    must(spinney_close(file) == 0, "close");
  }
  return NULL;
}

int main(int argc, char **argv) {
  spinney_make_options options = {.struct_size = sizeof options, .size = 256u << 20};
  spinney_file *file;
  spinney_dir *dir;
  pthread_t thread;
  long i;

  (void)argc;
  must(spinney_make(argv[1], "btrfs", &options, &volume) == 0, "make");
  must(spinney_file_open(volume, "kept", SPINNEY_FILE_WRITE | SPINNEY_FILE_NEW, 0644, &file) == 0, "open");
  must(spinney_file_write(file, "kept", 4, 0) == 4 && spinney_sync(volume) == 0, "write");
  must(spinney_dir_open(volume, "/", &dir) == 0, "dir");
  for (i = 0; i < 3; i++)
    must(pthread_create(&thread, NULL, write_on, (void *)i) == 0, "thread");
  usleep(200000);
  exit(0);
}
