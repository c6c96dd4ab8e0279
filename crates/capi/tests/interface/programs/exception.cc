// exception.cc - a function of the caller throws in C++. The exception must not leave the function: it is kept, the call
// is cancelled, and the exception goes on after the call. Prints `done`.
#include <cerrno>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>

#include <spinney.h>

namespace {

struct Kept {
  std::exception_ptr exception;
};

// Runs the caller's code, and keeps its exception.
template <typename Result, typename Work> Result keep(void *context, Result failure, Work work) noexcept {
  try {
    return work();
  } catch (...) {
    static_cast<Kept *>(context)->exception = std::current_exception();
    return failure;
  }
}

extern "C" int64_t take(void *context, const void *, size_t length) {
  return keep<int64_t>(context, -EIO, [&]() -> int64_t {
    if (length > 0)
      throw std::runtime_error("the disk of the caller is full");
    return 0;
  });
}

extern "C" int watch(void *context, const spinney_progress *) {
  return keep<int>(context, 1, []() -> int { throw std::logic_error("no more"); });
}

// Throws what a function has kept.
void finish(Kept &kept) {
  if (kept.exception)
    std::rethrow_exception(kept.exception);
}

bool expect(const char *text, int result, int expected, Kept &kept) {
  if (result != expected)
    return false;
  try {
    finish(kept);
  } catch (const std::exception &exception) {
    kept.exception = nullptr;
    return std::string(exception.what()) == text;
  }
  return false;
}

} // namespace

int main() {
  spinney_device *device = nullptr;
  spinney_volume *volume = nullptr;
  spinney_report *report = nullptr;
  Kept kept;

  if (spinney_device_memory(64u << 20, &device) != 0 ||
      spinney_make_devices(&device, 1, "btrfs", nullptr, &volume) != 0 ||
      spinney_snapshot(volume, "/", "all", SPINNEY_READ_ONLY) != 0)
    return 1;
  int result = spinney_send_to(volume, "all", nullptr, take, nullptr, &kept);
  if (!expect("the disk of the caller is full", result, -EIO, kept))
    return 2;
  // The volume is usable after it.
  if (spinney_mkdir(volume, "later", 0755) != 0 || spinney_close(volume) != 0)
    return 3;
  result = spinney_check_devices(&device, 1, nullptr, watch, &kept, &report);
  if (!expect("no more", result, -ECANCELED, kept) || report != nullptr)
    return 4;
  spinney_close(device);
  std::puts("done");
  return 0;
}
