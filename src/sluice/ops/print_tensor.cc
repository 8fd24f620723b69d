#include "sluice/ops/print_tensor.h"

#include <algorithm>
#include <cmath>

#include "sluice/base/sys.h"
#include "sluice/ops/rules.h"

namespace sluice::ops {
namespace {

/// Formats the entries of an array as words of one width.
class Words {
 public:
  Words(const HostTensor& array, const PrintTensorOptions& options)
      : dtype_(array.dtype()),
        digits_(static_cast<int>(options.digits)),
        values_(array.to_doubles()) {
    double largest = 0;
    double smallest = HUGE_VAL;
    visit_shown(array.shape(), options, [&](int64_t i) {
      const double v = std::fabs(at(i));
      if (!std::isfinite(v) || v == 0) return;
      largest = std::max(largest, v);
      smallest = std::min(smallest, v);
    });
    scientific_ = options.float_format == "scientific" ||
                  (options.float_format == "auto" && largest > 0 &&
                   (largest >= 1e8 || smallest < 1e-4 || largest / smallest > 1e3));
    visit_shown(array.shape(), options, [&](int64_t i) {
      if (std::isfinite(at(i))) decimals_ = std::max(decimals_, decimals_needed(at(i)));
    });
    visit_shown(array.shape(), options,
                [&](int64_t i) { width_ = std::max(width_, raw(i).size()); });
  }

  std::string operator()(int64_t i) const { return fmt::format("{:>{}}", raw(i), width_); }

  /// Calls f(i) for each shown index of an axis, in order, and f(-1) in place of the omitted ones.
  template <typename F>
  static void visit_axis(int64_t extent, int64_t edge, bool summarise, const F& f) {
    for (int64_t i = 0; i < extent; ++i) {
      if (summarise && extent > 2 * edge && i == edge) {
        f(-1);
        i = extent - edge - 1;
      } else {
        f(i);
      }
    }
  }

  static bool summarises(const Shape& shape, const PrintTensorOptions& options) {
    return shape.elements() > options.summarise_threshold;
  }

 private:
  double at(int64_t i) const { return sluice::at(values_, i); }

  template <typename F>
  static void visit_shown(const Shape& shape, const PrintTensorOptions& options, const F& f,
                          int axis = 0, int64_t base = 0) {
    if (axis == shape.rank()) return f(base);
    visit_axis(shape[axis], options.edge_items, summarises(shape, options), [&](int64_t i) {
      if (i >= 0) visit_shown(shape, options, f, axis + 1, base * shape[axis] + i);
    });
  }

  std::string number(double v, int digits) const {
    return scientific_ ? fmt::format("{:#.{}e}", v, digits) : fmt::format("{:#.{}f}", v, digits);
  }

  /// Digits after the point, at most digits_, that distinguish the value from its neighbours of the
  /// same dtype.
  int decimals_needed(double v) const {
    if (!is_float(dtype_)) return 0;
    for (int digits = 0; digits < digits_; ++digits) {
      const double read = std::stod(number(v, digits));
      if (dtype_ == f64 ? read == v
                        : round_to(dtype_, static_cast<float>(read)) == static_cast<float>(v)) {
        return digits;
      }
    }
    return digits_;
  }

  std::string raw(int64_t i) const {
    const double v = at(i);
    if (dtype_ == boolean) return v != 0 ? "True" : "False";
    if (!is_float(dtype_)) return fmt::format("{}", static_cast<int64_t>(v));
    if (std::isnan(v)) return "nan";
    if (std::isinf(v)) return v < 0 ? "-inf" : "inf";
    std::string text = number(v, decimals_);
    if (!scientific_) {
      const size_t last = text.find_last_not_of('0');
      std::fill(text.begin() + static_cast<int64_t>(last) + 1, text.end(), ' ');
    }
    return text;
  }

