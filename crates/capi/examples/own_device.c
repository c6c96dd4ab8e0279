/* own_device.c - makes a volume on a device of the program: here an array, elsewhere a network or an encryption. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <spinney.h>

#define DEVICE_BYTES (64u << 20)

struct array {
  pthread_mutex_t lock; /* the library calls by several threads */
  unsigned char *bytes;
  unsigned long writes;
};

static int array_read(void *context, uint64_t offset, void *buffer, size_t length) {
  struct array *array = context;
  pthread_mutex_lock(&array->lock);
  memcpy(buffer, array->bytes + offset, length);
  pthread_mutex_unlock(&array->lock);
  return 0;
}

static int array_write(void *context, uint64_t offset, const void *buffer, size_t length) {
  struct array *array = context;
  pthread_mutex_lock(&array->lock);
  memcpy(array->bytes + offset, buffer, length);
  array->writes++;
  pthread_mutex_unlock(&array->lock);
  return 0;
}

static void array_release(void *context) {
  struct array *array = context;
  printf("released after %s\n", array->writes > 0 ? "writes" : "no write");
  free(array->bytes);
}

static int failed(const void *handle) {
  fprintf(stderr, "%s\n", spinney_error_message(handle));
  return 1;
}

int main(void) {
  struct array array = {.lock = PTHREAD_MUTEX_INITIALIZER, .bytes = calloc(1, DEVICE_BYTES)};
  spinney_device_calls calls = {
      .struct_size = sizeof calls,
      .name = "array",
      .size = DEVICE_BYTES,
      .read = array_read,
      .write = array_write,
      .release = array_release,
  };
  spinney_info info = {.struct_size = sizeof info};
  spinney_device *device;
  spinney_volume *volume;

  if (array.bytes == NULL || spinney_device_new(&calls, &array, &device) < 0)
    return failed(NULL);
  if (spinney_make_devices(&device, 1, "f2fs", NULL, &volume) < 0)
    return failed(NULL);
  spinney_close(device);
  if (spinney_mkdir(volume, "dir", 0755) < 0 || spinney_get_info(volume, &info) < 0)
    return failed(volume);
  printf("%s of %lu bytes\n", info.format, (unsigned long)info.total_bytes);
  return spinney_close(volume) < 0 ? failed(NULL) : 0;
}
