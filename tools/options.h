#pragma once
#include <charconv>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "sluice/base/error.h"
#include "sluice/models/model.h"
#include "sluice/nn/rts.h"
#include "sluice/runtime/process_group.h"

namespace sluice::tool {

inline constexpr int64_t kMostReplicas = 1024;

/// What the command line asks for. Every field has the flag of its name.
struct ToolOptions {
  std::shared_ptr<runtime::ProcessGroup> group;  ///< Of mpirun; null: no other process.
  bool speaks() const { return group == nullptr || group->rank() == 0; }  ///< One process does.
  std::string model = "mnist";
  std::string data;  ///< Folder of the dataset; empty: search.
  int64_t epochs = 1;
  std::optional<int64_t> steps;       ///< In all, >= 0; unless given, as many as the epochs have.
  models::Sizes sizes;                ///< Sizes of the model: --layers, --width, --micro-batch, …
  std::optional<double> lr;           ///< Learning rate; unless given, the optimizer's own.
  double clip_norm = 0;               ///< Largest norm of all gradients; 0: any.
  std::string optimizer = "sgd";      ///< sgd, momentum, adam, adam-f16, adamw, adamax, lamb.
  int64_t memory = -1;                ///< Budget of device memory in bytes; -1: none.
  std::string strategy = "resident";  ///< resident, phased.
  int64_t accumulate = 1;             ///< Micro-batches a step.
  int64_t replicas = 1;               ///< Each on micro-batches of its own.
  std::vector<int64_t> replica_list;  ///< plan: a line for each, and for each threshold.
  int64_t shard_threshold = nn::kNeverShard;  ///< Elements from which a replica updates its shard.
  std::vector<int64_t> shard_threshold_list;
  std::string io_mode = "io";  ///< Transfers of phases: compute, io, io_overlapped.
  int io_queues = 1;           ///< For them beside the work: 0, 1 or 3.
  bool recompute = false;      ///< Phases make activations again instead of keeping them.
  /// What leaves the device: auto, none, or a list of optimizer, weights.
  std::string offload = "auto";
  std::string remote = "host";    ///< Where it goes: none, host, file:FOLDER.
  int64_t remote_memory = -1;     ///< Budget of that in bytes; -1: none.
  int64_t remote_bandwidth = -1;  ///< Bytes a second that it moves at most; -1: as many as go.
  bool remote_direct = false;     ///< Its file goes past the page cache.
  bool verify_remote = false;     ///< What is read of its file is checked.
  int64_t threads = 0;            ///< 0: as many as usable cores.
  uint64_t seed = 0;
  std::string save;     ///< File that variables go to at the end.
  std::string weights;  ///< File that variables come from at the start.
  bool json = false;
  bool digest = false;
  /// Generated digits even if real ones are there; bench: runs on ones, of both programs.
  bool synthetic = false;
  std::string log_level = "info";  ///< error, info, debug.
  std::vector<std::string> disable;
  std::string print_after;
  bool verify = false;  ///< Verify the program after every compiler pass.
  bool passes = false;  ///< plan: print the table of passes instead.
  bool dot = false;     ///< plan: print the graphs for Graphviz instead.
  std::string problem;  ///< plan: a planner problem instead of a model.
  int64_t capacity = -1;
  std::optional<int64_t> nodes;     ///< plan: limit of the problem's exact search.
  bool full = false;                ///< plan: print the whole executable.
  std::string check;                ///< plan: an executable's text to check.
  std::string file;                 ///< inspect: what to look at.
  std::string only;                 ///< bench: cases whose name has this.
  int rounds = 5;                   ///< bench: the figures are medians over so many.
  std::vector<std::string> python;  ///< bench: programs that may have PyTorch.
};

/// The integer that `text` spells in decimal digits, after a minus sign if it is negative. Leading
/// zeros change nothing: 010 is ten. Absent if the text is something else or does not fit T.
template <typename T>
std::optional<T> read_integer(std::string_view text) {
  T value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end ? std::optional(value) : std::nullopt;
}

/// The integer of a flag. Error{kUsage} with the flag, the range [least, most] and the text for
/// anything else.
template <typename T>
T parse_integer(std::string_view flag, std::string_view text, T least, T most) {
  const std::optional<T> value = read_integer<T>(text);
  require(value && *value >= least && *value <= most,
          "{}: must be an integer from {} to {}, got '{}'", flag, least, most, text);
  return *value;
}

/// Bytes of "4096", "512K", "64M", "2G", "1T" (powers of 1024). Error{kUsage} for anything else.
int64_t parse_bytes(std::string_view flag, std::string_view text);

/// Elements of "512"; kNeverShard of "inf". Error{kUsage} for anything else.
int64_t parse_threshold(std::string_view flag, std::string_view text);
/// "512" or "inf".
std::string show_threshold(int64_t threshold);

/// Learning rate of each optimizer unless --lr is given: "sgd 0.05, momentum 0.005, …".
std::string default_rates();

/// "10.7 MiB" for people.
std::string show_bytes(int64_t bytes);

int run_train(const ToolOptions& options);
int run_eval(const ToolOptions& options);
int run_plan(const ToolOptions& options);
/// Times training steps of a model.
int run_bench(const ToolOptions& options);
/// Measures everything that has a goal, without a model.
int run_bench_suite(const ToolOptions& options);
int run_inspect(const ToolOptions& options);
int run_doctor(const ToolOptions& options);

}  // namespace sluice::tool
