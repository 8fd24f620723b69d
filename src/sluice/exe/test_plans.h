#pragma once
#include <string>
#include <string_view>

#include "sluice/exe/executable.h"

/// Small plans written by hand, for tests. All are right: the checker accepts them.
namespace sluice::exe::plans {

/// One device, two kernels on two workers, a stream in and out, a variable updated in place, a
/// constant.
std::string train_step();
/// Two devices and a channel of capacity 2; a loop sends 5 messages.
std::string two_devices();
/// A loop over 6 entries of a remote buffer: loads of the next entry overlap the work on this one
/// (two-slot ring, io queue), results are stored to a second buffer.
std::string overlapped_loop();
/// A carried value in a two-slot ring, another updated in place, 1,000,000 iterations.
std::string carried_ring();
/// A branch whose arms make the same result, inside a function that is called twice.
std::string branch();
/// A function that updates its argument, called on two variables, and one that overwrites its
/// input.
std::string by_reference();
/// Four replicas and two groupings: a loop of 3 turns sums gradients over all replicas in place, then
/// gives each replica of a pair its chunk of the sums.
std::string collectives();
/// Every part of the text form; it parses but is not checked.
std::string everything();

/// The plan.
Executable plan(const std::string& text);

/// `text` with the only occurrence of `from` replaced; Error{kUsage} unless there is exactly one.
std::string replaced(std::string text, std::string_view from, std::string_view to);

}  // namespace sluice::exe::plans
