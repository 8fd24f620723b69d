#include <algorithm>

#include "sluice/check/simulation/simulation.h"

namespace sluice::check {
void Simulation::find_feeds() {
  feed_of_ = exe::feeds_of_streams(e_);
  user_of_.assign(e_.streams.size(), -1);
  for (const exe::Function& f : e_.functions) {
    for (const exe::Step& s : f.steps) {
      const auto* i = std::get_if<exe::Issue>(&s.body);
      if (i != nullptr && is_stream(*i)) user_of_[static_cast<size_t>(i->object)] = f.device;
    }
  }
}

/// Entry k of an infeed exists once every ring has had a free slot for element k. An outfeed's ring
/// has a free slot once all fields of the element in it have been stored.
const exe::FeedRing* Simulation::awaited_field(const exe::Issue& i) const {
  if (!is_stream(i) || feed_of_[static_cast<size_t>(i.object)] < 0) return nullptr;
  const auto used = [&](const exe::FeedRing& r) {
    return streams_[static_cast<size_t>(r.stream)].next;
  };
  const exe::Feed& feed = e_.feeds[static_cast<size_t>(feed_of_[static_cast<size_t>(i.object)])];
  const int64_t entry = streams_[static_cast<size_t>(i.object)].next;
  int64_t own_slots = 0;
  for (const exe::FeedRing& r : feed.rings) {
    if (r.stream == i.object) own_slots = r.slots;
  }
  for (const exe::FeedRing& r : feed.rings) {
    if (entry - used(r) >= (feed.input ? r.slots : own_slots)) return &r;
  }
  return nullptr;
}

Simulation::Awaited Simulation::awaited_feed(const DeviceRun& d, const exe::Issue& i) const {
  const exe::FeedRing& other = *awaited_field(i);
  const exe::Feed& feed = e_.feeds[static_cast<size_t>(feed_of_[static_cast<size_t>(i.object)])];
  const exe::FeedRing& own =
      *std::find_if(feed.rings.begin(), feed.rings.end(),
                    [&](const exe::FeedRing& r) { return r.stream == i.object; });
  const auto name = [&](int32_t stream) { return e_.streams[static_cast<size_t>(stream)].name; };
  return {
      user_of_[static_cast<size_t>(other.stream)],
      fmt::format("device {} ({}) waits to {} entry {} of field '{}' of feed '{}': the {} slots "
                  "of '{}' are full until entry {} of field '{}' is {}",
                  d.device, path_of(d), feed.input ? "load" : "store",
                  streams_[static_cast<size_t>(i.object)].next, name(i.object), feed.name,
                  (feed.input ? other : own).slots, name((feed.input ? other : own).stream),
                  streams_[static_cast<size_t>(other.stream)].next, name(other.stream),
                  feed.input ? "loaded" : "stored")};
}

void Simulation::feed_queue(DeviceRun& d, const exe::Issue& i) {
  if (i.queue == 0 || feed_of_[static_cast<size_t>(i.object)] < 0) return;
  bad(d, "stream", "a transfer of feed '{}' must be on queue 0, got queue {}",
      e_.feeds[static_cast<size_t>(feed_of_[static_cast<size_t>(i.object)])].name, i.queue);
}

/// Entries used of each field, beyond those of the first field of its feed.
void Simulation::feed_state(std::vector<int64_t>& out) const {
  for (const exe::Feed& feed : e_.feeds) {
    for (const exe::FeedRing& r : feed.rings) {
      out.push_back(streams_[static_cast<size_t>(r.stream)].next -
                    streams_[static_cast<size_t>(feed.rings.front().stream)].next);
    }
  }
}

}  // namespace sluice::check
