#pragma once
#include <string>

namespace sluice::python {

/// Returns the line of the Python program that is running, "model.py:12": that of the innermost
/// frame outside the package sluice. Empty without such a frame. Requires the interpreter's lock.
std::string source_line();

}  // namespace sluice::python
