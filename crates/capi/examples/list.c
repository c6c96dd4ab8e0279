/* list.c IMAGE [DIR] - lists all names below a directory of an image, as `find -ls` does. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <spinney.h>

static int list(spinney_volume *volume, const char *path, int depth) {
  spinney_entry entry = {.struct_size = sizeof entry};
  spinney_attributes found = {.struct_size = sizeof found};
  char below[4096];
  spinney_dir *dir;
  int more;

  if (depth > 100 || spinney_dir_open(volume, path, &dir) < 0) {
    fprintf(stderr, "%s\n", spinney_error_message(volume));
    return 1;
  }
  while ((more = spinney_dir_read(dir, &entry)) > 0) {
    if (snprintf(below, sizeof below, "%s/%s", path, entry.name) >= (int)sizeof below)
      continue;
    if (spinney_lstat(volume, below, &found) < 0) {
      fprintf(stderr, "%s\n", spinney_error_message(volume));
      continue;
    }
    printf("%06o %5" PRIu32 " %5" PRIu32 " %12" PRIu64 " %s\n", found.mode, found.uid, found.gid, found.size, below);
    if ((found.mode & 0170000) == 0040000)
      list(volume, below, depth + 1);
  }
  spinney_close(dir);
  return more < 0;
}

int main(int argc, char **argv) {
  spinney_open_options options = {.struct_size = sizeof options, .flags = SPINNEY_READ_ONLY};
  spinney_volume *volume;
  int status;

  if (argc < 2) {
    fprintf(stderr, "usage: list IMAGE [DIR]\n");
    return 2;
  }
  if (spinney_open(argv[1], &options, &volume) < 0) {
    fprintf(stderr, "%s\n", spinney_error_message(NULL));
    return 1;
  }
  status = list(volume, argc > 2 ? argv[2] : ".", 0);
  spinney_close(volume);
  return status;
}
