#pragma once
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/base/bytes.h"

namespace sluice::data {

/// Returns the bytes that a gzip file holds: those of all its members. Memory grows with the
/// expanded bytes alone. Error{kBadFile} naming `file` and the byte if it is damaged.
std::vector<std::byte> expand_gzip(std::span<const std::byte> bytes, const std::string& file);

/// Returns the bytes of the file at `path`, expanded if they are gzip, whatever its name. Errors
/// are those of sys::read_file() and of refuse_other_kind(): the file must be `wanted`.
std::vector<std::byte> read_contents(const std::string& path, Contents contents,
                                     std::string_view wanted);

/// Returns the path in `folder` of the file `name`, plain or `.gz`. An IDX file, such as
/// "train-images-idx3-ubyte", may also have a dot before "idx", as some tools extract it. Nothing
/// if the folder has none of them.
std::optional<std::string> find_data_file(const std::string& folder, const std::string& name);

}  // namespace sluice::data
