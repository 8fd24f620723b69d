// Prints the table of document 003: MNIST on four replicas, eight micro-batches of eight samples in
// a step. Each row shards more of Adam's state in remote memory; the last row has all variables on
// the device.

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <memory>
#include <span>
#include <string_view>

#include "bench/steps.h"
#include "sluice/base/sys.h"
#include "sluice/data/loader.h"
#include "sluice/models/model.h"
#include "sluice/report/traffic.h"
#include "sluice/sluice.h"
#include "sluice/train/step_arrays.h"

namespace sluice::bench {
namespace {

constexpr int kRounds = 20;    // Many short rounds, so that each row has some without disturbance.
constexpr int64_t kSteps = 5;  // Steps of a round. Each row runs 100 timed steps.
constexpr double kTie = 0.05;  // The last two rows of the document move equal bytes within 0.5 %.
constexpr int kReplicas = 4;
constexpr int64_t kAccumulate = 8;
const models::Sizes kSizes;  // Eight samples in a micro-batch.
const int64_t kSamples = kReplicas * kAccumulate * kSizes.micro_batch;

struct Way {
  const char* name;
  int64_t threshold;
  train::Location state;
};
constexpr train::Location kState = train::Location::kRemote;
constexpr Way kWays[] = {{"no sharding", nn::kNeverShard, kState},
                         {"only state of fc.0.weight", 262145, kState},
                         {"all state of weights", 1024, kState},
                         {"all state", 512, kState},
                         {"all on the device", nn::kNeverShard, train::Location::kDevice}};

std::string threshold_text(int64_t threshold) {
  return threshold == nn::kNeverShard ? "inf" : std::to_string(threshold);
}

class RtsRow {
 public:
  RtsRow(const Way& way, int64_t bandwidth)
      : way_(way),
        training_(train::build_training(
            ir_, model_.build(kSizes), nn::Optimizer::adam_f16(),
            {.accumulate = kAccumulate,
             .locations = {.optimizer = way.state, .min_elements_sharded = way.threshold},
             .learning_rate = 1e-3})),
        session_(ir_, {.device = cpu_device(), .remote_bandwidth = bandwidth}),
        arrays_(training_),
        binding_(session_.bind(arrays_.inputs(training_), arrays_.outputs(training_), "train")) {
    const models::SampleSet samples = model_.data->generate(kSamples, 1, {});
    arrays_.fill(*data::BatchLoader(samples.dataset, {.batch = kSamples}).next());
    const exe::Executable& plan = session_.executable();
    for (const report::Traffic& t : report::TrafficCounter(plan).of(plan.program("train"))) {
      if (t.kind == exe::TransferKind::kRemoteLoad || t.kind == exe::TransferKind::kRemoteStore)
        remote_bytes_ += plan.replicas * t.bytes;
    }
  }

  /// Measures one round. Only the minimum time counts: other load on the machine would hide the
  /// order of the rows.
  void measure() {
    seconds_ = std::min(seconds_, time_steps(session_, binding_, kSteps).min_seconds);
  }
  double seconds() const { return seconds_; }
  int64_t device_bytes() const { return session_.planned_bytes(); }

  void print() const {
    fmt::print("{:<26} {:>9} {:>11.0f} {:>10.4f} {:>14} {:>13}\n", way_.name,
               threshold_text(way_.threshold), static_cast<double>(kSamples) / seconds(), seconds(),
               remote_bytes_, device_bytes());
  }

 private:
  const Way& way_;
  const models::Model& model_ = models::find_model("mnist-rts");
  Ir ir_{kReplicas};
  train::Training training_;
  Session session_;
  train::StepArrays arrays_;
  Binding binding_;
  int64_t remote_bytes_ = 0;  // Bytes that a step moves in all replicas.
  double seconds_ = std::numeric_limits<double>::infinity();
};

// Whether each row is at least as fast as the previous one, like in the document.
bool in_order(const std::vector<std::unique_ptr<RtsRow>>& rows) {
  for (size_t i = 1; i < rows.size(); ++i) {
    if (rows[i]->seconds() > rows[i - 1]->seconds() * (1 + kTie)) return false;
  }
  return true;
}

// Parses the bytes of an argument such as 512M. Error{kUsage} for any other text.
int64_t parse_mebibytes(std::span<char*> arguments) {
  const std::string_view text = arguments[0];
  const char* const unit = text.data() + text.size() - (text.ends_with('M') ? 1 : 0);
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), unit, number);
  require(
      arguments.size() == 1 && text.ends_with('M') && error == std::errc() && end == unit &&
          number > 0 && number <= int64_t{1} << 20,
      "bandwidth: must be 1M to 1048576M (MiB per second), got '{}'; for example rts_table 512M",
      text);
  return number << 20;
}

void run(std::span<char*> arguments) {
  const int64_t bandwidth = arguments.empty() ? int64_t{256} << 20 : parse_mebibytes(arguments);
  std::vector<std::unique_ptr<RtsRow>> rows;
  for (const Way& way : kWays) rows.push_back(std::make_unique<RtsRow>(way, bandwidth));
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
               threshold_text(kWays[i].threshold), resident - rows[i]->device_bytes(),
               100.0 * static_cast<double>(resident - rows[i]->device_bytes()) /
                   static_cast<double>(resident));
  }
}

}  // namespace
}  // namespace sluice::bench

int main(int argc, char** argv) {
  try {
    sluice::bench::run(std::span(argv + 1, argv + argc));
  } catch (const sluice::Error& error) {
    sluice::sys::print_stderr("{}\n", error.what());
    return error.exit_code();
  }
}
