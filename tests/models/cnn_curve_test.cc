// The losses of document 002's network over 20 updates of AdamW must be those of PyTorch. They are
// compared with cnn_curve.csv, and with PyTorch itself if it is installed.

#include <cmath>

#include "curve.h"
#include "sluice/devices/cpu_device.h"
#include "sluice/models/model.h"
#include "sluice/session/session.h"

namespace sluice::test {
namespace {

constexpr int kSteps = 20;
constexpr int64_t kAccumulate = 10, kBatch = 8, kClasses = 10, kSide = 28;

// Linear layers keep their weight as (in, out), PyTorch as (out, in).
HostTensor transposed(const HostTensor& t) {
  const int64_t rows = t.shape()[0], columns = t.shape()[1];
  HostTensor result(f32_spec({columns, rows}));
  for (int64_t i = 0; i < t.elements(); ++i)
    result.as<float>()[static_cast<size_t>(i % columns * rows + i / columns)] =
        t.as<float>()[static_cast<size_t>(i)];
  return result;
}

void set_weights(Session& session, const train::Training& t) {
  Lcg weights(1);
  double scale = 1;
  for (const train::TorchWeight& w : t.torch_weights) {  // Each weight precedes its bias.
    const Tensor& variable = t.variables[w.path];
    std::vector<int64_t> dims(variable.shape().begin(), variable.shape().end());
    if (w.transposed) std::swap(dims[0], dims[1]);
    const Shape shape(dims);
    if (dims.size() > 1) scale = 1 / std::sqrt(static_cast<double>(shape.elements() / shape[0]));
    const HostTensor value = weights.array(shape, scale);
    session.write(variable, w.transposed ? transposed(value) : value);
  }
}

std::vector<double> losses_of_a_training(int threads) {
  Ir ir;
  const train::Training t = train::build_training(
      ir, models::find_model("mnist-cnn").build({.micro_batch = kBatch}), nn::Optimizer::adamw(),
      {.accumulate = kAccumulate, .learning_rate = 0.001});
  Session session(ir, {.device = cpu_device({.threads = threads})});
  set_weights(session, t);
  const HostTensor prototypes = Lcg(2).array({kClasses, kSide, kSide});
  Lcg batches(3);
  std::vector<double> losses;
  for (int step = 0; step < kSteps; ++step) {
    HostTensor images(f32_spec({kAccumulate, kBatch, kSide, kSide}));
    HostTensor labels(i32_spec({kAccumulate, kBatch}));
    for (size_t m = 0; m < kAccumulate; ++m) {
      const auto classes = labels.as<int32_t>().subspan(m * kBatch, kBatch);
      for (int32_t& l : classes) l = static_cast<int32_t>(batches.next() * kClasses);
      const HostTensor noise = batches.array({kBatch, kSide * kSide});
      for (size_t i = 0; i < kBatch * kSide * kSide; ++i) {
        const size_t pixel =
            static_cast<size_t>(classes[i / (kSide * kSide)]) * kSide * kSide + i % (kSide * kSide);
        images.as<float>()[m * kBatch * kSide * kSide + i] =
            prototypes.as<float>()[pixel] + noise.as<float>()[i];
      }
    }
    const HostTensors results =
        session.run({{t.fields[0], images}, {t.fields[1], labels}}, "train");
    for (const float loss : results[t.losses[0]].as<float>()) losses.push_back(loss);
  }
  return losses;
}

TEST(CnnCurve, IsPyTorchs) {
  const std::vector<double> losses = losses_of_a_training(1);
  EXPECT_EQ(losses_of_a_training(3), losses);
  EXPECT_LT(losses.back(), losses.front());
  expect_pytorchs(losses, "cnn_curve");
}

}  // namespace
}  // namespace sluice::test
