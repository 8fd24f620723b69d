#pragma once
#include "sluice/check/findings.h"
#include "sluice/exe/executable.h"

namespace sluice::check {

/// Reports name the buffers of each function's frame. Adds a violation for each function whose list
/// is wrong: a buffer that lies outside the frame or the function's steps, a live-set bound larger
/// than the frame, or, where buffers are listed at all, bytes of the frame that a step uses and
/// that belong to no buffer of that step.
void check_listings(const exe::Executable& executable, Findings& findings);

}  // namespace sluice::check
