#pragma once
#include <map>

#include "sluice/exe/executable.h"

namespace sluice::compiler {

/// Values of messages, by number of the message (Node::Send::message).
struct MessageValues {
  std::map<int32_t, exe::ValueId> sent;
  std::map<int32_t, exe::ValueId> received;
};

/// Gives values without a provenance that of the value that they are made of: copies, received
/// messages, results of calls, and parameters, which have that of their first argument. Gives steps
/// without a provenance that of the value that they copy, send, receive, store or wait for.
void carry_provenances(const MessageValues& messages, exe::Executable& executable);

}  // namespace sluice::compiler
