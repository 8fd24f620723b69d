#pragma once
#include <string_view>

// The viewer of report.html: the files of viewer/, embedded by CMake.

namespace sluice::report {

/// A page with the marks /*STYLE*/, /*SCRIPT*/ and /*REPORT*/, in this order.
extern const std::string_view kViewerPage;
extern const std::string_view kViewerStyle;
extern const std::string_view kViewerScript;

}  // namespace sluice::report
