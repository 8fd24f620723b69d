#include "sluice/models/resnet.h"

#include <optional>

#include "sluice/data/cifar.h"
#include "sluice/nn/layers.h"
#include "sluice/ops/ops.h"

namespace sluice::models {
namespace {

nn::Conv2d conv(const ResNet& net, int64_t channels, int64_t taps, int64_t stride) {
  nn::ConvOptions o{.channels = channels, .kernel = {taps}, .stride = {stride}};
  if (net.keras) {
    o.pad_type = ops::PadType::kSameUpper;
    o.init = nn::WeightInit::kHe;
  } else {
    o.padding = {taps / 2};
    o.bias = nn::Bias::kNone;
    o.init = nn::WeightInit::kHeFanOut;
  }
  return nn::Conv2d(o);
}

// Two convolutions, whose result is added to x, or to a convolution of x if the shape changes.
class Residual : public nn::Module {
 public:
  Residual(const ResNet& net, int64_t channels, int64_t stride, bool projects)
      : conv1_(*this, "conv1", conv(net, channels, 3, stride)),
        bn1_(*this, "bn1"),
        conv2_(*this, "conv2", conv(net, channels, 3, 1)),
        bn2_(*this, "bn2") {
    if (!projects) return;
    nn::Conv2d shortcut = conv(net, channels, 1, stride);
    if (net.keras) {
      shortcut_.emplace(*this, "shortcut", shortcut);
    } else {
      downsample_.emplace(*this, "downsample", shortcut, nn::BatchNorm2d());
    }
  }

  Tensor build(nn::Builder& b, Tensor x) const {
    const Tensor y = bn2_(b, conv2_(b, ops::relu(bn1_(b, conv1_(b, x)))));
    if (shortcut_) x = (*shortcut_)(b, x);
    if (downsample_) x = (*downsample_)(b, x);
    return ops::relu(y + x);
  }

 private:
  nn::Child<nn::Conv2d> conv1_;
  nn::Child<nn::BatchNorm2d> bn1_;
  nn::Child<nn::Conv2d> conv2_;
  nn::Child<nn::BatchNorm2d> bn2_;
  std::optional<nn::Child<nn::Conv2d>> shortcut_;
  std::optional<nn::Child<nn::Sequential<nn::Conv2d, nn::BatchNorm2d>>> downsample_;
};

class Net : public nn::Module {
 public:
  explicit Net(const ResNet& net)
      : conv1_(*this, "conv1", conv(net, net.channels[0], 3, 1)), bn1_(*this, "bn1") {
    for (size_t s = 0; s < net.channels.size(); ++s) {
      const std::string name = fmt::format("layer{}", s + 1);
      nn::Children<Residual>& stage = stages_.emplace_back(*this, name);
      for (int64_t i = 0; i < net.blocks; ++i) {
        const bool halves = s > 0 && i == 0;
        stage.add(net, net.channels[s], halves ? 2 : 1, halves);
        stage[static_cast<size_t>(i)].in_block(fmt::format("{}.{}", name, i));
      }
    }
    nn::begin_block(fc_, "head");  // The loss is in this block, too.
  }

  Tensor build(nn::Builder& b, Tensor x) const {
    {
      const nn::Block block(b, "stem");
      x = ops::relu(bn1_(b, conv1_(b, x)));
    }
    for (const auto& stage : stages_) {
      for (const auto& residual : stage) x = residual(b, x);
    }
    {
      const nn::Block block(b, "head");
      x = ops::flatten(ops::global_average_pool(x), 1);
    }
    return fc_(b, x);
  }

 private:
  // The names are those of torchvision, so that its weights load.
  nn::Child<nn::Conv2d> conv1_;
  nn::Child<nn::BatchNorm2d> bn1_;
  std::vector<nn::Children<Residual>> stages_;
  nn::Child<nn::Linear> fc_{*this, "fc", data::kCifarClasses, nn::Bias::kAdd,
                            nn::WeightInit::kUniform};
};

}  // namespace

train::Network resnet(const ResNet& net, const Sizes& s) {
  using data::kCifarChannels, data::kCifarSide;
  return train::classifier(
      Net(net), {{s.micro_batch, kCifarChannels, kCifarSide, kCifarSide}, f32, {}},
      {.eval_input = TensorSpec{{s.eval_batch, kCifarChannels, kCifarSide, kCifarSide}, f32, {}}});
}

}  // namespace sluice::models
