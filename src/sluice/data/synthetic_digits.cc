#include "sluice/data/synthetic_digits.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <vector>

#include "sluice/data/draw.h"

// To compute the same bits on every machine, this file uses only +, -, *, / and sqrt on floats,
// which are exactly rounded. It does not call other functions of the math library.

namespace sluice::data {
namespace {

struct Point {
  float x;
  float y;
};
using Stroke = std::vector<Point>;
using Glyph = std::vector<Stroke>;

/// Returns x limited to [0, high]. Unlike std::clamp, it compiles without a branch.
inline float limited(float x, float high) {
  x = x > 0 ? x : 0;
  return x < high ? x : high;
}

/// The ways to write each of five digits, in a unit square with y downwards. A stroke of two points
/// is a line; more points are joined by a Catmull-Rom curve.
using Glyphs = std::array<std::vector<Glyph>, 5>;
const Glyphs& glyphs_from_0() {
  static const Glyphs table{{
      {{{{.52f, .02f},
         {.22f, .14f},
         {.1f, .5f},
         {.22f, .86f},
         {.5f, .98f},
         {.78f, .86f},
         {.9f, .5f},
         {.78f, .15f},
         {.48f, .03f}}}},
      {{{{.5f, 0}, {.5f, 1}}},
       {{{.3f, .22f}, {.52f, 0}}, {{.52f, 0}, {.52f, 1}}},
       {{{.3f, .2f}, {.52f, 0}}, {{.52f, 0}, {.52f, 1}}, {{.25f, 1}, {.78f, 1}}}},
      {{{{.15f, .25f},
         {.3f, .05f},
         {.62f, .02f},
         {.82f, .22f},
         {.7f, .48f},
         {.4f, .75f},
         {.12f, .97f}},
        {{.12f, .97f}, {.9f, .95f}}},
       {{{.15f, .22f},
         {.4f, .02f},
         {.76f, .12f},
         {.74f, .42f},
         {.45f, .74f},
         {.2f, .96f},
         {.1f, .86f},
         {.28f, .8f},
         {.6f, .95f},
         {.92f, .9f}}}},
      {{{{.15f, .12f}, {.45f, 0}, {.78f, .15f}, {.7f, .38f}, {.4f, .48f}},
        {{.4f, .48f}, {.78f, .55f}, {.86f, .8f}, {.55f, 1}, {.12f, .88f}}},
       {{{.15f, .03f}, {.8f, .02f}},
        {{.8f, .02f}, {.45f, .42f}},
        {{.45f, .42f}, {.84f, .55f}, {.82f, .86f}, {.5f, 1}, {.12f, .88f}}}},
      {{{{.22f, .02f}, {.15f, .3f}, {.1f, .56f}},
        {{.1f, .56f}, {.9f, .54f}},
        {{.76f, .05f}, {.72f, .55f}, {.7f, 1}}},
       {{{.62f, .02f}, {.08f, .66f}}, {{.08f, .66f}, {.92f, .64f}}, {{.64f, .02f}, {.66f, 1}}}},
  }};
  return table;
}
const Glyphs& glyphs_from_5() {
  static const Glyphs table{{
      {{{{.82f, .03f}, {.26f, .05f}},
        {{.26f, .05f}, {.2f, .45f}},
        {{.2f, .45f}, {.5f, .36f}, {.84f, .52f}, {.82f, .84f}, {.46f, 1}, {.1f, .88f}}}},
      {{{{.72f, .02f},
         {.4f, .18f},
         {.16f, .55f},
         {.2f, .88f},
         {.5f, 1},
         {.8f, .85f},
         {.78f, .6f},
         {.5f, .5f},
         {.2f, .68f}}},
       {{{.4f, 0},
         {.2f, .4f},
         {.16f, .75f},
         {.4f, .98f},
         {.74f, .92f},
         {.8f, .68f},
         {.5f, .58f},
         {.2f, .76f}}}},
      {{{{.12f, .05f}, {.88f, .05f}}, {{.88f, .05f}, {.6f, .45f}, {.42f, 1}}},
       {{{.12f, .08f}, {.5f, .05f}, {.86f, .03f}},
        {{.86f, .03f}, {.62f, .45f}, {.46f, 1}},
        {{.3f, .52f}, {.8f, .48f}}}},
      {{{{.5f, .48f},
         {.2f, .28f},
         {.35f, .03f},
         {.65f, .03f},
         {.8f, .25f},
         {.5f, .48f},
         {.15f, .75f},
         {.35f, .98f},
         {.68f, .98f},
         {.87f, .74f},
         {.5f, .48f}}},
       {{{.75f, .1f},
         {.45f, .02f},
         {.2f, .2f},
         {.42f, .44f},
         {.74f, .66f},
         {.74f, .92f},
         {.45f, 1},
         {.18f, .84f},
         {.4f, .52f},
         {.76f, .1f}}}},
      {{{{.82f, .2f},
         {.55f, .02f},
         {.2f, .15f},
         {.2f, .42f},
         {.5f, .52f},
         {.8f, .35f},
         {.83f, .14f}},
        {{.83f, .14f}, {.8f, .6f}, {.7f, 1}}},
       {{{.82f, .2f},
         {.55f, .02f},
         {.2f, .15f},
         {.2f, .42f},
         {.5f, .52f},
         {.8f, .35f},
         {.83f, .14f}},
        {{.83f, .14f}, {.82f, .65f}, {.64f, .95f}, {.25f, .95f}}}},
  }};
  return table;
}

/// Maps the unit square of the glyphs to pixels: a smooth random bend, then slant, size, rotation
/// and position.
class Warp {
 public:
  explicit Warp(Draw& draw) {
    for (Point& p : bend_) p = {draw.between(-0.1f, 0.1f), draw.between(-0.1f, 0.1f)};
    const float slant = draw.between(-0.35f, 0.25f);
    const float width = draw.between(11.0f, 19.0f);
    const float height = draw.between(16.0f, 21.0f);
    // (1 - t², 2t) / (1 + t²) is (cos 2φ, sin 2φ) for the angle φ with tan φ = t.
    const float t = draw.between(-0.14f, 0.14f);
    const float cosine = (1 - t * t) / (1 + t * t);
    const float sine = 2 * t / (1 + t * t);
    xx_ = cosine * width;
    xy_ = (cosine * -slant - sine) * height;
    yx_ = sine * width;
    yy_ = (sine * -slant + cosine) * height;
    x0_ = kDigitSide / 2.0f + draw.between(-1.8f, 1.8f);
    y0_ = kDigitSide / 2.0f + draw.between(-1.8f, 1.8f);
  }