  DType dtype_;
  int digits_;
  std::vector<double> values_;
  bool scientific_ = false;
  int decimals_ = 0;
  size_t width_ = 0;
};

std::string rstrip(std::string text) {
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

std::string text_of(const Words& word, const Shape& shape, const PrintTensorOptions& o, int axis,
                    int64_t base) {
  if (axis == shape.rank()) return word(base);
  const bool summarise = Words::summarises(shape, o);
  const bool innermost = axis == shape.rank() - 1;
  const std::string indent(static_cast<size_t>(axis + 1) * o.open_bracket.size(), ' ');
  const int64_t room =
      std::max<int64_t>(0, o.max_line_width - shape.rank() * std::ssize(o.close_bracket));
  std::string text = o.open_bracket;
  int64_t column = std::ssize(indent);
  bool first = true;
  Words::visit_axis(shape[axis], o.edge_items, summarise, [&](int64_t i) {
    const std::string entry =
        i < 0 ? "..." : text_of(word, shape, o, axis + 1, base * shape[axis] + i);
    if (!innermost) {
      if (!first)
        text += rstrip(o.separator) +
                std::string(static_cast<size_t>(shape.rank() - 1 - axis), '\n') + indent;
    } else if (!first && column + std::ssize(o.separator) + std::ssize(entry) > room) {
      text = rstrip(text + o.separator) + '\n' + indent;
      column = std::ssize(indent);
    } else if (!first) {
      text += o.separator;
      column += std::ssize(o.separator);
    }
    text += entry;
    column += std::ssize(entry);
    first = false;
  });
  return text + o.close_bracket;
}

std::vector<TensorSpec> infer_print(const OpView& op) {
  require_device_dtype(op.input(0), "print_tensor (C1): x");
  const auto o = op.options<PrintTensorOptions>();
  require(o.float_format == "auto" || o.float_format == "fixed" || o.float_format == "scientific",
          "print_tensor (C2): float_format must be auto, fixed or scientific, got '{}'",
          o.float_format);
  require(o.edge_items >= 0 && o.summarise_threshold >= 0 && o.max_line_width > 0 &&
              o.digits >= 0 && o.digits <= 20,
          "print_tensor (C3): edge_items and summarise_threshold must not be negative, "
          "max_line_width must be positive, "
          "digits must be in [0, 20], got {}, {}, {} and {}",
          o.edge_items, o.summarise_threshold, o.max_line_width, o.digits);
  return {op.input(0)};
}

template <typename T>
void reference_print(const KernelArgs& k) {
  const auto o = k.options<PrintTensorOptions>();
  visit_element<T>(k.in_dtype(0), [&]<typename E>(E) {
    const auto x = k.in<E>(0);
    const auto y = k.out<E>(0);
    if (o.print_self) {
      std::vector<double> values(x.begin(), x.end());
      HostTensor array = HostTensor::of<double>(k.in_shape(0), f64, values).cast(k.in_dtype(0));
      sys::print_stderr("{}: {}\n", o.title, array_text(array, o));
    }
    if (x.data() != y.data()) std::copy(x.begin(), x.end(), y.begin());
  });
}

Tensor emit_print(const TensorArg& x, const PrintTensorOptions& options) {
  Effect effect{Effect::Action::kPrint, 0, 0, -1};
  for (const Op& op : x->graph().ops()) {
    effect.order += std::count_if(op.effects.begin(), op.effects.end(),
                                  [](const Effect& e) { return e.kind == Effect::Action::kPrint; });
  }
  return emit(print_tensor_def(), {x}, to_attrs(options), {.effects = {effect}})[0];
}

Tensors grad_print(GradContext& g) {
  auto options = g.options<PrintTensorOptions>();
  if (!options.print_gradient) return {g.grad(0)};
  options.title += "_gradient";
  options.print_self = true;
  options.print_gradient = false;
  return {emit_print(g.grad(0), options)};
}

}  // namespace

const OpDef& print_tensor_def() {
  static const OpDef def = [] {
    OpDef d;
    d.type = "PrintTensor";
    d.name = "print_tensor";
    d.doc =
        "x; prints its value, or its gradient's. (C1) x has a dtype that devices have. (C2) "
        "float_format is auto, fixed "
        "or scientific. (C3) Sizes are not negative, max_line_width is positive, digits at most "
        "20.";
    d.inputs = {{"x"}};
    d.outputs = {"y"};
    d.set_options(PrintTensorOptions{});
    d.traits = kElementwise;
    d.may_coincide = {{0, 0}};
    d.infer = infer_print;
    d.grad = grad_print;
    d.reference_float = reference_print<float>;
    d.reference_double = reference_print<double>;
    // The samples do not print; a separate test checks the text.
    const Attrs quiet = to_attrs(PrintTensorOptions{.title = "sample", .print_self = false});
    for (const Shape& shape : {Shape{}, Shape{7}, Shape{0, 2}})
      d.samples.push_back({.inputs = {f32_spec(shape)}, .options = quiet});
    d.samples.push_back({.inputs = {i32_spec({3})}, .options = quiet, .gradient = false});
    d.must_fail = {{"(C1)", {{Shape{2}, f64, {}}}, quiet},
                   {"(C2)", {f32_spec({2})}, to_attrs(PrintTensorOptions{.float_format = "hex"})},
                   {"(C3)", {f32_spec({2})}, to_attrs(PrintTensorOptions{.max_line_width = 0})}};
    return d;
  }();
  return def;
}

std::vector<const OpDef*> print_tensor_ops() { return {&print_tensor_def()}; }

Tensor print_tensor(TensorArg x, const PrintTensorOptions& options) {
  PrintTensorOptions titled = options;
  if (titled.title.empty()) titled.title = x->name();
  return emit_print(x, titled);
}

std::string array_text(const HostTensor& array, const PrintTensorOptions& options) {
  const Words words(array, options);
  return text_of(words, array.shape(), options, 0, 0);
}

}  // namespace sluice::ops
