#pragma once
#include "sluice/compiler/program.h"

namespace sluice::compiler {

/// Before: the nodes of a body may have several devices. After: a body for each device that takes part, with the same
/// calls and trip counts. A value that is made on one device and read on another is sent right after it is made (a
/// parameter or a variable: right before its first use) and received right before its first use, or before a call
/// that uses the channel; all messages of a channel are received in the order in which they are sent. A body receives
/// all that it sends, so a loop needs as many slots for one trip as for any number. A stream or a remote buffer is used,
/// and a variable is held, by the first device that uses it in the order of the program; others get messages. A node
/// that updates a variable or a parameter of another device updates a copy, which is sent back. Transfers are numbered
/// in the order of their body; index parameters that nothing reads are gone. Returns the number of messages.
/// Error{kUsage} for a conditional whose branches run on several devices.
int64_t project(Program& program, const Context& context);

}  // namespace sluice::compiler
