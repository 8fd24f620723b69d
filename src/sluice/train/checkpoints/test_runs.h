#pragma once
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sluice/base/hash.h"
#include "sluice/devices/cpu_device.h"
#include "sluice/nn/layers.h"
#include "sluice/ops/activations.h"
#include "sluice/ops/cast.h"
#include "sluice/session/session.h"
#include "sluice/train/cut/test_networks.h"
#include "sluice/train/fit.h"
#include "sluice/train/test_samples.h"

/// Trainings with dropout and momentum that tests save, stop and resume.
namespace sluice::test {

struct RunOptions {
  std::optional<train::Strategy> strategy = {};
  train::TensorLocations locations = {};
  int64_t accumulate = 2;
  int replicas = 1;
  int devices = 1;
  int threads = 1;
  int prefetch = 0;
  uint64_t seed = 3;
  int64_t width = 8;
  DType dtype = f32;
};

inline constexpr int64_t kRunBatch = 4;     // Samples of a micro-batch.
inline constexpr int64_t kRunSamples = 37;  // The last ones do not fill a call.

/// A network of the blocks "hidden", with dropout, and "out".
inline train::Network run_network(const RunOptions& o) {
  return {train::Written([o](nn::Builder& b, const train::Inputs& in) -> train::Results {
            std::optional<nn::Block> block(std::in_place, b, "hidden");
            Tensor x = ops::cast(in["input"], o.dtype);
            x = train::drop(b, "dropout", ops::gelu(train::linear(b, "hidden", x, o.width)));
            block.emplace(b, "out");
            x = ops::cast(train::linear(b, "out", x, kClasses), f32);
            if (in.mode() == nn::RunMode::kEvaluate)
              return {.predictions = {{"logits", x, "labels"}}};
            return {.losses = {train::cross_entropy(x, in["labels"])}};
          }),
          {{.name = "input", .spec = f32_spec({kRunBatch, kFeatures})},
           {.name = "labels", .spec = i32_spec({kRunBatch})}}};
}

inline train::TrainingModel run_model(const RunOptions& o) {
  train::Options options{.strategy = o.strategy,
                         .accumulate = o.accumulate,
                         .replicas = o.replicas,
                         .output = train::Output::all(),
                         .prefetch = o.prefetch,
                         .locations = o.locations,
                         .learning_rate = 0.1,
                         .seed = o.seed};
  options.session.device = cpu_device({.threads = o.threads});
  options.session.more_devices.assign(static_cast<size_t>(o.devices - 1), cpu_device());
  options.session.remote = "host";
  return train::training_model(run_network(o), options, nn::Optimizer::adam());
}

inline train::DataLoader run_data(const RunOptions& o) {
  const train::Options options{.accumulate = o.accumulate, .replicas = o.replicas};
  return train::DataLoader(options, dataset(kRunSamples),
                           {.batch_size = kRunBatch, .shuffle = data::Shuffle::kYes, .seed = 7});
}

inline std::string hash_of(const HostTensor& value) {
  Digest digest;
  digest.add(value.bytes());
  return digest.hex();
}

/// All that two equal runs have in common.
struct RunState {
  std::map<std::string, std::string> variables;  ///< Hashes by path.
  train::Run run;                                ///< Without options.
  bool operator==(const RunState&) const = default;
};

inline RunState state_of(train::TrainingModel& model) {
  RunState state;
  model.session().each_variable([&](const std::string& path, const HostTensor& value) {
    state.variables[path] = hash_of(value);
  });
  state.run = model.run();
  state.run.options.clear();
  state.run.id.clear();
  state.run.data.hash.clear();  // Known if checkpoints were saved.
  return state;
}

/// A new folder, which the destructor removes with all in it.
class RunFolder {
 public:
  RunFolder() {
    // In memory, where synchronising costs nothing.
    const bool memory = std::filesystem::is_directory("/dev/shm");
    const std::string root = memory ? "/dev/shm" : std::filesystem::temp_directory_path().string();
    std::string pattern = root + "/sluice-run-XXXXXX";
    EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
    path_ = pattern;
  }
  ~RunFolder() { std::filesystem::remove_all(path_); }
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace sluice::test
