#pragma once

#include "sluice/ops/op.h"

namespace sluice::ops {

struct PrintTensorOptions {
  std::string title;                   ///< Printed before the values; empty: the tensor's name.
  bool print_self = true;              ///< Print the value.
  bool print_gradient = false;         ///< Print its gradient, where one is made.
  int64_t summarise_threshold = 1000;  ///< Elements beyond which only the edges are printed.
  int64_t edge_items = 3;              ///< Entries at each end of an axis that is summarised.
  int64_t max_line_width = 75;         ///< Characters in a line.
  int64_t digits = 8;                  ///< Digits after the point, at most.
  std::string float_format = "auto";   ///< auto, fixed or scientific.
  std::string separator = " ";         ///< Between entries.
  std::string open_bracket = "[";      ///< Before the entries of an axis.
  std::string close_bracket = "]";     ///< After them.
  static constexpr auto fields =
      std::tuple{field("title", &PrintTensorOptions::title),
                 field("print_self", &PrintTensorOptions::print_self),
                 field("print_gradient", &PrintTensorOptions::print_gradient),
                 field("summarise_threshold", &PrintTensorOptions::summarise_threshold),
                 field("edge_items", &PrintTensorOptions::edge_items),
                 field("max_line_width", &PrintTensorOptions::max_line_width),
                 field("digits", &PrintTensorOptions::digits),
                 field("float_format", &PrintTensorOptions::float_format),
                 field("separator", &PrintTensorOptions::separator),
                 field("open_bracket", &PrintTensorOptions::open_bracket),
                 field("close_bracket", &PrintTensorOptions::close_bracket)};
};

const OpDef& print_tensor_def();

/// x, printed to the standard error output as "title: [...]" when the program runs (in program order with other prints).
Tensor print_tensor(TensorArg x, const PrintTensorOptions& options = {});

/// The text of an array as numpy writes it.
std::string array_text(const HostTensor& array, const PrintTensorOptions& options = {});

}  // namespace sluice::ops
