#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "sluice/base/layout.h"
#include "sluice/exe/executable.h"
#include "sluice/target/target.h"

/// The target of opaque devices has the kernels of the CPU, but nothing that a caller could mistake
/// for the CPU's:
///  * kernel keys begin with "opaque.";
///  * the layouts are called "strips" (the CPU's panels) and "planes" (the CPU's taps);
///  * buffers are aligned to kAlignment bytes;
///  * a launch has one workspace for all tasks. It ends with kCanaryBytes that no task may touch,
///    even if the tasks need no workspace.
namespace sluice::opaque {

inline constexpr int64_t kCanaryBytes = 256;

std::shared_ptr<const Target> make_target();

/// Translate a layout from and to the CPU's. Error{kUsage} for a layout of the other target.
Layout to_cpu(const Layout& layout);
Layout from_cpu(const Layout& layout);
/// Translates the text of a layout to the text of the CPU's. Error{kUsage} for any other text.
std::string to_cpu(std::string_view layout);

/// Translates a kernel to the CPU's, without the canary. Error{kUsage} for a key or layout that is
/// not of this target.
exe::Kernel to_cpu(const exe::Kernel& kernel);

/// Bytes at the end of a kernel's workspace that its tasks must not touch.
int64_t canary_bytes(const exe::Kernel& kernel);

}  // namespace sluice::opaque
