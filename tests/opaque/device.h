#pragma once
#include <memory>
#include <span>

#include "options.h"
#include "sluice/runtime/queue.h"

/// A device for tests that behaves as the strictest GPU. It computes with the functions of the CPU
/// and gives the CPU's bits. But the host can touch its memory only through the interface, commands
/// run late, and every assumption that runtime/queue.h does not grant is an error.
namespace sluice::opaque {

/// Creates a device of kind "opaque". It is the family of all devices that it opens: only these may
/// exchange data, and they share the options' counts. An error of a command, and an error of the
/// caller, ends all queues of its open device.
std::shared_ptr<runtime::Device> make_device(Options options = {});

/// Checks that the host may read or write memory now: no command of the family that the host does
/// not know to have ended may write it, or touch it if the host writes. `device` must be of
/// make_device(). Error{kInternal} naming the command.
void check_host_access(runtime::Device& device, std::span<const std::byte> memory, bool writes);

/// Returns the number of recordings that queues of the family have made. `device` must be of
/// make_device().
int64_t recordings(runtime::Device& device);
/// Returns the number of launches and copies that were enqueued on the family's queues. `device`
/// must be of make_device().
int64_t enqueued_commands(runtime::Device& device);
/// Returns the number of commands of the family that began after a sleep (Options::delay). `device`
/// must be of make_device().
int64_t delayed_commands(runtime::Device& device);
/// Returns the number of calls of the family that have blocked because their queue was full, those
/// in progress included. `device` must be of make_device().
int64_t blocked_calls(runtime::Device& device);

}  // namespace sluice::opaque
