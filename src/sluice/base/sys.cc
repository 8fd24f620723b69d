#include "sluice/base/sys.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <iterator>
#include <mutex>
#include <new>
#include <utility>

#include "sluice/base/error.h"
#include "sluice/base/failpoint.h"
#include "sluice/base/system/call_log.h"
#include "sluice/base/system/cgroup.h"

namespace sluice::sys {
namespace {

[[noreturn]] void io_error(const char* action, const std::string& path) {
  fail(ErrorKind::kIo, "cannot {} {}: {}", action, path, std::strerror(errno));
}

// Calls f again while a signal interrupts it.
template <typename F>
auto retry(const char* call, F f) {
  decltype(f()) result;
  do {
    result = internal::fails(call) ? -1 : f();
  } while (result < 0 && errno == EINTR);
  return result;
}

// Calls f(size) for a transfer of at most `bytes` bytes, and again while a signal interrupts it. A
// failpoint may reduce the size.
template <typename F>
ssize_t transfer(const char* call, size_t bytes, F f) {
  ssize_t result;
  do {
    size_t size = bytes;
    result = internal::fails(call, &size) ? -1 : f(size);
  } while (result < 0 && errno == EINTR);
  return result;
}

const char* kind_of(const struct stat& info) {
  switch (info.st_mode & S_IFMT) {
    case S_IFREG:
      return "a file";
    case S_IFDIR:
      return "a folder";
    case S_IFIFO:
      return "a pipe";
    case S_IFSOCK:
      return "a socket";
    default:
      return "a device";
  }
}

void require_regular(const struct stat& info, ErrorKind kind, const char* action,
                     const std::string& path) {
  if (!S_ISREG(info.st_mode))
    fail(kind, "cannot {} {}: must be a regular file, got {}", action, path, kind_of(info));
}

}  // namespace

void open_standard_descriptors() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(descriptor, F_GETFD) >= 0) continue;
    // open() returns the lowest free number, which is `descriptor`.
    if (retry("open", [] { return ::open("/dev/null", O_RDWR); }) < 0)
      io_error("open", "/dev/null");
  }
}

