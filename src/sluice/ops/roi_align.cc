#include <algorithm>
#include <cmath>
#include <limits>

#include "sluice/ops/resample.h"
#include "sluice/ops/rules.h"

namespace sluice::ops {
namespace {

// Maximum number of samples of a bin along an axis.
constexpr int64_t kMaxSamples = 1 << 20;

void check_roi(const OpView& op, const TensorSpec& x, const RoiAlignOptions& o) {
  const std::string& name = op.def().name;
  require_float(x, name + " (C1): x");
  require_float(op.input(1), name + " (C2): boxes");
  require(op.input(1).shape.rank() == 2 && op.input(1).shape[1] == 5,
          "{} (C2): boxes must have shape (boxes, 5), got {}", name, to_string(op.input(1)));
  require(x.shape.rank() == 4 && x.shape[0] >= 0 && x.shape[1] >= 0 && x.shape[2] >= 1 &&
              x.shape[3] >= 1,
          "{} (C3): x must be (batch, channels, height, width) and images not empty, got {}", name,
          to_string(x));
  const auto fits = [](int64_t bins) { return bins >= 1 && bins <= kMaxSamples; };
  require(o.size.size() == 2 && fits(o.size[0]) && fits(o.size[1]),
          "{} (C4): size must be two numbers from 1 to 2^20, got {}", name,
          to_string(Shape(o.size)));
  require(std::isfinite(static_cast<float>(o.spatial_scale)) && o.sampling_ratio <= kMaxSamples,
          "{} (C5): spatial_scale must be a finite float32 and sampling_ratio at most 2^20, got {} "
          "and {}",
          name, o.spatial_scale, o.sampling_ratio);
}

Shape bins_of(const Shape& x, const OpView& op, const RoiAlignOptions& o) {
  return {op.input(1).shape[0], x[1], o.size[0], o.size[1]};
}

std::vector<TensorSpec> infer_roi_align(const OpView& op) {
  const auto o = op.options<RoiAlignOptions>();
  const TensorSpec& x = op.input(0);
  check_roi(op, x, o);
  return {{bins_of(x.shape, op, o), x.dtype, {}}};
}

std::vector<TensorSpec> infer_roi_align_grad(const OpView& op) {
  const auto o = op.options<RoiAlignGradOptions>();
  const TensorSpec& grad = op.input(0);
  const TensorSpec x{o.shape, grad.dtype, {}};
  check_roi(op, x, o);
  const Shape bins = bins_of(x.shape, op, o);
  require(grad.shape == bins, "roi_align_grad (C6): grad must have shape {}, got {}",
          to_string(bins), to_string(grad));
  return {x};
}

RoiAlignGradOptions roi_grad_options(const RoiAlignOptions& o, const Shape& shape) {
  RoiAlignGradOptions all;
  static_cast<RoiAlignOptions&>(all) = o;
  all.shape = shape;
  return all;
}

Tensors grad_roi_align(GradContext& g) {
  const auto o = roi_grad_options(g.options<RoiAlignOptions>(), g.op().input(0).shape);
  return {emit_one(roi_align_grad_def(), {g.grad(0), g.input(1)}, o), {}};
}
Tensors grad_roi_align_grad(GradContext& g) {
  const RoiAlignOptions o = g.options<RoiAlignGradOptions>();
  return {roi_align(g.grad(0), g.input(1), o), {}};
}

// A bin along one axis: the weights of successive elements from `first` on, which add up to the
// number of samples inside.
template <typename T>
struct Bin {
  int64_t first = 0;
  std::vector<T> weights;
};

// The bins of a box along one axis of `extent` elements. The mean over samples of bilinear values
// is a sum over rows of sums over columns, as the weights are products.
template <typename T>
struct BinsAlongAxis {
  std::vector<Bin<T>> bins;
  int64_t samples = 0;   // Samples of each bin, inside or not; may be negative.
  bool defined = false;  // Whether the box has numbers of a useful size.

