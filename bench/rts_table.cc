// Document 003's table: MNIST on four replicas, eight micro-batches of eight samples each a step, Adam's state in remote
// memory in shards of more and more of it; beside them all on the device.

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <span>

#include "bench/steps.h"
#include "sluice/base/sys.h"
#include "sluice/data/loader.h"
#include "sluice/data/synthetic_digits.h"
#include "sluice/report/traffic.h"
#include "tools/mnist_model.h"

namespace sluice::bench {
namespace {

constexpr int kRounds = 25;    // Short ones, so that each row has its share of quiet moments.
constexpr int64_t kSteps = 2;  // A round.
constexpr double kTie = 0.05;  // The document's last two rows move the same bytes within 0.5 %.

struct Way {
  const char* name;
  int64_t threshold;
  const char* offload;
};
constexpr Way kWays[] = {{"no sharding", nn::kNeverShard, "optimizer"},
                         {"only state of fc.0.weight", 262145, "optimizer"},
                         {"all state of weights", 1024, "optimizer"},
                         {"all state", 512, "optimizer"},
                         {"all on the device", nn::kNeverShard, "none"}};

tool::ToolOptions options(const Way& way, int64_t bandwidth) {
  tool::ToolOptions o;
  o.micro_batch = 8;
  o.accumulate = 8;
  o.replicas = 4;
  o.optimizer = "adam-f16";
  o.lr = 1e-3;
  o.shard_threshold = way.threshold;
  o.offload = way.offload;
  o.remote_bandwidth = bandwidth;
  return o;
}

class Row {
 public:
  Row(const Way& way, int64_t bandwidth)
      : name_(way.name),
        threshold_(way.threshold),
        options_(options(way, bandwidth)),
        programs_(tool::build_mnist(options_)),
        session_(programs_.ir, tool::session_options(options_)),
        arrays_(options_),
        binding_(session_.bind(arrays_.inputs(programs_.training),
                               {{programs_.training.loss, arrays_.losses}}, "train")) {
    const int64_t samples = tool::samples_of_step(options_);
    const data::Dataset digits = data::synthetic_digits(samples, 1);
    data::DataLoader(digits, {.batch = samples}).fill(0, arrays_.image, arrays_.labels);
    const exe::Executable& plan = session_.executable();
    for (const report::Traffic& t : report::TrafficCounter(plan).of(plan.program("train"))) {
      if (t.kind == exe::TransferKind::kRemoteLoad || t.kind == exe::TransferKind::kRemoteStore)
        remote_bytes_ += plan.replicas * t.bytes;
    }
  }

  /// The least counts: what others do on the machine would hide the order of the rows.
  void measure() {
    seconds_ = std::min(seconds_, time_steps(session_, binding_, kSteps).least_seconds);
  }
  double seconds() const { return seconds_; }
  int64_t device_bytes() const { return session_.planned_bytes(); }

  void print() const {
    const auto samples = static_cast<double>(tool::samples_of_step(options_));
    fmt::print("{:<26} {:>9} {:>11.0f} {:>10.4f} {:>14} {:>13}\n", name_,
               tool::show_threshold(threshold_), samples / seconds(), seconds(), remote_bytes_,
               device_bytes());
  }

 private:
  const char* name_;
  int64_t threshold_;
  tool::ToolOptions options_;
  tool::MnistPrograms programs_;
  Session session_;
  tool::StepArrays arrays_;
  Binding binding_;
  int64_t remote_bytes_ = 0;  // That a step moves in all replicas.
  double seconds_ = std::numeric_limits<double>::infinity();
};

// Whether each row is as fast as the one before it, as they are in the document.
bool in_order(const std::vector<std::unique_ptr<Row>>& rows) {
  for (size_t i = 1; i < rows.size(); ++i) {
    if (rows[i]->seconds() > rows[i - 1]->seconds() * (1 + kTie)) return false;
  }
  return true;
}

void run(std::span<char*> arguments) {
  require(arguments.size() <= 1, "usage: rts_table [BYTES-A-SECOND], as rts_table 512M");
  const int64_t bandwidth =
      arguments.empty() ? int64_t{256} << 20 : tool::parse_bytes("rts_table", arguments[0]);
  std::vector<std::unique_ptr<Row>> rows;
  for (const Way& way : kWays) rows.push_back(std::make_unique<Row>(way, bandwidth));
  for (int r = 0; r < kRounds; ++r) {
    for (const auto& row : rows) row->measure();
  }
  fmt::print(
      "4 replicas, accumulation 8, micro-batch 8, adam-f16; remote memory throttled to {} "
      "B/s\n{:<26} {:>9} {:>11} {:>10} {:>14} {:>13}\n",
      bandwidth, "case", "threshold", "samples/s", "s a step", "remote bytes", "device bytes");
  for (const auto& row : rows) row->print();
  fmt::print("the order of the rows is document 003's: {}\n", in_order(rows) ? "yes" : "NO");
  const int64_t resident = rows.back()->device_bytes();
  for (size_t i = 0; i + 1 < rows.size(); ++i) {
    fmt::print("threshold {}: offload lowers the device's peak by {} bytes, {:.1f} %\n",
               tool::show_threshold(kWays[i].threshold), resident - rows[i]->device_bytes(),
               100.0 * static_cast<double>(resident - rows[i]->device_bytes()) /
                   static_cast<double>(resident));
  }
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  try {
    sluice::bench::run(std::span(argv, static_cast<size_t>(argc)).subspan(1));
  } catch (const sluice::Error& error) {
    sluice::sys::print_stderr("{}\n", error.what());
    return error.exit_code();
  }
}
