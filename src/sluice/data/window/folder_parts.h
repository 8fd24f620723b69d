#pragma once
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "sluice/data/dataset.h"
#include "sluice/data/window/file_window.h"

namespace sluice::data {

/// Whether `path` is a folder.
bool is_folder(const std::string& path);

/// Returns the files of a folder whose names end with one of `endings`, in the order of their
/// names; of another path, the path itself. Error{kBadFile} for a folder without such a file, or
/// with files of several endings. Error{kIo} if the folder cannot be read.
std::vector<std::string> parts_of(const std::string& path,
                                  std::initializer_list<std::string_view> endings);

/// Joins the elements of the parts of a folder. read(part, memory) opens a part; all parts share
/// one window memory. Error{kBadFile}, which names the part, if its elements have other specs than
/// elements of the first part.
Dataset join_parts(
    const std::vector<std::string>& parts,
    const std::function<Dataset(const std::string&, const std::shared_ptr<WindowMemory>&)>& read);

}  // namespace sluice::data