  BinsAlongAxis(T low, T high, int64_t count, int64_t extent, const RoiAlignOptions& o) {
    const T offset = o.aligned ? T{0.5} : T{0};
    const T scale = static_cast<T>(o.spatial_scale);
    const T start = low * scale - offset;
    T size = (high * scale - offset) - start;
    if (!o.aligned && size < 1) size = 1;
    const T step = size / static_cast<T>(count);
    if (!(std::fabs(start) < std::numeric_limits<T>::infinity()) ||
        !(std::fabs(step) <= static_cast<T>(kMaxSamples)))
      return;
    defined = true;
    samples = o.sampling_ratio > 0 ? o.sampling_ratio : static_cast<int64_t>(std::ceil(step));
    for (int64_t b = 0; b < count; ++b)
      bins.push_back(bin(start + static_cast<T>(b) * step, step, extent));
  }

 private:
  Bin<T> bin(T start, T step, int64_t extent) const {
    Bin<T> result;
    std::vector<std::pair<int64_t, T>> taps;
    for (int64_t i = 0; i < samples; ++i) {
      T position = start + (static_cast<T>(i) + T{0.5}) * step / static_cast<T>(samples);
      if (position < -1 || position > static_cast<T>(extent)) continue;
      position = std::max(position, T{0});
      const auto index = static_cast<int64_t>(position);
      if (index >= extent - 1) {
        taps.emplace_back(extent - 1, T{1});
        continue;
      }
      const T part = position - static_cast<T>(index);
      taps.emplace_back(index, 1 - part);
      taps.emplace_back(index + 1, part);
    }
    if (taps.empty()) return result;
    const auto [first, last] = std::minmax_element(
        taps.begin(), taps.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    result.first = first->first;
    result.weights.resize(static_cast<size_t>(last->first - first->first + 1));
    for (const auto& [index, weight] : taps)
      result.weights[static_cast<size_t>(index - result.first)] += weight;
    return result;
  }
};

// Calls visit(box, image, vertical bins, horizontal bins, samples of a bin) for each box. The image
// is -1 if it is not in the batch or the box is not defined.
template <typename T, typename Visit>
void visit_boxes(const KernelArgs& k, const Shape& x, const RoiAlignOptions& o, Visit visit) {
  const T* box = k.in<T>(1).data();
  const int64_t boxes = k.in_shape(1)[0];
  for (int64_t b = 0; b < boxes; ++b, box += 5) {
    const BinsAlongAxis<T> horizontal(box[1], box[3], o.size[1], x[3], o);
    const BinsAlongAxis<T> vertical(box[2], box[4], o.size[0], x[2], o);
    const bool found =
        box[0] >= 0 && box[0] < static_cast<T>(x[0]) && horizontal.defined && vertical.defined;
    const int64_t samples = std::max<int64_t>(vertical.samples * horizontal.samples, 1);
    visit(b, found ? static_cast<int64_t>(box[0]) : -1, vertical, horizontal,
          static_cast<T>(samples));
  }
}

template <typename T>
void reference_roi_align(const KernelArgs& k) {
  const auto o = k.options<RoiAlignOptions>();
  const Shape& x = k.in_shape(0);
  const T* const images = k.in<T>(0).data();
  const int64_t channels = x[1], width = x[3], plane = x[2] * x[3];
  T* y = k.out<T>(0).data();
  visit_boxes<T>(k, x, o, [&](int64_t, int64_t image, const auto& rows, const auto& columns, T n) {
    if (image < 0) {
      const int64_t bins = channels * o.size[0] * o.size[1];
      y = std::fill_n(y, bins, std::numeric_limits<T>::quiet_NaN());
      return;
    }
    for (int64_t c = 0; c < channels; ++c) {
      const T* const from = images + (image * channels + c) * plane;
      for (const Bin<T>& row : rows.bins) {
        for (const Bin<T>& column : columns.bins) {
          T sum = 0;
          for (size_t i = 0; i < row.weights.size(); ++i) {
            const T* const at = from + (row.first + static_cast<int64_t>(i)) * width + column.first;
            T part = 0;
            for (size_t j = 0; j < column.weights.size(); ++j) part += column.weights[j] * at[j];
            sum += row.weights[i] * part;
          }
          *y++ = sum / n;
        }
      }
    }
  });
}

template <typename T>
void reference_roi_align_grad(const KernelArgs& k) {
  const auto o = k.options<RoiAlignGradOptions>();
  const Shape& x = o.shape;
  const auto dx = k.out<T>(0);
  const int64_t channels = x[1], width = x[3], plane = x[2] * x[3];
  const T* grad = k.in<T>(0).data();
  std::fill(dx.begin(), dx.end(), T{0});
  visit_boxes<T>(k, x, o, [&](int64_t, int64_t image, const auto& rows, const auto& columns, T n) {
    if (image < 0) {
      grad += channels * o.size[0] * o.size[1];
      return;
    }
    for (int64_t c = 0; c < channels; ++c) {
      T* const to = dx.data() + (image * channels + c) * plane;
      for (const Bin<T>& row : rows.bins) {
        for (const Bin<T>& column : columns.bins) {
          const T share = *grad++ / n;
          for (size_t i = 0; i < row.weights.size(); ++i) {
            T* const at = to + (row.first + static_cast<int64_t>(i)) * width + column.first;
            for (size_t j = 0; j < column.weights.size(); ++j)
              at[j] += share * row.weights[i] * column.weights[j];
          }
        }
      }
    }
  });
}

const std::string kConstraints =
    " (C1) x is floating point. (C2) boxes is floating point and has shape (boxes, 5). (C3) x is "
    "(batch, channels, height, width) and its images are not empty. (C4) size is two numbers "
    "from 1 to 2^20. (C5) spatial_scale is finite and sampling_ratio at most 2^20.";

// Boxes of images 0 and 1, one in part and one wholly outside.
HostTensor sample_boxes() {
  return HostTensor::of<float>({4, 5}, f32, {0, 0.3f, 0.2f, 3.4f, 4.1f,  //
                                             1, 1.1f, 2.3f, 2.2f, 3.7f,  //
                                             0, -3,   2.6f, 2.1f, 9.3f,  //
                                             1, 20,   20,   25,   25});
}

std::vector<RoiAlignOptions> sample_options() {
  return {{.size = {2, 3}},
          {.size = {2, 2}, .spatial_scale = 0.5, .sampling_ratio = 2},
          {.size = {1, 2}, .spatial_scale = 0.75, .sampling_ratio = 3, .aligned = true},
          {.size = {3, 2}, .aligned = true}};
}

template <typename Options>
std::vector<MustFail> refusals(const TensorSpec& first, const Options& good) {
  const TensorSpec boxes = f32_spec({3, 5});
  const auto with = [&](auto change) {
    Options o = good;
    change(o);
    return to_attrs(o);
  };
  const TensorSpec whole{first.shape, i32, {}};
  const Attrs attrs = to_attrs(good);
  return {{"(C1)", {whole, boxes}, attrs},
          {"(C2)", {first, i32_spec({3, 5})}, attrs},
          {"(C2)", {first, f32_spec({3, 4})}, attrs},
          {"(C4)", {first, boxes}, with([](Options& o) { o.size = {2}; })},
          {"(C4)", {first, boxes}, with([](Options& o) {
             o.size = {2, 0};
           })},
          {"(C5)", {first, boxes}, with([](Options& o) { o.spatial_scale = 1e300; })},
          {"(C5)", {first, boxes}, with([](Options& o) { o.sampling_ratio = kMaxSamples + 1; })}};
}

}  // namespace

const OpDef& roi_align_def() {
  static const OpDef def = [] {
    OpDef d;
    d.type = "RoiAlign";
    d.name = "roi_align";
    d.doc =
        "The means of samples in the bins of boxes of images, as torchvision.ops.roi_align. A box "
        "of an image that is not in the batch, or without a useful size, yields NaN." +
        kConstraints;
    d.inputs = {{"x"}, {.name = "boxes", .zero_gradient = true}};
    d.outputs = {"y"};
    d.set_options(RoiAlignOptions{});
    d.infer = infer_roi_align;
    d.grad = grad_roi_align;
    d.reference_float = reference_roi_align<float>;
    d.reference_double = reference_roi_align<double>;
    d.flops_per_element = 40;
    for (const RoiAlignOptions& o : sample_options()) {
      d.samples.push_back({.inputs = {f32_spec({2, 2, 5, 4}), f32_spec({4, 5})},
                           .options = to_attrs(o),
                           .values = {std::nullopt, sample_boxes()}});
    }
    d.samples.push_back({.inputs = {{{2, 1, 4, 4}, f16, {}}, f32_spec({4, 5})},
                         .options = to_attrs(RoiAlignOptions{.size = {2, 2}}),
                         .values = {std::nullopt, sample_boxes()}});
    d.samples.push_back({.inputs = {f32_spec({1, 2, 3, 3}), f32_spec({0, 5})},
                         .options = to_attrs(RoiAlignOptions{.size = {2, 2}})});
    d.must_fail = refusals(f32_spec({2, 1, 4, 4}), RoiAlignOptions{.size = {2, 2}});
    d.must_fail.push_back({"(C3)",
                           {f32_spec({2, 4, 4}), f32_spec({3, 5})},
                           to_attrs(RoiAlignOptions{.size = {2, 2}})});
    d.must_fail.push_back({"(C3)",
                           {f32_spec({2, 1, 0, 4}), f32_spec({3, 5})},
                           to_attrs(RoiAlignOptions{.size = {2, 2}})});
    return d;
  }();
  return def;
}

const OpDef& roi_align_grad_def() {
  static const OpDef def = [] {
    OpDef d;
    d.type = "RoiAlignGrad";
    d.name = "roi_align_grad";
    d.audience = Audience::kOperators;
    d.doc =
        "The gradient of x of roi_align, in the order of the boxes. A box that yields NaN adds "
        "nothing. The x of the constraints is an operand of the given shape and grad's dtype." +
        kConstraints + " (C6) grad has the shape of y.";
    d.inputs = {{"grad"}, {.name = "boxes", .zero_gradient = true}};
    d.outputs = {"dx"};
    d.set_options(RoiAlignGradOptions{});
    d.infer = infer_roi_align_grad;
    d.grad = grad_roi_align_grad;
    d.reference_float = reference_roi_align_grad<float>;
    d.reference_double = reference_roi_align_grad<double>;
    d.flops = [](const OpView& op) { return 40.0 * static_cast<double>(op.input(0).elements()); };
    for (const RoiAlignOptions& o : sample_options()) {
      d.samples.push_back({.inputs = {f32_spec({4, 2, o.size[0], o.size[1]}), f32_spec({4, 5})},
                           .options = to_attrs(roi_grad_options(o, {2, 2, 5, 4})),
                           .values = {std::nullopt, sample_boxes()}});
    }
    const RoiAlignOptions o{.size = {2, 2}};
    d.must_fail = refusals(f32_spec({3, 1, 2, 2}), roi_grad_options(o, {2, 1, 4, 4}));
    const std::vector<TensorSpec> inputs{f32_spec({3, 1, 2, 2}), f32_spec({3, 5})};
    d.must_fail.push_back({"(C3)", inputs, to_attrs(roi_grad_options(o, {2, 4, 4}))});
    d.must_fail.push_back({"(C6)", inputs, to_attrs(roi_grad_options(o, {2, 2, 4, 4}))});
    return d;
  }();
  return def;
}

std::vector<const OpDef*> roi_align_ops() { return {&roi_align_def(), &roi_align_grad_def()}; }

Tensor roi_align(TensorArg x, TensorArg boxes, const RoiAlignOptions& options) {
  return emit_one(roi_align_def(), {x, boxes}, options);
}

}  // namespace sluice::ops