void write_stderr(std::string_view text) noexcept {
  // A failing write may raise these signals. Block them, and discard those that arrive meanwhile. A
  // signal that was pending before stays pending.
  sigset_t raised, pending, old;
  sigemptyset(&raised);
  sigaddset(&raised, SIGPIPE);
  sigaddset(&raised, SIGXFSZ);
  sigpending(&pending);
  pthread_sigmask(SIG_BLOCK, &raised, &old);
  while (!text.empty()) {
    const ssize_t n = ::write(STDERR_FILENO, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    text = std::string_view(text.begin() + n, text.end());
  }
  for (const int signal : {SIGPIPE, SIGXFSZ}) {
    if (sigismember(&pending, signal) == 1) sigdelset(&raised, signal);
  }
  const timespec at_once{};
  while (sigtimedwait(&raised, nullptr, &at_once) > 0) {
  }
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
}

File::~File() {
  if (fd_ >= 0) ::close(fd_);
}
File::File(File&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
File& File::operator=(File&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

File open_for_read(const std::string& path) {
  struct stat info {};
  // Check before opening: opening a device may act on it, and opening a socket fails with an
  // unclear reason.
  if (::stat(path.c_str(), &info) == 0) require_regular(info, ErrorKind::kBadFile, "read", path);
  // A pipe may have replaced the file since the check. O_NONBLOCK: do not wait for its writer.
  constexpr int kFlags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  File file(retry("open", [&] { return ::open(path.c_str(), kFlags); }));
  if (!file.open()) io_error("open", path);
  if (retry("fstat", [&] { return ::fstat(file.fd(), &info); }) != 0) io_error("examine", path);
  require_regular(info, ErrorKind::kBadFile, "read", path);
  return file;
}

File scratch_file(const std::string& folder, int64_t bytes, PageCache cache) {
  std::string path = folder + "/sluice-XXXXXX";
  const std::string pattern = path;
  File file(retry("mkostemp", [&] {
    path = pattern;
    return ::mkostemp(path.data(), O_CLOEXEC);
  }));
  if (!file.open()) io_error("make a file in", folder);
  ::unlink(path.c_str());
  // Set O_DIRECT only now that the name is removed. If the flag were passed to mkostemp and the
  // file system refused it, the file would remain.
  if (cache == PageCache::kBypass &&
      retry("fcntl", [&] { return ::fcntl(file.fd(), F_SETFL, O_DIRECT); }) != 0) {
    fail(ErrorKind::kIo,
         "cannot bypass the page cache (O_DIRECT) for a file in {}: {}; choose a folder on a disk, "
         "not in memory",
         folder, std::strerror(errno));
  }
  int refused = 0;
  do {
    refused = internal::fails("fallocate") ? errno
              : bytes > 0                  ? ::posix_fallocate(file.fd(), 0, bytes)
                                           : 0;
  } while (refused == EINTR);
  if (refused != 0) {
    errno = refused;
    io_error(fmt::format("allocate {} bytes for a file in", bytes).c_str(), folder);
  }
  return file;
}

bool can_bypass_page_cache(const std::string& folder) {
  try {
    scratch_file(folder, kFilePage, PageCache::kBypass);
    return true;
  } catch (const Error&) {
    return false;
  }
}

int64_t size(const File& file, const std::string& path) {
  struct stat info {};
  if (retry("fstat", [&] { return ::fstat(file.fd(), &info); }) != 0) io_error("examine", path);
  return info.st_size;
}

void read_exactly(const File& file, const std::string& path, int64_t offset,
                  std::span<std::byte> out) {
  while (!out.empty()) {
    const ssize_t n = transfer("pread", out.size(), [&](size_t size) {
      return ::pread(file.fd(), out.data(), size, offset);
    });
    if (n < 0) io_error("read", path);
    if (n == 0)
      fail(ErrorKind::kIo, "cannot read {}: it ends at byte {}, {} more were expected", path,
           offset, out.size());
    out = {out.begin() + n, out.end()};
    offset += n;
  }
}

void write_exactly(const File& file, const std::string& path, int64_t offset,
                   std::span<const std::byte> in) {
  while (!in.empty()) {
    const ssize_t n = transfer("pwrite", in.size(), [&](size_t size) {
      return ::pwrite(file.fd(), in.data(), size, offset);
    });
    if (n < 0) io_error("write", path);
    internal::record_call("pwrite", path, {}, offset, in.first(static_cast<size_t>(n)));
    in = {in.begin() + n, in.end()};
    offset += n;
  }
}

void sync(const File& file, const std::string& path) {
  if (retry("fdatasync", [&] { return ::fdatasync(file.fd()); }) != 0) io_error("sync", path);
  internal::record_call("fdatasync", path);
}

std::vector<std::byte> read_file(const std::string& path) {
  const File file = open_for_read(path);
  const int64_t needed = size(file, path);
  std::vector<std::byte> bytes;
  try {
    bytes.resize(static_cast<size_t>(needed));
  } catch (const std::bad_alloc&) {
    fail(ErrorKind::kDoesNotFit, "{}: needs {} bytes of memory, which the system refuses", path,
         needed);
  }
  read_exactly(file, path, 0, bytes);
  return bytes;
}

namespace {

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == path.npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

constexpr int kEnding[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXCPU};
std::mutex deferring;               // Held by the only DeferredSignals that exists.
std::atomic<uint64_t> deferred{0};  // Bit s is set if signal s has arrived.
static_assert(std::atomic<uint64_t>::is_always_lock_free);

extern "C" void defer_signal(int signal) { deferred |= uint64_t{1} << signal; }

// Defers signals that end the process until the destructor raises them again. It replaces their
// handlers, which works in every thread; a signal mask would apply to one thread only.
class DeferredSignals {
 public:
  DeferredSignals() : hold_(deferring) {
    struct sigaction action {};
    action.sa_handler = defer_signal;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < std::size(kEnding); ++i) {
      ::sigaction(kEnding[i], nullptr, &old_[i]);
      if (old_[i].sa_handler != SIG_IGN) ::sigaction(kEnding[i], &action, nullptr);
    }
  }
  ~DeferredSignals() {
    for (size_t i = 0; i < std::size(kEnding); ++i) ::sigaction(kEnding[i], &old_[i], nullptr);
    const uint64_t arrived = deferred.exchange(0);
    for (const int signal : kEnding) {
      if ((arrived >> signal & 1) != 0) ::raise(signal);
    }
  }
  DeferredSignals(const DeferredSignals&) = delete;
  DeferredSignals& operator=(const DeferredSignals&) = delete;

 private:
  std::lock_guard<std::mutex> hold_;
  struct sigaction old_[std::size(kEnding)] = {};
};

// Follows symbolic links and returns the path of their target, which need not exist.
std::string follow_links(const std::string& path) {
  constexpr int kMaxLinks = 40;
  std::string at = path;
  for (int i = 0; i < kMaxLinks; ++i) {
    char to[PATH_MAX];
    const ssize_t n = ::readlink(at.c_str(), to, sizeof to);
    if (n < 0) return at;
    const std::string target(to, to + n);
    at = target.starts_with('/') ? target : folder_of(at) + "/" + target;
  }
  errno = ELOOP;
  io_error("replace", path);
}

// Returns the path of the file to replace. Error{kIo} if it exists and is not a regular file.
std::string replaceable(const std::string& path) {
  std::string target = follow_links(path);
  struct stat info {};
  if (::stat(target.c_str(), &info) == 0) require_regular(info, ErrorKind::kIo, "replace", path);
  return target;
}

// Creates a nameless file in the folder of `target`. Returns a closed File if the file system does
// not support nameless files, or if /proc/self/fd, which is needed to name one, does not exist.
File create_nameless(const std::string& target, const std::string& path) {
  if (!exists("/proc/self/fd")) return {};
  const std::string folder = folder_of(target);
  constexpr int kFlags = O_TMPFILE | O_WRONLY | O_CLOEXEC;
  File file(retry("open", [&] { return ::open(folder.c_str(), kFlags, 0644); }));
  const bool lacks = errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL;
  if (!file.open() && !lacks) io_error("create", path);
  return file;
}

// Calls make(name) with names in the folder of `target` until one is free, and returns that name.
template <typename F>
std::string make_in_folder_of(const std::string& target, const std::string& path, F make) {
  constexpr int kMaxNames = 100;
  for (int n = 0; n < kMaxNames; ++n) {
    const std::string name = fmt::format("{}.{}.{}.tmp", target, ::getpid(), n);
    if (make(name) >= 0) return name;
    if (errno != EEXIST) break;
  }
  io_error("create", path);
}

struct NamedFile {
  File file;
  std::string name;
};

NamedFile create_named(const std::string& target, const std::string& path) {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
  NamedFile made;
  made.name = make_in_folder_of(target, path, [&](const std::string& name) {
    made.file = File(retry("open", [&] { return ::open(name.c_str(), kFlags, 0644); }));
    return made.file.fd();
  });
  return made;
}

void rename_over(const std::string& temporary, const std::string& target, const std::string& path) {
  if (retry("rename", [&] { return ::rename(temporary.c_str(), target.c_str()); }) == 0) return;
  const int reason = errno;
  ::unlink(temporary.c_str());
  errno = reason;
  io_error("replace", path);
}

}  // namespace

void replace_file(const std::string& path, std::span<const std::byte> bytes) {
  replace_file(path, [&](const File& file, const std::string& name) {
    write_exactly(file, name, 0, bytes);
  });
}

void replace_file(const std::string& path,
                  const std::function<void(const File&, const std::string&)>& write) {
  const std::string target = replaceable(path);
  if (const File file = create_nameless(target, path); file.open()) {
    write(file, path);
    sync(file, path);
    const std::string descriptor = fmt::format("/proc/self/fd/{}", file.fd());
    const DeferredSignals hold;
    const std::string name = make_in_folder_of(target, path, [&](const std::string& free) {
      return retry("linkat", [&] {
        return ::linkat(AT_FDCWD, descriptor.c_str(), AT_FDCWD, free.c_str(), AT_SYMLINK_FOLLOW);
      });
    });
    rename_over(name, target, path);
    return;
  }
  const DeferredSignals hold;
  const NamedFile made = create_named(target, path);
  try {
    write(made.file, path);
    sync(made.file, path);
  } catch (...) {
    ::unlink(made.name.c_str());
    throw;
  }
  rename_over(made.name, target, path);
}

void check_replaceable(const std::string& path) {
  const std::string target = replaceable(path);
  if (create_nameless(target, path).open()) return;
  const DeferredSignals hold;
  ::unlink(create_named(target, path).name.c_str());
}

bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

void check_folder(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0 && !S_ISDIR(info.st_mode))
    fail(ErrorKind::kBadFile, "cannot read {}: must be a folder, got {}", path, kind_of(info));
}

void make_folder(const std::string& path) {
  if (retry("mkdir", [&] { return ::mkdir(path.c_str(), 0755); }) != 0) {
    if (errno != EEXIST) io_error("make folder", path);
    return;
  }
  internal::record_call("mkdir", path);
}

int usable_cores() {
  cpu_set_t set;
  int cores = 1;
  if (::sched_getaffinity(0, sizeof set, &set) == 0) cores = std::max(1, CPU_COUNT(&set));
  const int quota = cgroup_limits().cores;
  return quota == 0 ? cores : std::min(cores, quota);
}

void prefer_large_pages(void* memory, int64_t bytes) {
#ifdef MADV_HUGEPAGE
  // Ignore the result: a refusal only costs speed.
  static_cast<void>(madvise(memory, static_cast<size_t>(bytes), MADV_HUGEPAGE));
#endif
}

}  // namespace sluice::sys