  Point operator()(Point p) const {
    const float u = std::clamp(p.x, 0.0f, 1.0f) * 2;
    const float v = std::clamp(p.y, 0.0f, 1.0f) * 2;
    const int i = u < 1 ? 0 : 1;
    const int j = v < 1 ? 0 : 1;
    const float a = u - static_cast<float>(i);
    const float b = v - static_cast<float>(j);
    const auto mix = [&](float Point::*axis) {
      const auto at = [&](int di, int dj) {
        return sluice::at(bend_, (j + dj) * 3 + i + di).*axis;
      };
      return (1 - b) * ((1 - a) * at(0, 0) + a * at(1, 0)) +
             b * ((1 - a) * at(0, 1) + a * at(1, 1));
    };
    const float x = p.x + mix(&Point::x) - 0.5f;
    const float y = p.y + mix(&Point::y) - 0.5f;
    return {x0_ + xx_ * x + xy_ * y, y0_ + yx_ * x + yy_ * y};
  }

 private:
  std::array<Point, 9> bend_{};  ///< Displacements at a 3 x 3 grid; bilinear in between.
  float xx_, xy_, yx_, yy_, x0_, y0_;
};

/// Computes, for each pixel, the squared distance from its centre to the nearest stroke, limited to
/// the square of `reach`.
class Canvas {
 public:
  explicit Canvas(float reach) : reach_(reach) { nearest_.fill(reach * reach); }

  void line(Point a, Point b) {
    const int left = pixel(std::min(a.x, b.x) - reach_);
    const int right = pixel(std::max(a.x, b.x) + reach_);
    const int top = pixel(std::min(a.y, b.y) - reach_);
    const int bottom = pixel(std::max(a.y, b.y) + reach_);
    const Point d{b.x - a.x, b.y - a.y};
    const float inverse = 1.0f / (d.x * d.x + d.y * d.y + 1e-6f);
    for (int row = top; row <= bottom; ++row) {
      for (int column = left; column <= right; ++column) {
        const Point p{static_cast<float>(column) + 0.5f - a.x,
                      static_cast<float>(row) + 0.5f - a.y};
        const float along = limited((p.x * d.x + p.y * d.y) * inverse, 1.0f);
        const Point off{p.x - along * d.x, p.y - along * d.y};
        float& nearest = at(nearest_, row * kDigitSide + column);
        nearest = std::min(nearest, off.x * off.x + off.y * off.y);
      }
    }
  }

  std::span<const float> nearest() const { return nearest_; }

 private:
  static int pixel(float at) { return static_cast<int>(std::clamp(at, 0.0f, kDigitSide - 1.0f)); }

