#include "sluice/data/window/folder_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "sluice/base/error.h"
#include "sluice/base/sys.h"
#include "sluice/data/window/indexed_rows.h"

namespace sluice::data {

bool is_folder(const std::string& path) { return sys::exists(path + "/."); }

std::vector<std::string> parts_of(const std::string& path,
                                  std::initializer_list<std::string_view> endings) {
  if (!is_folder(path)) return {path};
  std::vector<std::string> parts;
  std::string_view ending;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(path, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    for (const std::string_view e : endings) {
      if (!name.ends_with(e)) continue;
      if (!ending.empty() && e != ending) {
        fail(ErrorKind::kBadFile, "{}: the files of a folder must have one format, got {} and {}",
             path, ending, e);
      }
      ending = e;
      parts.push_back(path + "/" + name);
    }
  }
  if (error) fail(ErrorKind::kIo, "cannot read the folder {}: {}", path, error.message());
  if (parts.empty()) {
    fail(ErrorKind::kBadFile, "{}: a folder of parts must have files that end with {}, got none",
         path, fmt::join(endings, " or "));
  }
  std::sort(parts.begin(), parts.end());
  return parts;
}

Dataset join_parts(
    const std::vector<std::string>& parts,
    const std::function<Dataset(const std::string&, const std::shared_ptr<WindowMemory>&)>& read) {
  const auto memory = std::make_shared<WindowMemory>();
  std::vector<Dataset> datasets;
  for (const std::string& part : parts) {
    datasets.push_back(read(part, memory));
    const ElementSpecs found = *datasets.back().element_specs();
    const ElementSpecs first = *datasets[0].element_specs();
    if (found != first) {
      fail(ErrorKind::kBadFile, "{}: must have elements {} like {}, got {}", part, to_string(first),
           parts[0], to_string(found));
    }
  }
  return join_rows(datasets);
}

}  // namespace sluice::data
