#include "sluice/report/forecast/rates.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "sluice/base/error.h"

namespace sluice::report {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kSchema = "sluice machine";
constexpr int kVersion = 1;
constexpr double kLargest = 1e30;  // A finite limit, so that sums of times are finite.

class RateReader {
 public:
  explicit RateReader(const std::string& path) : path_(path) {}

  Rates run(const Json& json) const {
    std::set<std::string> names = {"schema",   "version",      "threads",  "flops",
                                   "copies",   "remote",       "messages", "latency",
                                   "together", "kernel_begin", "kernels",  "caches"};
    if (json.contains("cluster")) names.insert("cluster");
    require_fields(json, "the file", names);
    Rates r;
    const double threads = number(json, "threads", 1, 1024);
    r.threads = static_cast<int>(threads);
    if (r.threads != threads) bad("'threads' must be a whole number");
    r.flops = rate(json, "flops");
    r.copies = rate(json, "copies");
    r.remote = rate(json, "remote");
    r.messages = rate(json, "messages");
    r.latency = number(json, "latency", 0, kLargest);
    r.kernel_begin = number(json, "kernel_begin", 0, kLargest);
    r.together = number(json, "together", 1e-3, 1);
    if (!json["kernels"].is_object()) bad("'kernels' must be an object");
    for (const auto& [op, rows] : json["kernels"].items()) {
      for (const Json& row : list(rows, op)) {
        require_fields(row, op, {"intensity", "flops"});
        r.kernels[op].push_back({rate(row, "intensity"), rate(row, "flops")});
      }
      require_ascending(r.kernels[op], &KernelRate::intensity, op, "intensity");
    }
    for (const Json& row : list(json["caches"], "caches")) {
      require_fields(row, "caches", {"bytes", "copies"});
      const double bytes = number(row, "bytes", 1, 1e15);
      r.caches.push_back({static_cast<int64_t>(bytes), rate(row, "copies")});
    }
    require_ascending(r.caches, &CacheRate::bytes, "caches", "bytes");
    if (json.contains("cluster")) r.cluster = cluster(json["cluster"], r);
    return r;
  }

  [[noreturn]] void bad(const std::string& why) const {
    fail(ErrorKind::kBadFile, "{}: {}; sluice doctor --measure FILE writes such a file", path_,
         why);
  }

 private:
  void require_fields(const Json& json, const std::string& where,
                      const std::set<std::string>& names) const {
    if (!json.is_object()) bad(fmt::format("'{}' must have objects", where));
    for (const std::string& name : names) {
      if (!json.contains(name)) bad(fmt::format("{} has no field '{}'", where, name));
    }
    for (const auto& [name, value] : json.items()) {
      if (!names.contains(name)) bad(fmt::format("{} has an unknown field '{}'", where, name));
    }
  }

  double number(const Json& json, const char* name, double min, double max) const {
    if (!json[name].is_number()) bad(fmt::format("'{}' must be a number", name));
    const double value = json[name].get<double>();
    if (!(value >= min && value <= max))
      bad(fmt::format("'{}' must be from {:g} to {:g}, got {:g}", name, min, max, value));
    return value;
  }

  Cluster cluster(const Json& json, const Rates& inside) const {
    std::set<std::string> names = {"order", "links"};
    if (json.is_object() && json.contains("pairs")) names.insert({"devices", "pairs"});
    if (json.is_object() && json.contains("devices")) names.insert("devices");
    require_fields(json, "cluster", names);
    Cluster c;
    if (json.contains("devices")) c.devices = whole(json, "devices", 1);
    if (json["order"] == "devices") {
      c.order = Cluster::Order::kDevices;
    } else if (json["order"] != "replicas") {
      bad(fmt::format("'order' must be \"replicas\" or \"devices\", got {}", json["order"].dump()));
    }
    LinkLevel last{.devices = 1, .messages = inside.messages, .latency = inside.latency};
    for (const Json& row : list(json["links"], "links")) {
      require_fields(row, "links", {"devices", "messages", "latency"});
      const LinkLevel level{.devices = whole(row, "devices", 2),
                            .messages = rate(row, "messages"),
                            .latency = number(row, "latency", 0, kLargest)};
      if (level.devices % last.devices != 0 || level.devices == last.devices)
        bad(fmt::format("'devices' of a level must be a larger multiple of {}, got {}",
                        last.devices, level.devices));
      if (level.messages > last.messages || level.latency < last.latency)
        bad(
            fmt::format("a level of links must not be faster than the level inside it: {:g} B/s "
                        "and {:g} s, got {:g} B/s and {:g} s",
                        last.messages, last.latency, level.messages, level.latency));
      c.links.push_back(level);
      last = level;
    }
    if (json.contains("pairs")) {
      for (const Json& row : list(json["pairs"], "pairs")) add_pair(row, c);
    }
    return c;
  }

  void add_pair(const Json& json, Cluster& c) const {
    require_fields(json, "pairs", {"devices", "between", "messages", "latency"});
    LinkPair pair{.devices = whole(json, "devices", 1),
                  .messages = rate(json, "messages"),
                  .latency = number(json, "latency", 0, kLargest)};
    const auto is_level = [&](const LinkLevel& level) { return level.devices == pair.devices; };
    if (pair.devices != 1 && std::none_of(c.links.begin(), c.links.end(), is_level))
      bad(fmt::format("'devices' of a pair must be 1 or those of a level of 'links', got {}",
                      pair.devices));
    const Json& between = list(json["between"], "between");
    const int64_t groups = (c.devices + pair.devices - 1) / pair.devices;
    const auto is_group = [&](const Json& index) {
      return index.is_number_unsigned() && index.get<uint64_t>() < static_cast<uint64_t>(groups);
    };
    if (between.size() != 2 || !is_group(between[0]) || !is_group(between[1]))
      bad(fmt::format("'between' must be two indices from 0 to {} of groups of {} devices, got {}",
                      groups - 1, pair.devices, between.dump()));
    pair.first = between[0].get<int64_t>();
    pair.second = between[1].get<int64_t>();
    if (pair.first == pair.second)
      bad(fmt::format("'between' must be two different indices, got {}", between.dump()));
    const auto same = [&](const LinkPair& other) {
      return other.devices == pair.devices &&
             std::minmax(other.first, other.second) == std::minmax(pair.first, pair.second);
    };
    if (std::any_of(c.pairs.begin(), c.pairs.end(), same))
      bad(fmt::format("'pairs' must have each pair once, got {} of groups of {} devices twice",
                      between.dump(), pair.devices));
    c.pairs.push_back(pair);
  }

