#include <fmt/format.h>

#include <algorithm>

#include "sluice/check/simulation/simulation.h"

namespace sluice::check {

/// Returns the running steps of a device: "'main 0' step 2 iteration 3, 'body' step 1".
std::string Simulation::path_of(const DeviceRun& d) const {
  std::string text;
  for (const Activation& a : d.stack) {
    text += fmt::format("{}'{}' step {}", text.empty() ? "" : ", ", a.function->name, a.step);
    if (a.loop) text += fmt::format(" iteration {}", a.loop->iteration);
  }
  return text;
}

/// Returns the message or the element for which a blocked device waits. Only sends, receives and
/// transfers of feeds block.
Simulation::Awaited Simulation::awaited(const DeviceRun& d) {
  const Activation& a = d.stack.back();
  const exe::Step& step = a.function->steps[a.step];
  if (const auto* s = std::get_if<exe::Send>(&step.body)) {
    const exe::Channel& c = e_.channels[s->channel];
    return {c.to, fmt::format(
                      "device {} ({}) waits to send message {} of channel '{}' (all {} slots are "
                      "full) to device {}",
                      d.device, path_of(d), channels_[s->channel].sent, c.name, c.capacity, c.to)};
  }
  if (const auto* i = std::get_if<exe::Issue>(&step.body)) return awaited_feed(d, *i);
  const exe::ChannelId channel = std::get<exe::Receive>(step.body).channel;
  const exe::Channel& c = e_.channels[channel];
  return {c.from, fmt::format("device {} ({}) waits for message {} of channel '{}' from device {}",
                              d.device, path_of(d), channels_[channel].received, c.name, c.from)};
}

/// Reports each cycle of devices that wait for each other, and each chain of waits that leads to a
/// device that has ended. A device that waits for one of these is not reported.
void Simulation::report_deadlocks() {
  std::vector<exe::DeviceId> reported;
  for (const DeviceRun& first : devices_) {
    if (first.stack.empty()) continue;
    std::vector<exe::DeviceId> chain;
    std::vector<std::string> waits;
    const auto is_in = [](const std::vector<exe::DeviceId>& all, exe::DeviceId device) {
      return std::find(all.begin(), all.end(), device) != all.end();
    };
    const DeviceRun* at = &first;
    while (at != nullptr && !is_in(chain, at->device) && !is_in(reported, at->device)) {
      chain.push_back(at->device);
      const Awaited wait = awaited(*at);
      waits.push_back(wait.text);
      const auto other = std::find_if(devices_.begin(), devices_.end(), [&](const DeviceRun& d) {
        return d.device == wait.other && !d.stack.empty();
      });
      at = other == devices_.end() ? nullptr : &*other;
    }
    if (at == nullptr) {
      findings_.add("deadlock", "program '{}': {}, which has ended", program_.name,
                    fmt::join(waits, "; "));
    } else if (is_in(chain, at->device)) {
      const auto begin = std::find(chain.begin(), chain.end(), at->device) - chain.begin();
      findings_.add("deadlock", "program '{}': devices wait for each other: {}", program_.name,
                    fmt::join(waits.begin() + begin, waits.end(), "; "));
    }
    reported.insert(reported.end(), chain.begin(), chain.end());
  }
}

}  // namespace sluice::check
