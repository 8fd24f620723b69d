#include "sluice/runtime/remote_store.h"

#include <algorithm>

#include "sluice/base/checked.h"
#include "sluice/base/error.h"
#include "sluice/base/hash.h"

namespace sluice::runtime {

RemoteStore::RemoteStore(const exe::Executable& executable, const Placement& placement, int replica,
                         const Ids<exe::ArenaId, std::byte*>& arenas, const std::string& folder,
                         Throttle& throttle)
    : executable_(executable),
      arenas_(arenas),
      name_("a file in " + folder),
      throttle_(throttle),
      files_(executable.arenas.size()) {
  for (const exe::ArenaId a : arenas.ids()) {
    const exe::Arena& arena = executable.arenas[a];
    if (arena.kind == exe::ArenaKind::kStaging && arena.space == exe::Space::kHost)
      staging_ = {arenas[a], arenas[a] + arena.bytes};
    if (arena.kind == exe::ArenaKind::kChecksums) {
      checksums_ = reinterpret_cast<uint64_t*>(arenas[a]);
      std::fill_n(arenas[a], arena.bytes, std::byte{0});
    }
  }
  const auto cache = staging_.empty() ? sys::PageCache::kUse : sys::PageCache::kBypass;
  for (const exe::ArenaId a : arenas.ids()) {
    const exe::Arena& arena = executable.arenas[a];
    if (arena.space != exe::Space::kFile) continue;
    require(!folder.empty(), "executable: a file tier requires a folder, got none");
    files_[a] = sys::scratch_file(folder, placement.bytes_of(replica, a), cache);
  }
  int64_t checksums = 0;
  for (const exe::BufferId b : executable.remote_buffers.ids()) {
    const exe::RemoteBufferPlan& buffer = executable.remote_buffers[b];
    offsets_.push_back(placement.offset_of(replica, b));
    first_checksums_.push_back(checksums);
    checksums += exe::checksums_of_entry(buffer) * buffer.entries;
  }
}

std::byte* RemoteStore::memory(const Range& at) const {
  std::byte* const base = arenas_[plan(at).arena];
  return base == nullptr ? nullptr : base + file_offset(at);
}

const sys::File& RemoteStore::file(const Range& at) const { return files_[plan(at).arena]; }

int64_t RemoteStore::file_offset(const Range& at) const {
  return offsets_[at.buffer] + at.entry * plan(at).entry_stride + at.begin;
}

bool RemoteStore::whole_pieces(const Range& at) const {
  return at.begin % exe::kChecksumPiece == 0 &&
         (at.end % exe::kChecksumPiece == 0 || at.end == plan(at).spec.bytes());
}

// Calls f(piece, begin, end) for each piece of an entry that the range touches. [begin, end) is the
// part of the piece inside the range.
template <typename F>
void RemoteStore::for_each_piece(const Range& all, F&& f) const {
  constexpr int64_t kPiece = exe::kChecksumPiece;
  for (int64_t begin = all.begin / kPiece * kPiece; begin < all.end; begin += kPiece) {
    const int64_t end = std::min(begin + kPiece, plan(all).spec.bytes());
    f(Range{all.buffer, all.entry, begin, end}, std::max(begin, all.begin), std::min(end, all.end));
  }
}

template <typename F>
void RemoteStore::explained(const char* action, const Range& at, F&& f) {
  try {
    f();
  } catch (Error& e) {
    throw e.note(fmt::format("{} entry {} of remote buffer {}", action, at.entry, plan(at).name));
  }
}

void RemoteStore::load(exe::BufferId buffer, int64_t entry, int64_t offset,
                       std::span<std::byte> out) {
  const auto bytes = static_cast<int64_t>(out.size());
  const Range all{buffer, entry, offset, offset + bytes};
  const Throttle::Time end = throttle_.reserve(bytes);
  explained("loading", all, [&] { fetch(all, out.data()); });
  throttle_.sleep_until(end);
}

void RemoteStore::store(exe::BufferId buffer, int64_t entry, int64_t offset,
                        std::span<const std::byte> in) {
  const auto bytes = static_cast<int64_t>(in.size());
  const Range all{buffer, entry, offset, offset + bytes};
  const Throttle::Time end = throttle_.reserve(bytes);
  explained("storing", all, [&] { put(all, in.data()); });
  throttle_.sleep_until(end);
}

void RemoteStore::read(exe::BufferId buffer, int64_t entry, int64_t offset,
                       std::span<std::byte> out) {
  const Range all{buffer, entry, offset, offset + static_cast<int64_t>(out.size())};
  explained("loading", all, [&] {
    if (memory(all) != nullptr || whole_pieces(all)) return fetch(all, out.data());
    std::vector<std::byte> bytes(exe::kChecksumPiece);
    for_each_piece(all, [&](const Range& piece, int64_t begin, int64_t end) {
      fetch(piece, bytes.data());
      std::copy_n(bytes.data() + (begin - piece.begin), end - begin,
                  out.data() + (begin - all.begin));
    });
  });
}

void RemoteStore::write(exe::BufferId buffer, int64_t entry, int64_t offset,
                        std::span<const std::byte> in) {
  const Range all{buffer, entry, offset, offset + static_cast<int64_t>(in.size())};
  explained("storing", all, [&] {
    if (memory(all) != nullptr || whole_pieces(all)) return put(all, in.data());
    std::vector<std::byte> bytes(exe::kChecksumPiece);
    for_each_piece(all, [&](const Range& piece, int64_t begin, int64_t end) {
      if (end - begin < piece.end - piece.begin) fetch(piece, bytes.data());
      std::copy_n(in.data() + (begin - all.begin), end - begin,
                  bytes.data() + (begin - piece.begin));
      put(piece, bytes.data());
    });
  });
}

void RemoteStore::fetch(const Range& at, std::byte* to) {
  const int64_t size = at.end - at.begin;
  if (const std::byte* const from = memory(at)) {
    std::copy_n(from, size, to);
    return;
  }
  if (staging_.empty()) {
    sys::read_exactly(file(at), name_, file_offset(at), {to, to + size});
  } else {
    by_staging(at, [&](const Range& part, std::span<std::byte> pages) {
      sys::read_exactly(file(at), name_, file_offset(part), pages);
      std::copy_n(pages.data(), part.end - part.begin, to + (part.begin - at.begin));
    });
  }
  verify(at, to);
}

void RemoteStore::put(const Range& at, const std::byte* from) {
  const int64_t size = at.end - at.begin;
  if (std::byte* const to = memory(at)) {
    std::copy_n(from, size, to);
    return;
  }
  if (staging_.empty()) {
    sys::write_exactly(file(at), name_, file_offset(at), {from, from + size});
  } else {
    by_staging(at, [&](const Range& part, std::span<std::byte> pages) {
      std::copy_n(from + (part.begin - at.begin), part.end - part.begin, pages.data());
      sys::write_exactly(file(at), name_, file_offset(part), pages);
    });
  }
  sign(at, from);
}

// Calls f(part, pages) for consecutive parts of the range, with whole pages of staging memory for
// each part. Whole pages may be written, because the padding of the last page belongs to the entry.
template <typename F>
void RemoteStore::by_staging(const Range& at, F&& f) {
  const std::lock_guard lock(staging_lock_);
  const auto max = static_cast<int64_t>(staging_.size());
  for (int64_t begin = at.begin; begin < at.end; begin += max) {
    const Range part{at.buffer, at.entry, begin, std::min(begin + max, at.end)};
    std::byte* const pages = staging_.data();
    f(part, std::span(pages, pages + round_up(part.end - part.begin, sys::kFilePage)));
  }
}

uint64_t& RemoteStore::checksum(const Range& piece) {
  return checksums_[first_checksums_[piece.buffer] +
                    piece.entry * exe::checksums_of_entry(plan(piece)) +
                    piece.begin / exe::kChecksumPiece];
}

namespace {

// Returns a hash that is never 0, because 0 marks a piece that was never written.
uint64_t checksum_of(const std::byte* bytes, int64_t size) {
  const auto* const begin = reinterpret_cast<const char*>(bytes);
  const uint64_t sum = hash64({begin, begin + size});
  return sum == 0 ? 1 : sum;
}

}  // namespace

void RemoteStore::verify(const Range& at, const std::byte* bytes) {
  if (checksums_ == nullptr) return;
  for_each_piece(at, [&](const Range& piece, int64_t, int64_t) {
    const uint64_t want = checksum(piece);
    const uint64_t found = checksum_of(bytes + (piece.begin - at.begin), piece.end - piece.begin);
    if (want == 0 || want == found) return;
    fail(ErrorKind::kIo,
         "{}: bytes [{}, {}) of an entry differ from the bytes written: checksum must be {:016x}, "
         "got {:016x}",
         name_, piece.begin, piece.end, want, found);
  });
}

void RemoteStore::sign(const Range& at, const std::byte* bytes) {
  if (checksums_ == nullptr) return;
  for_each_piece(at, [&](const Range& piece, int64_t, int64_t) {
    checksum(piece) = checksum_of(bytes + (piece.begin - at.begin), piece.end - piece.begin);
  });
}

}  // namespace sluice::runtime
