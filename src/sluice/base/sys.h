#pragma once
#include <fmt/core.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sluice::sys {

/// Opens /dev/null as each standard descriptor (0 to 2) that is closed, so that no file takes its
/// number. Call it first in a process. Error{kIo} if /dev/null cannot be opened.
void open_standard_descriptors();

/// Writes text to standard error, which only logs and errors use. Text that cannot be written is
/// discarded: a closed descriptor, a full disk, a pipe without a reader and a file at its size
/// limit never end a run.
void write_stderr(std::string_view text) noexcept;

/// Writes formatted text to standard error.
template <typename... Args>
void print_stderr(fmt::format_string<Args...> format, Args&&... args) noexcept {
  try {
    write_stderr(fmt::format(format, std::forward<Args>(args)...));
  } catch (...) {  // Memory for the text is missing.
    write_stderr("(a message could not be formatted)\n");
  }
}

/// An open file descriptor, closed at the end of its life.
class File {
 public:
  File() = default;
  explicit File(int fd) : fd_(fd) {}
  ~File();
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;

  int fd() const { return fd_; }
  bool open() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

/// All wrappers retry EINTR, loop over short transfers, and throw Error{kIo} with the path and the
/// system's reason.

/// Opens a regular file. Error{kBadFile} for folders, pipes, sockets and devices, without waiting
/// for any of them.
File open_for_read(const std::string& path);
/// Whether what is read and written is kept in the system's page cache, or goes past it: then
/// offsets, sizes and memory are multiples of kFilePage.
enum class PageCache : uint8_t { kUse, kBypass };
inline constexpr int64_t kFilePage = 4096;
/// A new file of `bytes` bytes in `folder`, with its space taken and its name gone: it ends with
/// its descriptor.
File scratch_file(const std::string& folder, int64_t bytes, PageCache cache = PageCache::kUse);
/// Whether files in `folder` can go past the page cache: on most disks they can, in memory often
/// not.
bool can_bypass_page_cache(const std::string& folder);
int64_t size(const File& file, const std::string& path);
void read_exactly(const File& file, const std::string& path, int64_t offset,
                  std::span<std::byte> out);
void write_exactly(const File& file, const std::string& path, int64_t offset,
                   std::span<const std::byte> in);
void sync(const File& file, const std::string& path);

/// A whole file's bytes. Errors as of open_for_read.
std::vector<std::byte> read_file(const std::string& path);
/// Writes a file without a name in the folder of `path`, syncs it, names it and renames it over
/// `path`: a reader finds the old file or the new one. A process that ends while it writes leaves
/// nothing behind; SIGHUP, SIGINT, SIGQUIT, SIGTERM and SIGXCPU act after the file is named. Where
/// the file system has no files without names, the file has a name (`path`.PID.N.tmp) while it is
/// written, and these signals act after that. If `path` is a symbolic link, its target is replaced.
/// Error{kIo} if something else than a file is there: a folder, a device, a pipe.
void replace_file(const std::string& path, std::span<const std::byte> bytes);
/// The same with the bytes that `write(file, name)` writes.
void replace_file(const std::string& path,
                  const std::function<void(const File&, const std::string&)>& write);

/// Error{kIo} if replace_file could not begin. Leaves nothing behind.
void check_replaceable(const std::string& path);

bool exists(const std::string& path);
/// Error{kBadFile} if a file, a pipe, a socket or a device is at `path`; a folder or nothing is
/// fine.
void check_folder(const std::string& path);
/// Error{kIo} if the folder cannot be made; an existing folder is fine.
void make_folder(const std::string& path);

/// Cores this process may use: the smaller of affinity and cgroup quota, at least 1.
int usable_cores();

/// Bytes of a large page.
inline constexpr int64_t kLargePage = int64_t{2} << 20;
/// Asks the system to back memory, aligned to kLargePage and not touched yet, with large pages. It
/// may not.
void prefer_large_pages(void* memory, int64_t bytes);

}  // namespace sluice::sys
