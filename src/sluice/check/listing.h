#pragma once
#include "sluice/check/findings.h"
#include "sluice/exe/executable.h"

namespace sluice::check {

/// Checks the lists of frame buffers that reports use, and adds a violation for each function with
/// a wrong list. Each buffer must be inside the frame and the steps of its function. The live-set
/// bound must not exceed the frame. If a function lists buffers, each byte of the frame that a step
/// uses must be in a buffer of that step.
void check_listings(const exe::Executable& executable, Findings& findings);

}  // namespace sluice::check
