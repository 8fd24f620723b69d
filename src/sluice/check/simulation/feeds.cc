#include <algorithm>

#include "sluice/check/simulation/simulation.h"

namespace sluice::check {
void Simulation::find_feeds() {
  feed_of_ = exe::feeds_of_streams(e_);
  user_of_.assign(e_.streams.size(), exe::DeviceId());
  for (const exe::Function& f : e_.functions) {
    for (const exe::Step& s : f.steps) {
      const auto* i = std::get_if<exe::Issue>(&s.body);
      if (i != nullptr && i->is_stream()) user_of_[i->stream()] = f.device;
    }
  }
}

/// Entry k of an infeed exists once every ring has had a free slot for element k. An outfeed's ring
/// has a free slot once all fields of the element in it have been stored.
const exe::FeedRing* Simulation::awaited_field(const exe::Issue& i) const {
  if (!i.is_stream() || !feed_of_[i.stream()].valid()) return nullptr;
  const auto used = [&](const exe::FeedRing& r) { return streams_[r.stream].next; };
  const exe::Feed& feed = e_.feeds[feed_of_[i.stream()]];
  const int64_t entry = streams_[i.stream()].next;
  int64_t own_slots = 0;
  for (const exe::FeedRing& r : feed.rings) {
    if (r.stream == i.stream()) own_slots = r.slots;
  }
  for (const exe::FeedRing& r : feed.rings) {
    if (entry - used(r) >= (feed.input ? r.slots : own_slots)) return &r;
  }
  return nullptr;
}

Simulation::Awaited Simulation::awaited_feed(const DeviceRun& d, const exe::Issue& i) const {
  const exe::FeedRing& other = *awaited_field(i);
  const exe::Feed& feed = e_.feeds[feed_of_[i.stream()]];
  const exe::FeedRing& own =
      *std::find_if(feed.rings.begin(), feed.rings.end(),
                    [&](const exe::FeedRing& r) { return r.stream == i.stream(); });
  const auto name = [&](exe::StreamId stream) { return e_.streams[stream].name; };
  return {
      user_of_[other.stream],
      fmt::format("device {} ({}) waits to {} entry {} of field '{}' of feed '{}': the {} slots "
                  "of '{}' are full until entry {} of field '{}' is {}",
                  d.device, path_of(d), feed.input ? "load" : "store", streams_[i.stream()].next,
                  name(i.stream()), feed.name, (feed.input ? other : own).slots,
                  name((feed.input ? other : own).stream), streams_[other.stream].next,
                  name(other.stream), feed.input ? "loaded" : "stored")};
}

void Simulation::feed_queue(DeviceRun& d, const exe::Issue& i) {
  if (i.queue == 0 || !feed_of_[i.stream()].valid()) return;
  bad(d, "stream", "a transfer of feed '{}' must be on queue 0, got queue {}",
      e_.feeds[feed_of_[i.stream()]].name, i.queue);
}

/// Entries used of each field, beyond those of the first field of its feed.
void Simulation::feed_state(std::vector<int64_t>& out) const {
  for (const exe::Feed& feed : e_.feeds) {
    for (const exe::FeedRing& r : feed.rings) {
      out.push_back(streams_[r.stream].next - streams_[feed.rings.front().stream].next);
    }
  }
}

}  // namespace sluice::check
