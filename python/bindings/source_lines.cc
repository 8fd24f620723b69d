#include "python/bindings/source_lines.h"

#include <fmt/core.h>

#include <string_view>

#include "python/bindings/bindings.h"

namespace sluice::python {
namespace {

/// Whether a file belongs to the package: its folder is that of this module.
bool in_package(std::string_view file) {
  static const std::string folder = [] {
    const auto init = nb::cast<std::string>(nb::module_::import_("sluice").attr("__file__"));
    return init.substr(0, init.rfind('/') + 1);
  }();
  return file.starts_with(folder);
}

/// Returns the name of a file without its folders, as the lines of C++ programs have it.
std::string_view base_name(std::string_view file) { return file.substr(file.rfind('/') + 1); }

}  // namespace

std::string source_line() {
  PyFrameObject* frame = PyEval_GetFrame();
  nb::object held;  // Keeps the frame alive: PyFrame_GetBack returns a new reference.
  while (frame != nullptr) {
    const nb::object code = nb::steal(reinterpret_cast<PyObject*>(PyFrame_GetCode(frame)));
    const nb::object name = code.attr("co_filename");
    const char* const file = nb::borrow<nb::str>(name).c_str();
    if (!in_package(file))
      return fmt::format("{}:{}", base_name(file), PyFrame_GetLineNumber(frame));
    frame = PyFrame_GetBack(frame);
    held = nb::steal(reinterpret_cast<PyObject*>(frame));
  }
  return "";
}

}  // namespace sluice::python
