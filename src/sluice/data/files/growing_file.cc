#include "sluice/data/files/growing_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "sluice/base/error.h"
#include "sluice/base/failpoint.h"

namespace sluice::data {
namespace {

// Cuts a file. Returns whether the system has done it.
bool cut(const sys::File& file, int64_t bytes) {
  int result = 0;
  do result = ::ftruncate(file.fd(), bytes);
  while (result != 0 && errno == EINTR);
  return result == 0;
}

}  // namespace

GrowingFile::GrowingFile(std::string path, int64_t kept) : path_(std::move(path)), size_(kept) {
  // O_NONBLOCK: do not wait for the reader of a pipe.
  constexpr int kFlags = O_WRONLY | O_CREAT | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  int fd = -1;
  do fd = sys::internal::fails("open") ? -1 : ::open(path_.c_str(), kFlags, 0644);
  while (fd < 0 && errno == EINTR);
  if (fd < 0) fail(ErrorKind::kIo, "cannot create {}: {}", path_, std::strerror(errno));
  file_ = sys::File(fd);
  struct stat info {};
  if (::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))
    fail(ErrorKind::kIo, "cannot write {}: must be a regular file", path_);
  if (!cut(file_, kept)) fail(ErrorKind::kIo, "cannot write {}: {}", path_, std::strerror(errno));
}

void GrowingFile::flush() {
  const std::string bytes = std::exchange(pending_, {});
  try {
    sys::write_exactly(file_, path_, size_, std::as_bytes(std::span(bytes)));
  } catch (const Error&) {
    cut(file_, size_);
    throw;
  }
  size_ += static_cast<int64_t>(bytes.size());
}

void GrowingFile::sync() {
  flush();
  sys::sync(file_, path_);
}

}  // namespace sluice::data
