#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/data/window/file_window.h"

namespace sluice::data {

/// The text of a CSV file: in its file, or in memory if the file is gzip. Several threads may use
/// one object.
class CsvText {
 public:
  /// Opens the file. Error{kIo} if it cannot be read; Error{kBadFile} for another kind of file.
  explicit CsvText(const std::string& path,
                   std::shared_ptr<WindowMemory> memory = std::make_shared<WindowMemory>());

  const std::string& path() const { return path_; }
  int64_t begin() const { return begin_; }  ///< Byte after a byte order mark.
  /// Byte before the empty lines at the end.
  int64_t end() const { return end_; }

  /// The bytes of a text in memory; empty for a text in its file.
  std::string_view held() const;
  bool is_held() const { return window_ == nullptr; }
  /// Reads bytes of a text in its file from byte `offset` on. Errors as FileWindow::read().
  void read(int64_t offset, std::span<char> out) const;

 private:
  void trim();

  std::string path_;
  std::unique_ptr<const FileWindow> window_;
  std::vector<std::byte> held_;
  int64_t begin_ = 0;
  int64_t end_ = 0;
};

}  // namespace sluice::data
