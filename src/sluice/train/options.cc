#include "sluice/train/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "sluice/base/numbers/number_text.h"
#include "sluice/base/sys.h"
#include "sluice/train/pipeline/schedule.h"
#include "sluice/train/pipeline/stages.h"

namespace sluice::train {
namespace {

using nlohmann::json;

/// An option: how it is printed, and how it is read from a value of a file.
struct OptionRule {
  const char* name;
  std::string (*show)(const Options&);
  /// Null: the option has no form in a file.
  void (*read)(Options&, const json&);
};

template <typename T>
struct Word {
  const char* text;
  T value;
};

constexpr Word<Location> kLocations[] = {{"device", Location::kDevice},
                                         {"remote", Location::kRemote}};
constexpr Word<Offload> kOffloads[] = {{"given", Offload::kGiven},
                                       {"automatic", Offload::kAutomatic}};
constexpr Word<IoMode> kIoModes[] = {
    {"compute", IoMode::kCompute}, {"io", IoMode::kIo}, {"io_overlapped", IoMode::kIoOverlapped}};
constexpr Word<Accumulation> kAccumulations[] = {{"sum", Accumulation::kSum},
                                                 {"mean", Accumulation::kMean},
                                                 {"running_mean", Accumulation::kRunningMean}};
constexpr Word<ReplicaReduction> kReplicaReductions[] = {{"sum", ReplicaReduction::kSum},
                                                         {"mean", ReplicaReduction::kMean}};
constexpr Word<SessionOptions::Proof> kProofs[] = {{"check", SessionOptions::Proof::kCheck},
                                                   {"trust", SessionOptions::Proof::kTrust}};
constexpr Word<bool> kFlags[] = {{"false", false}, {"true", true}};

template <typename T, size_t n>
std::string word_of(const Word<T> (&words)[n], const T& value) {
  for (const Word<T>& w : words) {
    if (w.value == value) return w.text;
  }
  return "?";
}

// A flag of a file is the JSON value true or false; all others are strings.
template <typename T, size_t n>
void read_word(const Word<T> (&words)[n], const json& j, T& value) {
  const std::string text = j.is_string() ? j.get<std::string>() : j.dump();
  std::vector<std::string> all;
  for (const Word<T>& w : words) {
    if (text == w.text) {
      value = w.value;
      return;
    }
    all.emplace_back(w.text);
  }
  fail(ErrorKind::kBadFile, "must be one of {}, got {}", fmt::join(all, ", "), j.dump());
}

template <typename T>
void read_integer(const json& j, T& value) {
  const bool fits =
      j.is_number_integer() && (j.is_number_unsigned() ? std::in_range<T>(j.get<uint64_t>())
                                                       : std::in_range<T>(j.get<int64_t>()));
  if (!fits) {
    fail(ErrorKind::kBadFile, "must be an integer from {} to {}, got {}",
         std::numeric_limits<T>::min(), std::numeric_limits<T>::max(), j.dump());
  }
  value = j.get<T>();
}

void read_number(const json& j, double& value) {
  if (!j.is_number()) fail(ErrorKind::kBadFile, "must be a number, got {}", j.dump());
  value = j.get<double>();
}

std::string read_text(const json& j) {
  if (!j.is_string()) fail(ErrorKind::kBadFile, "must be a string, got {}", j.dump());
  return j.get<std::string>();
}

std::vector<std::string> read_texts(const json& j) {
  if (!j.is_array()) fail(ErrorKind::kBadFile, "must be a list of strings, got {}", j.dump());
  std::vector<std::string> texts;
  for (const json& item : j) texts.push_back(read_text(item));
  return texts;
}

const Stages* stages_of(const Options& o) {
  if (!o.strategy) return nullptr;
  if (const auto* p = std::get_if<PhasedExecution>(&*o.strategy))
    return p->stages ? &*p->stages : nullptr;
  if (const auto* s = std::get_if<OrderedExecution>(&*o.strategy)) return &s->stages;
  if (const auto* s = std::get_if<ShardedExecution>(&*o.strategy)) return &s->stages;
  if (const auto* p = std::get_if<PipelinedExecution>(&*o.strategy)) return &p->stages;
  return nullptr;
}

std::string show_stages(const Options& o) {
  const Stages* const stages = stages_of(o);
  if (stages == nullptr) return "none";
  if (const int* number = std::get_if<int>(stages)) return fmt::format("{}", *number);
  std::string text;
  for (const Stage& stage : std::get<std::vector<Stage>>(*stages)) {
    text += fmt::format("{}{}{}", text.empty() ? "" : ", ", fmt::join(stage.blocks(), "+"),
                        stage.device() ? fmt::format(" on {}", *stage.device()) : "");
  }
  return text.empty() ? "blocks" : text;
}

void set_stages(Options& o, Stages stages) {
  if (o.strategy) {
    if (auto* p = std::get_if<PhasedExecution>(&*o.strategy)) {
      p->stages = std::move(stages);
      return;
    }
    if (auto* s = std::get_if<ShardedExecution>(&*o.strategy)) {
      s->stages = std::move(stages);
      return;
    }
    if (auto* p = std::get_if<PipelinedExecution>(&*o.strategy)) {
      p->stages = std::move(stages);
      return;
    }
  }
  fail(ErrorKind::kBadFile, "requires the strategy phased, sharded or pipelined");
}

PipelinedExecution* pipelined_of(Options& o) {
  return o.strategy ? std::get_if<PipelinedExecution>(&*o.strategy) : nullptr;
}

constexpr const char* kStrategies[] = {"resident", "phased", "sharded", "pipelined", "a function"};

std::string show_strategy(const Options& o) {
  return o.strategy ? kStrategies[o.strategy->index()] : "automatic";
}

void read_strategy(Options& o, const json& j) {
  const std::string text = read_text(j);
  const Strategy all[] = {resident(), phased(), ShardedExecution{}, PipelinedExecution{}};
  for (const Strategy& s : all) {
    if (text == kStrategies[s.index()]) {
      o.strategy = s;
      return;
    }
  }
  fail(ErrorKind::kBadFile, "must be one of {}, got {}",
       fmt::join(std::begin(kStrategies), std::end(kStrategies) - 1, ", "), j.dump());
}

std::string show_output(const Options& o) {
  if (!o.output) return "default";
  switch (o.output->mode) {
    case Output::Mode::kAll:
      return "all";
    case Output::Mode::kFinal:
      return "final";
    case Output::Mode::kSum:
      return "sum";
    case Output::Mode::kEvery:
      break;
  }
  return fmt::format("every {}", o.output->period);
}

void read_output(Options& o, const json& j) { o.output = parse_output(read_text(j)); }

std::string show_recompute(const Options& o) {
  if (o.recompute.all) return "all";
  return o.recompute.blocks.empty() ? "none"
                                    : fmt::format("{}", fmt::join(o.recompute.blocks, ", "));
}

void read_recompute(Options& o, const json& j) {
  if (j.is_array()) {
    o.recompute = {.all = false, .blocks = read_texts(j)};
    return;
  }
  constexpr Word<bool> kWords[] = {{"none", false}, {"all", true}};
  o.recompute = {};
  read_word(kWords, j, o.recompute.all);
}

std::string show_rate(const Options& o) {
  if (o.learning_rate.index() == 0) return "default";
  if (const double* rate = std::get_if<double>(&o.learning_rate)) return number_text(*rate);
  const std::string& field = std::get<StreamedRate>(o.learning_rate).field;
  return field.empty() ? "streamed" : "streamed from " + field;
}

void read_rate(Options& o, const json& j) {
  if (j == "streamed") {
    o.learning_rate = StreamedRate{};
    return;
  }
  if (j == "default") {
    o.learning_rate = LearningRate();
    return;
  }
  double rate = 0;
  read_number(j, rate);
  o.learning_rate = rate;
}

std::string show_accumulators(const Options& o) {
  if (const DType* dtype = std::get_if<DType>(&o.accumulator_dtype))
    return std::string(name_of(*dtype));
  return o.accumulator_dtype.index() == 0 ? "variable's" : "a function";
}

void read_accumulators(Options& o, const json& j) {
  o.accumulator_dtype = dtype_from_name(read_text(j));
}

std::string show_limit(int64_t bytes) { return bytes < 0 ? "none" : fmt::format("{}", bytes); }

std::string show_sharded(const Options& o) {
  const int64_t n = o.locations.min_elements_sharded;
  return n == nn::kNeverShard ? "never" : fmt::format("{}", n);
}

// Rules of members with one form each.
#define SLUICE_INTEGER(member)                                                                   \
  {                                                                                              \
#member,                                                                                     \
        [](const Options&                                                                        \
               o) { return fmt::format("{}", o.member); },                                       \
                                                        [](Options & o,                          \
                                                           const json&                           \
                                                               j) { read_integer(j, o.member); } \
  }
#define SLUICE_NUMBER(member)                                                                      \
  {                                                                                                \
#member,                                                                                       \
        [](const Options&                                                                          \
               o) { return fmt::format("{}", o.member); }, [](Options & o,                         \
                                                              const json&                          \
                                                                  j) { read_number(j, o.member); } \
  }
#define SLUICE_WORD(member, words)                                                                \
  {                                                                                               \
#member,                                                                                      \
        [](const Options&                                                                         \
               o) { return word_of(words, o.member); },                                           \
                                                     [](Options & o,                              \
                                                        const json&                               \
                                                            j) { read_word(words, j, o.member); } \
  }

// In the order in which a file is applied: the strategy precedes its stages.
const OptionRule kRules[] = {
    {"strategy", show_strategy, read_strategy},
    {"stages", show_stages,
     [](Options& o, const json& j) {
       set_stages(o, parse_stages(j.is_number_integer() ? std::vector{j.dump()} : read_texts(j)));
     }},
    {"schedule",
     [](const Options& o) {
       const auto* p = o.strategy ? std::get_if<PipelinedExecution>(&*o.strategy) : nullptr;
       return p == nullptr ? std::string("none") : std::string(to_string(p->schedule));
     },
     [](Options& o, const json& j) {
       PipelinedExecution* const p = pipelined_of(o);
       if (p == nullptr) fail(ErrorKind::kBadFile, "requires the strategy pipelined");
       p->schedule = parse_schedule(read_text(j));
     }},
    {"group",
     [](const Options& o) {
       const auto* p = o.strategy ? std::get_if<PhasedExecution>(&*o.strategy) : nullptr;
       return p == nullptr || p->group == 0 ? std::string("all") : fmt::format("{}", p->group);
     },
     [](Options& o, const json& j) {
       auto* const p = o.strategy ? std::get_if<PhasedExecution>(&*o.strategy) : nullptr;
       if (p == nullptr) fail(ErrorKind::kBadFile, "requires the strategy phased");
       read_integer(j, p->group);
     }},
    SLUICE_NUMBER(rates.flops),
    SLUICE_NUMBER(rates.copies),
    SLUICE_NUMBER(rates.messages),
    SLUICE_NUMBER(rates.latency),
    SLUICE_INTEGER(accumulate),
    SLUICE_INTEGER(device_iterations),
    SLUICE_INTEGER(replicas),
    {"output", show_output, read_output},
    {"infeed", [](const Options& o) { return std::string(o.infeed ? "a queue" : "none"); },
     nullptr},
    {"outfeed", [](const Options& o) { return std::string(o.outfeed ? "a queue" : "none"); },
     nullptr},
    SLUICE_WORD(locations.optimizer, kLocations),
    SLUICE_WORD(locations.weights, kLocations),
    SLUICE_WORD(locations.activations, kLocations),
    SLUICE_WORD(locations.accumulators, kLocations),
    SLUICE_INTEGER(locations.min_elements_off_device),
    {"locations.min_elements_sharded", show_sharded,
     [](Options& o, const json& j) { read_integer(j, o.locations.min_elements_sharded); }},
    SLUICE_WORD(offload, kOffloads),
    SLUICE_WORD(io_mode, kIoModes),
    {"recompute", show_recompute, read_recompute},
    {"learning_rate", show_rate, read_rate},
    SLUICE_WORD(accumulation_reduction, kAccumulations),
    SLUICE_WORD(replica_reduction, kReplicaReductions),
    {"accumulator_dtype", show_accumulators, read_accumulators},
    {"gradient_hook",
     [](const Options& o) { return std::string(o.gradient_hook ? "a function" : "none"); },
     nullptr},
    {"max_grad_norm",
     [](const Options& o) {
       return o.max_grad_norm ? fmt::format("{}", *o.max_grad_norm) : std::string("none");
     },
     [](Options& o, const json& j) { read_number(j, o.max_grad_norm.emplace()); }},
    SLUICE_INTEGER(seed),
    {"session.device.memory", [](const Options& o) { return show_limit(o.session.device.memory); },
     [](Options& o, const json& j) { read_integer(j, o.session.device.memory); }},
    SLUICE_INTEGER(session.device.threads),
    {"session.remote", [](const Options& o) { return o.session.remote; },
     [](Options& o, const json& j) { o.session.remote = read_text(j); }},
    {"session.remote_memory", [](const Options& o) { return show_limit(o.session.remote_memory); },
     [](Options& o, const json& j) { read_integer(j, o.session.remote_memory); }},
    {"session.remote_bandwidth",
     [](const Options& o) { return show_limit(o.session.remote_bandwidth); },
     [](Options& o, const json& j) { read_integer(j, o.session.remote_bandwidth); }},
    SLUICE_WORD(session.remote_direct, kFlags),
    SLUICE_WORD(session.verify_remote, kFlags),
    SLUICE_NUMBER(session.stop_deadline),
    SLUICE_NUMBER(session.feed_deadline),
    SLUICE_INTEGER(session.io_queues),
    {"session.disable",
     [](const Options& o) {
       return o.session.disable.empty() ? std::string("none")
                                        : fmt::format("{}", fmt::join(o.session.disable, ", "));
     },
     [](Options& o, const json& j) { o.session.disable = read_texts(j); }},
    SLUICE_WORD(session.verify, kFlags),
    SLUICE_WORD(session.proof, kProofs),
};

#undef SLUICE_INTEGER
#undef SLUICE_NUMBER
#undef SLUICE_WORD

// Collects the values of nested objects under names with points. An option's name has two points at
// most, so a deeper object is kept as one value, which every option refuses.
void flatten(const json& j, const std::string& prefix,
             std::vector<std::pair<std::string, json>>& values) {
  for (const auto& [key, value] : j.items()) {
    const std::string name = prefix.empty() ? key : prefix + "." + key;
    if (value.is_object() && std::count(name.begin(), name.end(), '.') < 3) {
      flatten(value, name, values);
    } else {
      values.emplace_back(name, value);
    }
  }
}

}  // namespace

std::string_view to_string(ReplicaReduction reduction) {
  return reduction == ReplicaReduction::kSum ? "sum" : "mean";
}

Output parse_output(std::string_view text) {
  if (text == "all") return Output::all();
  if (text == "final") return Output::final();
  if (text == "sum") return Output::sum();
  constexpr std::string_view kEvery = "every ";
  if (text.starts_with(kEvery)) {
    int64_t period = 0;
    const std::string_view digits = text.substr(kEvery.size());
    for (const char c : digits) {
      if (c < '0' || c > '9' || period > 1'000'000'000'000) {
        period = 0;
        break;
      }
      period = 10 * period + (c - '0');
    }
    if (period > 0) return Output::every(period);
  }
  fail(ErrorKind::kUsage,
       "output: must be all, final, sum or \"every N\" with N at least 1, got '{}'", text);
}

std::string to_string(const Options& options) {
  const Options usual;
  std::string text;
  for (const OptionRule& rule : kRules) {
    const std::string value = rule.show(options);
    text +=
        fmt::format("{}={}{}\n", rule.name, value, value == rule.show(usual) ? "" : " (changed)");
  }
  return text;
}

Options read_options(const std::string& path, const Options& defaults) {
  const std::vector<std::byte> bytes = sys::read_file(path);
  const auto* const begin = reinterpret_cast<const char*>(bytes.data());
  json file;
  try {
    file = json::parse(begin, begin + bytes.size());
  } catch (const json::exception& e) {
    fail(ErrorKind::kBadFile, "{}: must be JSON, got: {}", path, e.what());
  }
  if (!file.is_object())
    fail(ErrorKind::kBadFile, "{}: must be an object of options, got {}", path, file.type_name());
  std::vector<std::pair<std::string, json>> values;
  flatten(file, "", values);
  std::vector<std::string> names;
  for (const OptionRule& rule : kRules) {
    if (rule.read != nullptr) names.emplace_back(rule.name);
  }
  for (const auto& [name, value] : values) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    fail(ErrorKind::kBadFile, "{}: an option must be one of {}, got '{}'", path,
         fmt::join(names, ", "), name);
  }
  Options options = defaults;
  for (const OptionRule& rule : kRules) {
    for (const auto& [name, value] : values) {
      if (name != rule.name) continue;
      try {
        rule.read(options, value);
      } catch (const Error& e) {
        fail(ErrorKind::kBadFile, "{}: {}: {}", path, name, e.what());
      }
    }
  }
  return options;
}

}  // namespace sluice::train
