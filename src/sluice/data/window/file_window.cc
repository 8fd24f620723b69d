#include "sluice/data/window/file_window.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "sluice/base/error.h"

namespace sluice::data {

bool WindowMemory::is_sequential(const FileWindow& window, int64_t begin, int64_t end) {
  Range* oldest = &recent_[0];
  for (Range& range : recent_) {
    if (range.window == &window && begin > range.begin && begin <= range.end) {
      range = {&window, begin, end, ++clock_};
      return true;
    }
    if (range.used < oldest->used) oldest = &range;
  }
  *oldest = {&window, begin, end, ++clock_};
  return false;
}

WindowMemory::Block* WindowMemory::find(const FileWindow& window, int64_t number) {
  for (Block& block : blocks_) {
    if (block.window == &window && block.number == number) return &block;
  }
  return nullptr;
}

WindowMemory::Block* WindowMemory::take_free() {
  Block* oldest = nullptr;
  for (Block& block : blocks_) {
    if (block.window == nullptr) return &block;
    if (block.readers > 0 || block.is_loading) continue;
    if (oldest == nullptr || block.used < oldest->used) oldest = &block;
  }
  if (blocks_.size() < kMaxBlocks) return &blocks_.emplace_back();
  return oldest;
}

FileWindow::FileWindow(const std::string& path, std::shared_ptr<WindowMemory> memory)
    : path_(path), memory_(std::move(memory)) {
  version_ = sys::version_of(*file(), path_);
}

FileWindow::~FileWindow() {
  const std::lock_guard lock(memory_->mutex_);
  for (WindowMemory::Block& block : memory_->blocks_) {
    if (block.window == this) block.window = nullptr;
  }
  for (WindowMemory::Range& range : memory_->recent_) {
    if (range.window == this) range = {};
  }
}

std::shared_ptr<const sys::File> FileWindow::file() const {
  {
    const std::lock_guard lock(memory_->mutex_);
    if (auto open = file_.lock()) return open;
  }
  auto opened = std::make_shared<const sys::File>(sys::open_for_read(path_));
  const std::lock_guard lock(memory_->mutex_);
  auto& all = memory_->open_files_;
  all.push_back(opened);
  if (all.size() > WindowMemory::kMaxOpenFiles) all.pop_front();
  file_ = opened;
  return opened;
}

void FileWindow::check_version(const sys::File& file, int64_t offset) const {
  const sys::FileVersion now = sys::version_of(file, path_);
  if (now == version_) return;
  fail(ErrorKind::kBadFile, "{}: byte {}: the file must not change while it is read, got {}", path_,
       offset,
       now.size != version_.size
           ? fmt::format("{} bytes instead of {}", now.size, version_.size)
           : "other contents of the same size; write the new file under another name");
}

void FileWindow::transfer(int64_t offset, std::span<std::byte> out) const {
  const std::shared_ptr<const sys::File> open = file();
  try {
    sys::read_exactly(*open, path_, offset, out);
  } catch (const Error&) {
    check_version(*open, offset);  // A file that was cut.
    throw;
  }
  check_version(*open, offset);
}

void FileWindow::load(std::unique_lock<std::mutex>& lock, WindowMemory::Block& block,
                      int64_t number) const {
  constexpr int64_t kBytes = WindowMemory::kMaxBlockBytes;
  block.window = this;
  block.number = number;
  block.is_loading = true;
  lock.unlock();
  try {
    const int64_t bytes = std::min(kBytes, size() - number * kBytes);
    if (std::ssize(block.bytes) < bytes) block.bytes.resize(static_cast<size_t>(bytes));
    transfer(number * kBytes, std::span(block.bytes).first(static_cast<size_t>(bytes)));
  } catch (...) {
    lock.lock();
    block.is_loading = false;
    block.window = nullptr;
    throw;
  }
  lock.lock();
  block.is_loading = false;
}

void FileWindow::read_in_block(int64_t offset, std::span<std::byte> out, bool sequential) const {
  constexpr int64_t kBytes = WindowMemory::kMaxBlockBytes;
  const int64_t number = offset / kBytes;
  WindowMemory& memory = *memory_;
  std::unique_lock lock(memory.mutex_);
  WindowMemory::Block* block = memory.find(*this, number);
  if (block == nullptr && sequential) {
    block = memory.take_free();
    if (block != nullptr) load(lock, *block, number);
  } else if (block != nullptr && block->is_loading) {
    block = nullptr;
  }
  if (block == nullptr) {
    lock.unlock();
    transfer(offset, out);
    return;
  }
  block->used = ++memory.clock_;
  ++block->readers;
  lock.unlock();
  std::memcpy(out.data(), block->bytes.data() + (offset - number * kBytes), out.size());
  lock.lock();
  --block->readers;
}

void FileWindow::read(int64_t offset, std::span<std::byte> out) const {
  SLUICE_CHECK(offset >= 0 && std::ssize(out) <= size() && offset <= size() - std::ssize(out));
  if (out.empty()) return;
  constexpr int64_t kBytes = WindowMemory::kMaxBlockBytes;
  if (std::ssize(out) >= kBytes) {
    transfer(offset, out);
    return;
  }
  bool sequential = size() <= kBytes;
  if (!sequential) {
    const std::lock_guard lock(memory_->mutex_);
    sequential = memory_->is_sequential(*this, offset, offset + std::ssize(out));
  }
  const int64_t rest = kBytes - offset % kBytes;
  const auto first = static_cast<size_t>(std::min<int64_t>(rest, std::ssize(out)));
  read_in_block(offset, out.first(first), sequential);
  if (first < out.size())
    read_in_block(offset + static_cast<int64_t>(first), out.subspan(first), sequential);
}

std::vector<std::byte> FileWindow::head(int64_t count) const {
  std::vector<std::byte> bytes(static_cast<size_t>(std::min(count, size())));
  read(0, bytes);
  return bytes;
}

}  // namespace sluice::data