  float reach_;
  std::array<float, kDigitSide * kDigitSide> nearest_;
};

/// Draws the Catmull-Rom curve through `points` as short lines.
void draw_stroke(Canvas& canvas, const Warp& warp, std::span<const Point> points) {
  constexpr int kPieces = 5;
  Point last = warp(points.front());
  for (size_t k = 0; k + 1 < points.size(); ++k) {
    const Point p0 = points[k == 0 ? 0 : k - 1];
    const Point p1 = points[k];
    const Point p2 = points[k + 1];
    const Point p3 = points[std::min(k + 2, points.size() - 1)];
    for (int piece = 1; piece <= kPieces; ++piece) {
      const float t = static_cast<float>(piece) / kPieces;
      const auto curve = [t](float a, float b, float c, float d) {
        return 0.5f * (2 * b +
                       t * (c - a + t * (2 * a - 5 * b + 4 * c - d + t * (3 * b - a - 3 * c + d))));
      };
      const Point next = warp({curve(p0.x, p1.x, p2.x, p3.x), curve(p0.y, p1.y, p2.y, p3.y)});
      canvas.line(last, next);
      last = next;
    }
  }
}

/// Returns normalised_pixel() of each level of grey.
std::array<float, 256> normalised_levels() {
  std::array<float, 256> levels{};
  for (size_t k = 0; k < levels.size(); ++k) levels[k] = normalised_pixel(static_cast<uint8_t>(k));
  return levels;
}

/// Returns rough_normal() of each sum of four bytes.
std::array<float, 1021> rough_normals() {
  std::array<float, 1021> normals{};
  for (size_t k = 0; k < normals.size(); ++k) normals[k] = rough_normal(static_cast<uint32_t>(k));
  return normals;
}

/// Draws one digit into `pixels` and returns its label.
int32_t draw_digit(Draw& draw, std::span<float> pixels) {
  constexpr float kEdge = 0.65f;  ///< Half the width, in pixels, over which a stroke's edge fades.
  constexpr float kJitter = 0.07f;

  const uint32_t label = draw.below(10);
  const std::vector<Glyph>& ways = label < 5 ? glyphs_from_0()[label] : glyphs_from_5()[label - 5];
  const Glyph& glyph = ways[draw.below(static_cast<uint32_t>(ways.size()))];
  const Warp warp(draw);
  const float radius = draw.between(0.75f, 1.7f);
  const float ink = draw.between(190.0f, 255.0f);
  const float noise = draw.between(4.0f, 28.0f);

  Canvas canvas(radius + kEdge);
  std::array<Point, 16> points;
  for (const Stroke& stroke : glyph) {
    for (size_t k = 0; k < stroke.size(); ++k) {
      points[k] = {stroke[k].x + draw.between(-kJitter, kJitter),
                   stroke[k].y + draw.between(-kJitter, kJitter)};
    }
    draw_stroke(canvas, warp, std::span(points).first(stroke.size()));
  }
  static const std::array<float, 256> levels = normalised_levels();
  static const std::array<float, 1021> normals = rough_normals();
  const float reach = radius + kEdge;
  std::array<float, kDigitSide * kDigitSide> covers;
  for (size_t k = 0; k < covers.size(); ++k)
    covers[k] = limited((reach - std::sqrt(canvas.nearest()[k])) / (2 * kEdge), 1.0f);
  for (size_t k = 0; k < covers.size(); ++k) {
    const float grey = covers[k] * ink + noise * normals[byte_sum(draw.word())];
    pixels[k] = levels[static_cast<uint8_t>(limited(grey, 255.0f))];
  }
  return static_cast<int32_t>(label);
}

}  // namespace

Samples synthetic_digits(int64_t n, uint64_t seed) {
  require(n >= 1, "synthetic digits: the number of samples must be at least 1, got {}", n);
  constexpr size_t kPixels = kDigitSide * kDigitSide;
  const Seed key = fold(Seed{static_cast<uint32_t>(seed >> 32), static_cast<uint32_t>(seed)},
                        "synthetic digits");
  Samples set;
  set.images = HostTensor(TensorSpec{{n, kDigitSide, kDigitSide}, f32, {}});
  set.labels = HostTensor(TensorSpec{{n}, i32, {}});
  set.source = fmt::format("{} generated digits, seed {}", n, seed);
  const auto images = set.images.as<float>();
  const auto labels = set.labels.as<int32_t>();
  for (size_t k = 0; k < labels.size(); ++k) {
    Draw draw(fold(key, k));
    labels[k] = draw_digit(draw, images.subspan(k * kPixels, kPixels));
  }
  return set;
}

}  // namespace sluice::data
