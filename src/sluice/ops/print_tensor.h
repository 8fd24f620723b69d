#pragma once

#include "sluice/ops/op.h"

namespace sluice::ops {

struct PrintTensorOptions {
  std::string title = {};
  bool print_self = true;
  bool print_gradient = false;
  int64_t summarise_threshold = 1000;
  int64_t edge_items = 3;
  int64_t max_line_width = 75;
  int64_t digits = 8;
  std::string float_format = "auto";
  std::string separator = " ";
  std::string open_bracket = "[";
  std::string close_bracket = "]";
  static auto fields(auto&& use) {
    return use(
        field("title", &PrintTensorOptions::title,
              "Text before the values; if empty, the name of the tensor."),
        field("print_self", &PrintTensorOptions::print_self, "Print the value."),
        field("print_gradient", &PrintTensorOptions::print_gradient,
              "Print the gradient of x, if it is computed."),
        field("summarise_threshold", &PrintTensorOptions::summarise_threshold,
              "Largest number of elements that is printed in full."),
        field("edge_items", &PrintTensorOptions::edge_items,
              "Entries printed at each end of a summarised axis."),
        field("max_line_width", &PrintTensorOptions::max_line_width, "Characters in a line."),
        field("digits", &PrintTensorOptions::digits, "Digits after the point, at most."),
        field("float_format", &PrintTensorOptions::float_format, "auto, fixed or scientific."),
        field("separator", &PrintTensorOptions::separator, "Text between entries."),
        field("open_bracket", &PrintTensorOptions::open_bracket,
              "Text before the entries of an axis."),
        field("close_bracket", &PrintTensorOptions::close_bracket,
              "Text after the entries of an axis."));
  }
};

const OpDef& print_tensor_def();

/// Returns x. When the program runs, prints it to standard error as "title: [...]", in program
/// order with other prints.
Tensor print_tensor(TensorArg x, const PrintTensorOptions& options = {});

/// Returns the text of `array` as numpy writes it.
std::string array_text(const HostTensor& array, const PrintTensorOptions& options = {});

}  // namespace sluice::ops
