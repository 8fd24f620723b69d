#pragma once
#include "sluice/compiler/program.h"

namespace sluice::compiler {

/// Before: the nodes of a body may have several devices. After: one body for each participating
/// device, with the same calls and trip counts.
/// - A value that another device reads is sent right after it is computed. A parameter or a
///   variable is sent right before its first use there. A message is received right before its
///   first use, or before an earlier call that uses the channel.
/// - All messages of a channel are received in the order in which they are sent. Each body receives
///   all messages that it sends. So the slots of a loop do not depend on its trip count.
/// - The first device that uses a stream or a remote buffer, in the order of the program, is the
///   only one to use it. The first device that uses a variable holds it. Other devices get
///   messages. A node that updates a variable or a parameter of another device updates a copy,
///   which is sent back.
/// - Transfers are numbered in the order of their body. Index parameters that nothing reads are
///   removed.
/// Returns the number of messages. Error{kUsage} for a conditional whose branches run on several
/// devices.
int64_t project(Program& program, const Context& context);

}  // namespace sluice::compiler
