#pragma once
#include "sluice/compiler/analysis/body_facts.h"

namespace sluice::compiler {

/// Puts transfers on the queue that their effect asks for: io ones on the io queue with the wait behind them; overlapped
/// ones as early and with the wait as late as order, data and memory allow. Memory: phases follow each other, a phase being
/// loads, what computes with them and stores; a load is issued no earlier than the phase before its own, a store is
/// waited for no later than the end of the phase after its own, so that the bytes of two phases are there at once, not of
/// all. No transfer is in flight at a branch or at the end. With three io queues, loads, stores and prefetches (loads from remote
/// memory that are issued in the phase before their own) each have one; what conflicts across queues waits for each
/// other. Returns how many are on io queues. Error{kUsage} for an io mode without an io queue.
int64_t schedule_transfers(Body& body, const FactTable& facts, int io_queues);

}  // namespace sluice::compiler
