#include "sluice/base/sys.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "sluice/base/error.h"
#include "sluice/base/failpoint.h"

namespace sluice::sys {
namespace {

[[noreturn]] void io_error(const char* action, const std::string& path) {
  fail(ErrorKind::kIo, "cannot {} {}: {}", action, path, std::strerror(errno));
}

// Calls f until no signal interrupts it.
template <typename F>
auto retry(const char* call, F f) {
  decltype(f()) result;
  do {
    result = internal::fails(call) ? -1 : f();
  } while (result < 0 && errno == EINTR);
  return result;
}

// Calls f(bytes) for a transfer that may move fewer.
template <typename F>
ssize_t transfer(const char* call, size_t bytes, F f) {
  ssize_t result;
  do {
    size_t size = bytes;
    result = internal::fails(call, &size) ? -1 : f(size);
  } while (result < 0 && errno == EINTR);
  return result;
}

}  // namespace

File::~File() {
  if (fd_ >= 0) ::close(fd_);
}
File::File(File&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
File& File::operator=(File&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

File open_for_read(const std::string& path) {
  File file(retry("open", [&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC); }));
  if (!file.open()) io_error("open", path);
  return file;
}

File create(const std::string& path) {
  File file(retry("open", [&] {
    return ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  }));
  if (!file.open()) io_error("create", path);
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
  // Not when it is opened: a file system that refuses would leave the file behind.
  if (cache == PageCache::kBypass &&
      retry("fcntl", [&] { return ::fcntl(file.fd(), F_SETFL, O_DIRECT); }) != 0) {
    fail(ErrorKind::kIo,
         "cannot go past the page cache (O_DIRECT) for a file in {}: {}; a folder on a disk may be "
         "right, one in memory is not",
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
    io_error(fmt::format("take {} bytes for a file in", bytes).c_str(), folder);
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
  if (!S_ISREG(info.st_mode)) fail(ErrorKind::kIo, "cannot read {}: not a regular file", path);
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
    out = out.subspan(static_cast<size_t>(n));
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
    in = in.subspan(static_cast<size_t>(n));
    offset += n;
  }
}

void sync(const File& file, const std::string& path) {
  if (retry("fdatasync", [&] { return ::fdatasync(file.fd()); }) != 0) io_error("sync", path);
}

std::vector<std::byte> read_file(const std::string& path) {
  const File file = open_for_read(path);
  std::vector<std::byte> bytes(static_cast<size_t>(size(file, path)));
  read_exactly(file, path, 0, bytes);
  return bytes;
}

namespace {

// Of this process alone: nobody else's file has the name.
std::string temporary_beside(const std::string& path) {
  return fmt::format("{}.{}.tmp", path, ::getpid());
}

void require_file(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode))
    fail(ErrorKind::kIo, "cannot replace {}: not a regular file", path);
}

}  // namespace

void replace_file(const std::string& path, std::span<const std::byte> bytes) {
  replace_file(path, [&](const File& file, const std::string& name) {
    write_exactly(file, name, 0, bytes);
  });
}

void replace_file(const std::string& path,
                  const std::function<void(const File&, const std::string&)>& write) {
  require_file(path);
  const std::string temporary = temporary_beside(path);
  try {
    const File file = create(temporary);
    write(file, temporary);
    sync(file, temporary);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  if (retry("rename", [&] { return ::rename(temporary.c_str(), path.c_str()); }) != 0) {
    const int reason = errno;
    ::unlink(temporary.c_str());
    errno = reason;
    io_error("replace", path);
  }
}

void check_replaceable(const std::string& path) {
  require_file(path);
  const std::string temporary = temporary_beside(path);
  create(temporary);
  ::unlink(temporary.c_str());
}

bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

void make_folder(const std::string& path) {
  if (retry("mkdir", [&] { return ::mkdir(path.c_str(), 0755); }) != 0 && errno != EEXIST)
    io_error("make folder", path);
}

int usable_cores() {
  cpu_set_t set;
  int cores = 1;
  if (::sched_getaffinity(0, sizeof set, &set) == 0) cores = std::max(1, CPU_COUNT(&set));
  if (FILE* f = std::fopen("/sys/fs/cgroup/cpu.max", "r")) {
    long long quota = 0;
    long long period = 0;
    if (std::fscanf(f, "%lld %lld", &quota, &period) == 2 && quota > 0 && period > 0) {
      cores = std::min<int>(cores, static_cast<int>(std::max(1LL, (quota + period - 1) / period)));
    }
    std::fclose(f);
  }
  return cores;
}

void prefer_large_pages(void* memory, int64_t bytes) {
#ifdef MADV_HUGEPAGE
  // Whether it works shows in speed alone.
  static_cast<void>(madvise(memory, static_cast<size_t>(bytes), MADV_HUGEPAGE));
#endif
}

}  // namespace sluice::sys
