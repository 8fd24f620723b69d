#include "sluice/runtime/queued/staging.h"

#include <algorithm>

namespace sluice::runtime {

Staging::Staging(RunState& run, Commands& commands, std::span<std::byte> memory)
    : run_(run),
      commands_(commands),
      word_(memory.data()),
      slot_bytes_(exe::StagingPlan::of_arena(static_cast<int64_t>(memory.size())).slot) {
  if (memory.empty()) return;
  for (size_t i = 0; i < slots_.size(); ++i) {
    slots_[i].memory =
        memory.data() + exe::StagingPlan::kWord + static_cast<int64_t>(i) * slot_bytes_;
  }
}

void Staging::restart() {
  for (Slot& slot : slots_) slot.mark = 0;
  done_ = 0;
  storing_ = waits_ = false;
}

bool Staging::advance(const QueuedTransfer& t) {
  const int64_t all = t.issue->memory.bytes;
  while (done_ < all) {
    if (run_.stop->load(std::memory_order_relaxed)) return false;
    const int64_t bytes = std::min(slot_bytes_, all - done_);
    if (!(t.is_load() ? load_piece(t, bytes) : store_piece(t, bytes))) return false;
    done_ += bytes;
  }
  done_ = 0;
  return true;
}

bool Staging::is_free(Slot& slot) {
  if (slot.mark != 0 && commands_.passed(slot.mark)) slot.mark = 0;
  waits_ = slot.mark != 0;
  return !waits_;
}

std::byte* Staging::array(const QueuedTransfer& t) const {
  if (const FeedPort* const port = run_.port(t.issue->stream())) return port->next() + done_;
  return run_.streams->entry(t.issue->stream(), t.entry, run_.replica) + done_;
}

bool Staging::load_piece(const QueuedTransfer& t, int64_t bytes) {
  Slot& slot = slots_[next_];
  if (!is_free(slot)) return false;
  if (t.issue->kind == exe::TransferKind::kStreamIn) {
    std::copy_n(array(t), bytes, slot.memory);
  } else {
    run_.remote->load(t.issue->buffer(), t.entry, done_, {slot.memory, slot.memory + bytes});
  }
  commands_.add(t.step, [&](Queue& q) { q.upload(t.memory + done_, slot.memory, bytes); });
  slot.mark = commands_.mark();
  next_ = (next_ + 1) % slots_.size();
  return true;
}

bool Staging::store_piece(const QueuedTransfer& t, int64_t bytes) {
  Slot& slot = slots_[next_];
  if (!is_free(slot)) return false;
  if (!storing_) {
    commands_.add(t.step, [&](Queue& q) { q.download(slot.memory, t.memory + done_, bytes); });
    slot.mark = commands_.mark();
    storing_ = true;
    if (!is_free(slot)) return false;
  }
  storing_ = false;
  if (t.issue->kind == exe::TransferKind::kStreamOut) {
    std::copy_n(slot.memory, bytes, array(t));
  } else {
    run_.remote->store(t.issue->buffer(), t.entry, done_, {slot.memory, slot.memory + bytes});
  }
  return true;
}

}  // namespace sluice::runtime
