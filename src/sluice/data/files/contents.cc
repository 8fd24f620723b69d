#include "sluice/data/files/contents.h"

#include <limits>

#include "sluice/base/sys.h"
#include "sluice/data/files/inflate.h"

namespace sluice::data {

std::vector<std::byte> expand_gzip(std::span<const std::byte> bytes, const std::string& file) {
  Inflater inflater(bytes, file, Inflater::Format::kGzip);
  std::vector<std::byte> plain;
  inflater.append(plain, std::numeric_limits<int64_t>::max());
  inflater.finish();
  return plain;
}

std::vector<std::byte> read_contents(const std::string& path, Contents contents,
                                     std::string_view wanted) {
  std::vector<std::byte> bytes = sys::read_file(path);
  if (is_gzip(bytes)) bytes = expand_gzip(bytes, path);
  refuse_other_kind(bytes, path, contents, wanted);
  return bytes;
}

std::optional<std::string> find_data_file(const std::string& folder, const std::string& name) {
  std::string with_dot = name;
  if (const size_t at = name.find("-idx"); at != name.npos) with_dot[at] = '.';
  for (const std::string& spelling : {name, with_dot}) {
    for (const char* suffix : {"", ".gz"}) {
      std::string path = folder + "/" + spelling + suffix;
      if (sys::exists(path)) return path;
    }
  }
  return std::nullopt;
}

}  // namespace sluice::data
