#pragma once

#include "sluice/ops/op.h"

namespace sluice::ops {

struct PrintTensorOptions {
  std::string title = {};       ///< Text before the values; if empty, the name of the tensor.
  bool print_self = true;       ///< Print the value.
  bool print_gradient = false;  ///< Print the gradient of x, if it is computed.
  int64_t summarise_threshold = 1000;  ///< Largest number of elements that is printed in full.
  int64_t edge_items = 3;              ///< Entries printed at each end of a summarised axis.
  int64_t max_line_width = 75;         ///< Characters in a line.
  int64_t digits = 8;                  ///< Digits after the point, at most.
  std::string float_format = "auto";   ///< auto, fixed or scientific.
  std::string separator = " ";         ///< Text between entries.
  std::string open_bracket = "[";      ///< Text before the entries of an axis.
  std::string close_bracket = "]";     ///< Text after the entries of an axis.
  static auto fields(auto&& use) {
    return use(field("title", &PrintTensorOptions::title),
               field("print_self", &PrintTensorOptions::print_self),
               field("print_gradient", &PrintTensorOptions::print_gradient),
               field("summarise_threshold", &PrintTensorOptions::summarise_threshold),
               field("edge_items", &PrintTensorOptions::edge_items),
               field("max_line_width", &PrintTensorOptions::max_line_width),
               field("digits", &PrintTensorOptions::digits),
               field("float_format", &PrintTensorOptions::float_format),
               field("separator", &PrintTensorOptions::separator),
               field("open_bracket", &PrintTensorOptions::open_bracket),
               field("close_bracket", &PrintTensorOptions::close_bracket));
  }
};

const OpDef& print_tensor_def();

/// Returns x. When the program runs, prints it to standard error as "title: [...]", in program
/// order with other prints.
Tensor print_tensor(TensorArg x, const PrintTensorOptions& options = {});

/// Returns the text of `array` as numpy writes it.
std::string array_text(const HostTensor& array, const PrintTensorOptions& options = {});

}  // namespace sluice::ops
