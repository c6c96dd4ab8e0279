/* backup.c FROM SNAPSHOT TO [PARENT] - sends a snapshot of one image into another one, and prints how far it is. */
#include <inttypes.h>
#include <stdio.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <spinney.h>

static int show(void *context, const spinney_progress *progress) {
  (void)context;
  fprintf(stderr, "\r%" PRIu64 " bytes", progress->bytes);
  return 0; /* anything else cancels */
}

static int failed(const void *handle) {
  fprintf(stderr, "%s\n", spinney_error_message(handle));
  return 1;
}

/* The child process sends: handles do not survive fork(), so it opens the image itself. */
static int send_to(int fd, char **argv, const char *parent) {
  spinney_open_options options = {.struct_size = sizeof options, .flags = SPINNEY_READ_ONLY};
  spinney_send_options send = {.struct_size = sizeof send, .parent = parent};
  spinney_volume *volume;

  if (spinney_open(argv[1], &options, &volume) < 0)
    return failed(NULL);
  if (spinney_send(volume, argv[2], &send, fd, NULL, NULL) < 0)
    return failed(volume);
  return spinney_close(volume) < 0;
}

int main(int argc, char **argv) {
  spinney_volume *volume;
  int fds[2], status;
  pid_t child;

  if (argc < 4 || pipe(fds) != 0) {
    fprintf(stderr, "usage: backup FROM SNAPSHOT TO [PARENT]\n");
    return 2;
  }
  child = fork();
  if (child == 0) {
    close(fds[0]);
    _exit(send_to(fds[1], argv, argc > 4 ? argv[4] : NULL));
  }
  close(fds[1]);
  if (spinney_open(argv[3], NULL, &volume) < 0)
    return failed(NULL);
  if (spinney_receive(volume, "/", fds[0], show, NULL) < 0)
    return failed(volume);
  fprintf(stderr, "\n");
  if (waitpid(child, &status, 0) != child || status != 0)
    return 1;
  return spinney_close(volume) < 0 ? failed(NULL) : 0;
}
