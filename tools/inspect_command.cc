#include <fmt/core.h>

#include "sluice/base/safetensors.h"
#include "sluice/base/sys.h"
#include "sluice/base/system/folder.h"
#include "sluice/data/mnist.h"
#include "sluice/exe/text.h"
#include "sluice/report/compare.h"
#include "sluice/report/plan_report.h"
#include "tools/data/user_data.h"
#include "tools/options.h"
#include "tools/run/checkpoints.h"

namespace sluice::tool {
namespace {

bool has(const std::string& path, std::string_view part) {
  return path.find(part) != std::string::npos;
}

report::ReportFacts read_report(const std::string& path) {
  const auto bytes = sys::read_file(path);
  return report::read_facts({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path);
}

}  // namespace

int run_inspect(const ToolOptions& o) {
  require(o.other.empty() || has(o.file, ".json"),
          "inspect: must have two reports (*.json) to compare, got {}", o.file);
  if (sys::is_folder(o.file)) {
    inspect_folder(o.file);
    return 0;
  }
  const auto bytes = sys::read_file(o.file);
  if (has(o.file, "idx3-ubyte")) {
    const HostTensor images = data::read_idx_images(bytes, o.file);
    fmt::print("{}: {} images of {} x {}\n", o.file, images.shape()[0], images.shape()[1],
               images.shape()[2]);
  } else if (has(o.file, "idx1-ubyte")) {
    const HostTensor labels = data::read_idx_labels(bytes, o.file);
    fmt::print("{}: {} labels\n", o.file, labels.elements());
  } else if (has(o.file, ".safetensors")) {
    int64_t total = 0;
    for (const NamedArray& a : read_safetensors(bytes, o.file)) {
      fmt::print("{:<40} {:<10} {:<20} {:>12} B\n", a.name, name_of(a.array.dtype()),
                 to_string(a.array.shape()), a.array.spec().bytes());
      total += a.array.spec().bytes();
    }
    const SafetensorsIndex index =
        read_safetensors_index(bytes, static_cast<int64_t>(bytes.size()), o.file);
    for (const ForeignTensor& t : index.foreign) {
      fmt::print("{:<40} {:<10} {:<20} {:>12} B\n", t.name, t.dtype, to_string(t.shape), t.bytes);
      total += t.bytes;
    }
    if (const auto schema = schema_of_weights(o.file))
      fmt::print("table: {}\n", data::to_string(*schema));
    fmt::print("{} bytes in all\n", total);
  } else if (has(o.file, ".plan")) {
    const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    fmt::print("{}", report::summary(report::plan_report(exe::parse_text(text, o.file))));
  } else if (has(o.file, ".json")) {
    const report::ReportFacts facts = read_report(o.file);
    fmt::print("{}", o.other.empty() ? report::describe(facts)
                                     : report::compare(facts, read_report(o.other)));
  } else {
    fail(ErrorKind::kUsage,
         "inspect: {} is none of *idx3-ubyte[.gz], *idx1-ubyte[.gz], *.safetensors, *.plan, "
         "*.json, or a "
         "folder of checkpoints",
         o.file);
  }
  return 0;
}

}  // namespace sluice::tool
