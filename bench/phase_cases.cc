#include <filesystem>
#include <memory>

#include "bench/figure.h"
#include "bench/steps.h"
#include "sluice/base/sys.h"
#include "sluice/sluice.h"

namespace sluice::bench {
namespace {

constexpr int64_t kLayers = 24;
constexpr int64_t kWidth = 512;
constexpr int64_t kClasses = 10;
constexpr int64_t kAccumulate = 4;

class Layer : public nn::Module {
 public:
  explicit Layer(bool last) : last_(last) {}
  Tensor build(nn::Builder& b, Tensor x, const Tensors&) const {
    const Tensor y = nn::Linear(last_ ? kClasses : kWidth).build(b, x);
    return last_ ? y : ops::gelu(y);
  }
  std::string cache_key() const { return last_ ? "last" : "hidden"; }

 private:
  bool last_;
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

// A training session with its arrays.
struct Running {
  explicit Running(const Way& way)
      : training(
            train::build_training(ir, model(way.micro_batch), nn::Optimizer::adam(), step(way))),
        session(ir, {.device = cpu_device({.threads = way.threads}),
                     .remote = place(way),
                     .remote_direct = way.direct,
                     .verify_remote = way.verify}),
        input({entries_shape({way.micro_batch, kWidth}, kAccumulate), f32, {}}),
        labels({entries_shape({way.micro_batch}, kAccumulate), i32, {}}),
        losses({entries_shape({}, kAccumulate), f32, {}}),
        binding(session.bind({{training.input, input}, {training.labels, labels}},
                             {{training.loss, losses}}, "train")) {}

  static train::ModelSpec model(int64_t micro_batch) {
    std::vector<train::Block> blocks;
    for (int64_t i = 0; i < kLayers; ++i)
      blocks.emplace_back(fmt::format("fc.{}", i), Layer(i + 1 == kLayers));
    return {.blocks = blocks,
            .input = {{micro_batch, kWidth}, f32, {}},
            .labels = {{micro_batch}, i32, {}},
            .eval_input = {{1, kWidth}, f32, {}},
            .eval_blocks = blocks,
            .loss = [](const Tensor& logits, const Tensor& labels) {
              return ops::cross_entropy_with_grad(logits, labels);
            }};
  }
  static train::StepOptions step(const Way& way) {
    train::StepOptions o{.accumulate = kAccumulate, .learning_rate = 1e-4};
    if (way.remote == nullptr) return o;
    o.strategy = train::Strategy::kPhased;
    o.offload = {.optimizer = true, .weights = true};
    o.io_mode = IoMode::kIoOverlapped;
    return o;
  }
  static std::string place(const Way& way) {
    if (way.remote == nullptr || std::string_view(way.remote) == "host") return "host";
    return "file:" + folder();
  }

  Ir ir;
  train::Training training;
  Session session;
  HostTensor input;
  HostTensor labels;
  HostTensor losses;
  Binding binding;
};

// The PyTorch version runs these phases by hand, from host memory.
std::string torch_request(const Way& way) {
  if (std::string_view(way.remote) != "host") return "";
  return fmt::format("phases {} {} {} {} {} 1 4", kLayers, kWidth, kClasses, way.micro_batch,
                     kAccumulate);
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
        auto resident = std::make_shared<Running>(all_there);
        auto phased = std::make_shared<Running>(way);
        return [resident, phased] {
          const double limit = time_steps(resident->session, resident->binding, 8).median_seconds;
          return Round{time_steps(phased->session, phased->binding, 8).median_seconds, limit};
        };
      }};
}

}  // namespace

// Steps of 24 layers with Adam and four micro-batches. One thread moves weights and state beside
// the compute threads. The limit is the step with all variables on the device.
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
