#pragma once
#include <array>
#include <string_view>

#include "sluice/exe/executable.h"

/// The words for the enumerators in the text form. Word i is for the enumerator of value i.
namespace sluice::exe {

inline constexpr std::array<std::string_view, 4> kSpaceWords{"device", "pinned", "host", "file"};
inline constexpr std::array<std::string_view, 8> kArenaWords{
    "persistent", "frames", "workspace", "slots", "tier", "staging", "checksums", "rings"};
inline constexpr std::array<std::string_view, 3> kAccessWords{"read", "write", "update"};
inline constexpr std::array<std::string_view, 4> kTransferWords{"stream_in", "stream_out",
                                                                "remote_load", "remote_store"};

inline std::string_view word(Space v) { return at(kSpaceWords, v); }
inline std::string_view word(ArenaKind v) { return at(kArenaWords, v); }
inline std::string_view word(Access v) { return at(kAccessWords, v); }
inline std::string_view word(TransferKind v) { return at(kTransferWords, v); }

}  // namespace sluice::exe
