#include "sluice/data/table/csv_text.h"

#include <algorithm>
#include <array>
#include <utility>

#include "sluice/base/bytes.h"
#include "sluice/data/files/contents.h"

namespace sluice::data {

CsvText::CsvText(const std::string& path, std::shared_ptr<WindowMemory> memory) : path_(path) {
  constexpr std::string_view kWanted = "a CSV file";
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  auto window = std::make_unique<const FileWindow>(path, std::move(memory));
  const std::vector<std::byte> head = window->head(4096);
  if (is_gzip(head)) {
    held_ = read_contents(path, Contents::kText, kWanted);
    end_ = static_cast<int64_t>(held_.size());
    if (held().starts_with(kByteOrderMark)) begin_ = kByteOrderMark.size();
  } else {
    refuse_other_kind(head, path, Contents::kText, kWanted);
    const std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
    if (text.starts_with(kByteOrderMark)) begin_ = kByteOrderMark.size();
    end_ = window->size();
    window_ = std::move(window);
  }
  trim();
}

/// Skips empty lines at the end. Does not skip `\t`, which may separate empty cells.
void CsvText::trim() {
  constexpr std::string_view kEmpty = " \r\n";
  std::array<char, 4096> part;
  while (end_ > begin_) {
    const int64_t from = std::max(begin_, end_ - std::ssize(part));
    const std::span<char> bytes = std::span(part).first(static_cast<size_t>(end_ - from));
    if (is_held()) {
      std::copy_n(held().begin() + from, bytes.size(), bytes.begin());
    } else {
      window_->read(from, std::as_writable_bytes(bytes));
    }
    const std::string_view text(bytes.data(), bytes.size());
    const size_t last = text.find_last_not_of(kEmpty);
    end_ = from + static_cast<int64_t>(last + 1);  // npos + 1 is 0.
    if (last != text.npos) return;
  }
}

std::string_view CsvText::held() const {
  return {reinterpret_cast<const char*>(held_.data()), held_.size()};
}

void CsvText::read(int64_t offset, std::span<char> out) const {
  window_->read(offset, std::as_writable_bytes(out));
}

}  // namespace sluice::data
