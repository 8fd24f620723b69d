#include "sluice/base/system/folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <memory>

#include "sluice/base/error.h"
#include "sluice/base/failpoint.h"
#include "sluice/base/system/call_log.h"

namespace sluice::sys {
namespace {

[[noreturn]] void folder_error(const char* action, const std::string& path) {
  fail(ErrorKind::kIo, "cannot {} {}: {}", action, path, std::strerror(errno));
}

template <typename F>
int retry_call(const char* call, F f) {
  int result;
  do {
    result = internal::fails(call) ? -1 : f();
  } while (result < 0 && errno == EINTR);
  return result;
}

void unlink_file(const std::string& path) {
  if (retry_call("unlink", [&] { return ::unlink(path.c_str()); }) != 0 && errno != ENOENT)
    folder_error("remove", path);
  internal::record_call("unlink", path);
}

}  // namespace

File create_file(const std::string& path) {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
  File file(retry_call("open", [&] { return ::open(path.c_str(), kFlags, 0644); }));
  if (!file.open()) folder_error("create", path);
  internal::record_call("create", path);
  return file;
}

void sync_folder(const std::string& path) {
  constexpr int kFlags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
  const File folder(retry_call("open", [&] { return ::open(path.c_str(), kFlags); }));
  if (!folder.open()) folder_error("open", path);
  if (retry_call("fsync", [&] { return ::fsync(folder.fd()); }) != 0) folder_error("sync", path);
  internal::record_call("fsync", path);
}

void rename(const std::string& from, const std::string& to) {
  if (retry_call("rename", [&] { return ::rename(from.c_str(), to.c_str()); }) != 0)
    folder_error(fmt::format("rename {} to", from).c_str(), to);
  internal::record_call("rename", from, to);
}

void remove_folder(const std::string& path) {
  if (!is_folder(path)) return;
  for (const std::string& name : names_in(path)) unlink_file(path + "/" + name);
  if (retry_call("rmdir", [&] { return ::rmdir(path.c_str()); }) != 0 && errno != ENOENT)
    folder_error("remove", path);
  internal::record_call("rmdir", path);
}

std::vector<std::string> names_in(const std::string& path) {
  const auto close = [](DIR* folder) { ::closedir(folder); };
  const std::unique_ptr<DIR, decltype(close)> folder(::opendir(path.c_str()), close);
  if (folder == nullptr) folder_error("read folder", path);
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* const entry = ::readdir(folder.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  if (errno != 0) folder_error("read folder", path);
  std::sort(names.begin(), names.end());
  return names;
}

bool is_folder(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

int64_t free_bytes(const std::string& folder) {
  struct statvfs info {};
  if (retry_call("statvfs", [&] { return ::statvfs(folder.c_str(), &info); }) != 0)
    folder_error("examine", folder);
  constexpr auto kMax = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  const auto blocks = static_cast<uint64_t>(info.f_bavail);
  const auto size = static_cast<uint64_t>(std::max<unsigned long>(info.f_frsize, 1));
  return static_cast<int64_t>(std::min(blocks, kMax / size) * size);
}

FolderLock::FolderLock(const std::string& folder) {
  const std::string path = fmt::format("{}/{}", folder, kName);
  constexpr int kFlags = O_RDWR | O_CREAT | O_CLOEXEC;
  file_ = File(retry_call("open", [&] { return ::open(path.c_str(), kFlags, 0644); }));
  if (!file_.open()) folder_error("create", path);
  if (retry_call("flock", [&] { return ::flock(file_.fd(), LOCK_EX | LOCK_NB); }) == 0) return;
  if (errno != EWOULDBLOCK) folder_error("lock", path);
  fail(ErrorKind::kUsage, "{}: must have one user at a time, got a lock of another process",
       folder);
}

}  // namespace sluice::sys
