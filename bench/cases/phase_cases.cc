#include <filesystem>
#include <memory>

#include "bench/figure.h"
#include "bench/training_steps.h"
#include "sluice/base/sys.h"

namespace sluice::bench {
namespace {

constexpr int64_t kPhasedLayers = 24;
constexpr int64_t kPhasedWidth = 512;
constexpr int64_t kClasses = 10;
constexpr int64_t kPhasedAccumulate = 4;

class PhasedLayers : public nn::Module {
 public:
  PhasedLayers() {
    for (int64_t i = 0; i < kPhasedLayers; ++i)
      layers_.add(i + 1 == kPhasedLayers ? kClasses : kPhasedWidth);
  }
  Tensor build(nn::Builder& b, Tensor x) const {
    for (size_t i = 0; i < layers_.size(); ++i) {
      x = layers_[i](b, x);
      if (i + 1 < layers_.size()) x = ops::gelu(x);
    }
    return x;
  }

 private:
  nn::Children<nn::Linear> layers_{*this, "fc"};
};

struct Way {
  const char* name;
  int64_t micro_batch;
  const char* remote;  // Tier of weights and state; null if all are on the device.
  double goal = 0;     // Goal as a part of the resident step's speed; 0 for none.
  int threads = 1;     // Compute threads.
  bool direct = false;
  bool verify = false;
};

std::string folder() { return std::filesystem::temp_directory_path().string(); }

train::Network network(int64_t micro_batch) {
  return train::classifier(PhasedLayers(), {{micro_batch, kPhasedWidth}, f32},
                           {.eval_input = TensorSpec{{1, kPhasedWidth}, f32}});
}

std::shared_ptr<TrainingSteps> start_steps(const Way& way) {
  train::Options o{.accumulate = kPhasedAccumulate, .learning_rate = 1e-4};
  if (way.remote != nullptr) {
    o.strategy = train::phased();
    constexpr train::Location kRemote = train::Location::kRemote;
    o.locations = {.optimizer = kRemote, .weights = kRemote, .activations = kRemote};
    o.io_mode = IoMode::kIoOverlapped;
  }
  const bool host = way.remote == nullptr || std::string_view(way.remote) == "host";
  return std::make_shared<TrainingSteps>(
      network(way.micro_batch), nn::Optimizer::adam(), o,
      SessionOptions{.device = cpu_device({.threads = way.threads}),
                     .remote = host ? "host" : "file:" + folder(),
                     .remote_direct = way.direct,
                     .verify_remote = way.verify});
}

// The PyTorch version runs these phases by hand, from host memory.
std::string torch_request(const Way& way) {
  if (std::string_view(way.remote) != "host") return "";
  return fmt::format("phases {} {} {} {} {} 1 4", kPhasedLayers, kPhasedWidth, kClasses,
                     way.micro_batch, kPhasedAccumulate);
}

Case phase_case(const Way& way) {
  return {
      .group = "phases",
      .name = way.name,
      .threads = way.threads,
      .goals = way.goal > 0 ? std::vector<Goal>{{Goal::Of::kPart, way.goal}} : std::vector<Goal>{},
      .pytorch = torch_request(way),
      .start = [way]() -> std::function<Round()> {
        Way all_there = way;
        all_there.remote = nullptr;
        all_there.direct = all_there.verify = false;
        return [resident = start_steps(all_there), phased = start_steps(way)] {
          const double limit = resident->seconds(8);
          return Round{phased->seconds(8), limit};
        };
      }};
}

}  // namespace

// Steps of 24 layers with Adam and four micro-batches. One thread transfers weights and state
// concurrently with the compute threads. The limit is the step with all variables on the device.
std::vector<Case> phase_cases() {
  std::vector<Case> cases;
  for (const Way& way :
       {Way{"24 x 512, micro-batch 64, from host memory", 64, "host", 0.95},
        Way{"24 x 512, micro-batch 64, from a file", 64, "file", 0.95},
        Way{"24 x 512, micro-batch 8, from host memory", 8, "host", 0.8},
        Way{"24 x 512, micro-batch 64, from host memory", 64, "host", 0, 2},
        Way{"24 x 512, micro-batch 64, from a checked file", 64, "file", 0, 1, false, true},
        Way{"24 x 512, micro-batch 64, from a direct file", 64, "file", 0, 1, true, false}}) {
    if (!way.direct || sys::can_bypass_page_cache(folder())) cases.push_back(phase_case(way));
  }
  return cases;
}

}  // namespace sluice::bench
