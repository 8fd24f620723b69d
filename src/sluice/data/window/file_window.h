#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "sluice/base/sys.h"
#include "sluice/base/system/file_version.h"

namespace sluice::data {

class FileWindow;

/// The blocks and open files that file windows share: at most kMaxBlocks blocks of kMaxBlockBytes,
/// and kMaxOpenFiles open files.
class WindowMemory {
 public:
  static constexpr int64_t kMaxBlockBytes = int64_t{256} << 10;
  static constexpr size_t kMaxBlocks = 16;
  static constexpr size_t kMaxOpenFiles = 64;

  WindowMemory() = default;
  WindowMemory(const WindowMemory&) = delete;
  WindowMemory& operator=(const WindowMemory&) = delete;

 private:
  friend class FileWindow;

  struct Block {
    const FileWindow* window = nullptr;  ///< Null for a free block.
    int64_t number = 0;                  ///< The block of the file, from 0.
    std::vector<std::byte> bytes = {};
    int readers = 0;          ///< Threads that copy from it.
    bool is_loading = false;  ///< Whether a thread reads it from the file.
    uint64_t used = 0;        ///< Time of the last use, by `clock_`.
  };
  /// The bytes of a recent read. A read that begins within them or at their end is sequential.
  struct Range {
    const FileWindow* window = nullptr;
    int64_t begin = 0;
    int64_t end = 0;
    uint64_t used = 0;
  };

  bool is_sequential(const FileWindow& window, int64_t begin, int64_t end);
  Block* find(const FileWindow& window, int64_t number);
  /// Returns a block to load, or null if threads use all of them.
  Block* take_free();

  std::mutex mutex_;
  uint64_t clock_ = 0;
  std::deque<Block> blocks_;
  std::array<Range, 32> recent_;
  std::deque<std::shared_ptr<const sys::File>> open_files_;
};

/// Reads a file by offset, without holding it and without mapping it. A sequential read fills
/// blocks ahead; any other read transfers its own bytes alone. Several threads may read at once.
class FileWindow {
 public:
  /// Opens a regular file. Error{kIo} and Error{kBadFile} as sys::open_for_read().
  explicit FileWindow(const std::string& path,
                      std::shared_ptr<WindowMemory> memory = std::make_shared<WindowMemory>());
  ~FileWindow();
  FileWindow(const FileWindow&) = delete;
  FileWindow& operator=(const FileWindow&) = delete;

  const std::string& path() const { return path_; }
  int64_t size() const { return version_.size; }  ///< Bytes of the file when it was opened.

  /// Reads bytes [offset, offset + out.size()), which are in the file. Error{kBadFile} naming the
  /// file and the offset if the file was cut, written or replaced since it was opened; Error{kIo}
  /// if the system cannot read it.
  void read(int64_t offset, std::span<std::byte> out) const;
  /// Returns the first bytes of the file, at most `count`.
  std::vector<std::byte> head(int64_t count) const;

 private:
  std::shared_ptr<const sys::File> file() const;
  void transfer(int64_t offset, std::span<std::byte> out) const;
  void check_version(const sys::File& file, int64_t offset) const;
  void load(std::unique_lock<std::mutex>& lock, WindowMemory::Block& block, int64_t number) const;
  void read_in_block(int64_t offset, std::span<std::byte> out, bool sequential) const;

  std::string path_;
  sys::FileVersion version_;
  std::shared_ptr<WindowMemory> memory_;
  mutable std::weak_ptr<const sys::File> file_;  ///< Guarded by the mutex of `memory_`.
};

}  // namespace sluice::data