  int64_t whole(const Json& json, const char* name, double min) const {
    const double value = number(json, name, min, 1e9);
    const auto result = static_cast<int64_t>(value);
    if (static_cast<double>(result) != value)
      bad(fmt::format("'{}' must be a whole number, got {:g}", name, value));
    return result;
  }

  double rate(const Json& json, const char* name) const {
    return number(json, name, 1e-3, kLargest);
  }

  const Json& list(const Json& rows, const std::string& name) const {
    if (!rows.is_array()) bad(fmt::format("'{}' must be a list", name));
    return rows;
  }

  template <typename Row, typename Field>
  void require_ascending(const std::vector<Row>& rows, Field Row::*key, const std::string& list,
                         const char* name) const {
    const auto wrong = [key](const Row& a, const Row& b) { return a.*key >= b.*key; };
    if (std::adjacent_find(rows.begin(), rows.end(), wrong) != rows.end())
      bad(fmt::format("'{}' must ascend by '{}'", list, name));
  }

  const std::string& path_;
};

}  // namespace

double Rates::flops_of(const std::string& kernel_class, double intensity) const {
  const auto found = kernels.find(kernel_class);
  if (found == kernels.end() || found->second.empty()) return 0;
  const std::vector<KernelRate>& rows = found->second;
  const auto above = std::find_if(rows.begin(), rows.end(),
                                  [&](const KernelRate& r) { return r.intensity >= intensity; });
  if (above == rows.begin()) return rows.front().flops;
  if (above == rows.end()) return rows.back().flops;
  const KernelRate& below = *std::prev(above);
  const double share =
      std::log(intensity / below.intensity) / std::log(above->intensity / below.intensity);
  return below.flops * std::pow(above->flops / below.flops, share);
}

double Rates::copies_of(double bytes) const {
  for (const CacheRate& cache : caches) {
    if (bytes <= static_cast<double>(cache.bytes)) return cache.copies;
  }
  return copies;
}

std::string kernel_class(const exe::Kernel& kernel) {
  constexpr int64_t kVector = 16;  // Floats of the widest vector.
  std::string name = kernel.op.substr(0, kernel.op.find('+'));
  const Attrs& attrs = kernel.stages.empty() ? kernel.attrs : kernel.stages[0].attrs;
  for (const auto& [option, value] : attrs.items) {
    if (value != AttrValue(true)) continue;
    if (option == "lhs_transposed") name += " lhs transposed";
    if (option == "rhs_transposed") name += " rhs transposed";
  }
  const Shape& made = kernel.operands.back().spec.shape;
  const bool gradient = name == "ConvWeightGrad";
  if (name.starts_with("Conv") && made.rank() > 1 && made[gradient ? 0 : 1] < kVector)
    name += " narrow";
  return name;
}

namespace {

Json cluster_json(const Cluster& c) {
  Json links = Json::array(), pairs = Json::array();
  for (const LinkLevel& level : c.links)
    links.push_back(
        {{"devices", level.devices}, {"messages", level.messages}, {"latency", level.latency}});
  const bool replicas = c.order == Cluster::Order::kReplicas;
  Json json = {{"order", replicas ? "replicas" : "devices"}, {"links", links}};
  if (c.devices > 0) json["devices"] = c.devices;
  for (const LinkPair& pair : c.pairs)
    pairs.push_back({{"devices", pair.devices},
                     {"between", Json::array({pair.first, pair.second})},
                     {"messages", pair.messages},
                     {"latency", pair.latency}});
  if (!c.pairs.empty()) json["pairs"] = pairs;
  return json;
}

}  // namespace

std::string to_json(const Rates& r) {
  Json kernels = Json::object(), caches = Json::array();
  for (const auto& [op, rows] : r.kernels) {
    for (const KernelRate& row : rows)
      kernels[op].push_back({{"intensity", row.intensity}, {"flops", row.flops}});
  }
  for (const CacheRate& row : r.caches)
    caches.push_back({{"bytes", row.bytes}, {"copies", row.copies}});
  Json json = {{"schema", kSchema},      {"version", kVersion},  {"threads", r.threads},
               {"flops", r.flops},       {"copies", r.copies},   {"remote", r.remote},
               {"messages", r.messages}, {"latency", r.latency}, {"kernel_begin", r.kernel_begin},
               {"together", r.together}, {"kernels", kernels},   {"caches", caches}};
  if (r.cluster) json["cluster"] = cluster_json(*r.cluster);
  return json.dump(1) + "\n";
}

Rates read_rates(std::string_view text, const std::string& path) {
  const RateReader reader(path);
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("schema") || json["schema"] != kSchema)
    reader.bad("this is not the description of a machine");
  if (!json.contains("version") || json["version"] != kVersion)
    reader.bad(fmt::format("its version must be {}", kVersion));
  return reader.run(json);
}

}  // namespace sluice::report
