#pragma once
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "sluice/base/sys.h"
#include "sluice/exe/executable.h"
#include "sluice/runtime/placement.h"
#include "sluice/runtime/throttle.h"

namespace sluice::runtime {

/// The entries of a replica's remote buffers, in host memory or in a file. The executable's arenas
/// determine the memory, whether file transfers bypass the page cache, and whether reads are
/// verified. Transfers of different entries may run at the same time. Errors are Error{kIo} and
/// name the folder of the file, the buffer and the entry.
class RemoteStore {
 public:
  /// `arenas` holds the address of each arena in host memory; others are null. `placement` says
  /// where the buffers of `replica` are in these arenas. Files are made in `folder`. Arenas and
  /// throttle must outlive the store. Error{kUsage} if a file tier exists and `folder` is empty.
  RemoteStore(const exe::Executable& executable, const Placement& placement, int replica,
              const Ids<exe::ArenaId, std::byte*>& arenas, const std::string& folder,
              Throttle& throttle);

  /// Transfer bytes of an entry from `offset` on, for a program. The transfer takes the time that
  /// the bandwidth of the tier requires. Bytes up to the end of the entry, or whole pieces of
  /// exe::kChecksumPiece bytes, are transferred.
  void load(exe::BufferId buffer, int64_t entry, int64_t offset, std::span<std::byte> out);
  void store(exe::BufferId buffer, int64_t entry, int64_t offset, std::span<const std::byte> in);
  /// Transfer bytes of an entry from `offset` on, between runs.
  void read(exe::BufferId buffer, int64_t entry, int64_t offset, std::span<std::byte> out);
  void write(exe::BufferId buffer, int64_t entry, int64_t offset, std::span<const std::byte> in);

 private:
  // Bytes [begin, end) of an entry.
  struct Range {
    exe::BufferId buffer;
    int64_t entry = 0;
    int64_t begin = 0;
    int64_t end = 0;
  };

  const exe::RemoteBufferPlan& plan(const Range& at) const {
    return executable_.remote_buffers[at.buffer];
  }
  std::byte* memory(const Range& at) const;
  const sys::File& file(const Range& at) const;
  int64_t file_offset(const Range& at) const;
  bool whole_pieces(const Range& at) const;
  template <typename F>
  void for_each_piece(const Range& all, F&& f) const;
  template <typename F>
  void explained(const char* action, const Range& at, F&& f);
  void fetch(const Range& at, std::byte* to);
  void put(const Range& at, const std::byte* from);
  template <typename F>
  void by_staging(const Range& at, F&& f);
  uint64_t& checksum(const Range& piece);
  void verify(const Range& at, const std::byte* bytes);
  void sign(const Range& at, const std::byte* bytes);

  const exe::Executable& executable_;
  const Ids<exe::ArenaId, std::byte*>& arenas_;
  const std::string name_;  ///< Name of the files in messages.
  Throttle& throttle_;
  Ids<exe::ArenaId, sys::File> files_;   ///< Open only in the file tier.
  Ids<exe::BufferId, int64_t> offsets_;  ///< For each buffer: its position in its arena.
  std::span<std::byte> staging_;         ///< Empty: file transfers use the page cache.
  std::mutex staging_lock_;
  uint64_t* checksums_ = nullptr;  ///< Null without checksums. 0: piece never written.
  Ids<exe::BufferId, int64_t> first_checksums_;  ///< For each buffer: index of its first checksum.
};

}  // namespace sluice::runtime
