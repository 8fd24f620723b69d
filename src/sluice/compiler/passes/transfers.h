#pragma once
#include "sluice/compiler/analysis/body_facts.h"

namespace sluice::compiler {

/// Moves transfers to the queues that their effects ask for. An io transfer is on an I/O queue,
/// with its wait right after it. An overlapped transfer is issued as early as order, data and
/// memory allow, and its wait is as late.
/// - A segment consists of loads, computation with the loaded data, and stores. A load is issued no
///   earlier than the segment before its own. A store is waited for no later than the end of the
///   segment after its own. Therefore memory holds the bytes of two segments at once, not of all.
/// - No transfer is in flight at a branch or at the end of the body.
/// - With three I/O queues, loads, stores and prefetches have one each. A prefetch is a load from
///   remote memory that is issued in the segment before its own. Conflicting transfers on different
///   queues wait for each other.
/// Returns the number of transfers on I/O queues. Error{kUsage} for an io mode without an I/O
/// queue.
int64_t schedule_transfers(Body& body, const FactTable& facts, int io_queues);

}  // namespace sluice::compiler
