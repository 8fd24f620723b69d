#pragma once
#include <string>
#include <string_view>

#include "sluice/exe/executable.h"

/// Small hand-written plans for tests. The checker accepts them, except perhaps everything().
namespace sluice::exe::plans {

/// One device with two workers, kernels with two tasks, an input and an output stream, a variable
/// updated in place, and a constant.
std::string train_step();
/// Two devices and a channel of capacity 2; a loop sends 5 messages.
std::string two_devices();
/// A loop over 6 entries of a remote buffer. It loads the next entry while it computes with the
/// current one (two-slot ring, load queue), and stores the results to a second buffer.
std::string overlapped_loop();
/// A loop of 1,000,001 iterations with a carried value in a two-slot ring and another one updated
/// in place.
std::string carried_ring();
/// A loop of 1,000,000 iterations with two carried values that rotate in a ring of three slots: a
/// new value is the sum of both. The last two are written to a stream.
std::string rotating_ring();
/// A branch whose arms write the same result, inside a function that is called twice.
std::string branch();
/// A function that updates its argument and is called on two variables, and a function that
/// overwrites its input.
std::string by_reference();
/// Four replicas and two groupings. A loop of 3 iterations sums gradients over all replicas in
/// place, then scatters the chunks of the sums over each pair of replicas.
std::string collectives();
/// A plan with every part of the text form. It is made for parsing, not for the checker.
std::string everything();

/// Parses a plan and ignores its fingerprint.
Executable plan(const std::string& text);

/// `text` with the only occurrence of `from` replaced; Error{kUsage} unless there is exactly one.
std::string replaced(std::string text, std::string_view from, std::string_view to);

}  // namespace sluice::exe::plans
