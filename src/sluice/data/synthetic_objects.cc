#include "sluice/data/synthetic_objects.h"

#include <algorithm>
#include <cmath>

#include "sluice/base/error.h"
#include "sluice/data/cifar.h"
#include "sluice/data/draw.h"

namespace sluice::data {
namespace {

constexpr int64_t kShapes = 5;

struct Color {
  explicit Color(Draw& draw) {
    for (float& c : channels) c = draw.between(20.0f, 235.0f);
  }
  std::array<float, kCifarChannels> channels;
};

// Whether a point of an object with about the radius 1 belongs to it.
bool covers(int64_t shape, float u, float v) {
  const float square = u * u + v * v;
  const float wide = std::max(std::abs(u), std::abs(v));
  switch (shape) {
    case 0:
      return square < 1;
    case 1:
      return wide < 0.85f;
    case 2:
      return v < 0.75f && std::abs(u) < 0.6f * (v + 1);
    case 3:
      return square < 1 && square > 0.36f;
    default:
      return wide < 1 && std::min(std::abs(u), std::abs(v)) < 0.3f;
  }
}

int32_t draw_object(Draw& draw, std::span<float> pixels) {
  const auto label = static_cast<int32_t>(draw.below(2 * kShapes));
  const bool striped = label >= kShapes;
  const Color ground(draw);
  Color ink(draw);
  // Similar colours would hide the object.
  for (size_t c = 0; c < ink.channels.size(); ++c) {
    if (std::abs(ink.channels[c] - ground.channels[c]) < 50)
      ink.channels[c] = ground.channels[c] + (ground.channels[c] < 128 ? 90.0f : -90.0f);
  }
  const float radius = draw.between(7.0f, 12.0f);
  const float x0 = draw.between(radius, 31 - radius), y0 = draw.between(radius, 31 - radius);
  // (1 - t², 2t) / (1 + t²) is (cos 2φ, sin 2φ) for the angle φ with tan φ = t.
  const float t = draw.between(-0.15f, 0.15f);
  const float cosine = (1 - t * t) / (1 + t * t), sine = 2 * t / (1 + t * t);
  const float phase = draw.between(0.0f, 1.0f);
  const float noise = draw.between(4.0f, 24.0f);
  for (int64_t i = 0; i < kCifarPlane; ++i) {
    const float x = (static_cast<float>(i % kCifarSide) - x0) / radius;
    const float y = (static_cast<float>(i / kCifarSide) - y0) / radius;
    const float u = cosine * x + sine * y, v = cosine * y - sine * x;
    const float stripe = 2 * u + phase;
    const bool gap = striped && stripe - std::floor(stripe) > 0.6f;
    const bool inside = covers(label % kShapes, u, v) && !gap;
    int channel = 0;
    for (const float color : (inside ? ink : ground).channels) {
      const float grey = color + noise * draw.rough_normal();
      pixels.data()[channel * kCifarPlane + i] =
          normalised_color(static_cast<uint8_t>(std::clamp(grey, 0.0f, 255.0f)), channel);
      ++channel;
    }
  }
  return label;
}

}  // namespace

Samples synthetic_objects(int64_t n, uint64_t seed) {
  require(n >= 1, "synthetic objects: the number of samples must be at least 1, got {}", n);
  constexpr size_t kPixels = kCifarChannels * kCifarPlane;
  const Seed key = fold(Seed{static_cast<uint32_t>(seed >> 32), static_cast<uint32_t>(seed)},
                        "synthetic objects");
  Samples set;
  set.images = HostTensor({{n, kCifarChannels, kCifarSide, kCifarSide}, f32, {}});
  set.labels = HostTensor({{n}, i32, {}});
  set.source = fmt::format("{} generated objects, seed {}", n, seed);
  const auto images = set.images.as<float>();
  const auto labels = set.labels.as<int32_t>();
  for (size_t k = 0; k < labels.size(); ++k) {
    Draw draw(fold(key, k));
    labels[k] = draw_object(draw, images.subspan(k * kPixels, kPixels));
  }
  return set;
}

}  // namespace sluice::data
