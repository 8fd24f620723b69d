#include "sluice/runtime/communicator.h"

#include <algorithm>
#include <map>

#include "sluice/base/checked.h"

namespace sluice::runtime {
namespace {

constexpr int64_t kAlignment = 64;

ByteRange of_members(ByteRange (*range)(const void*, int64_t), const BoundCollective& collective,
                     const Meeting::ProcessMembers& part) {
  const void* const state = collective.state.get();
  return {range(state, part.first).begin, range(state, part.first + part.count - 1).end};
}

// Returns the maximum number of bytes that the shares of `part` read of one other member, over all
// collectives of a group on a device.
int64_t max_read(const exe::Executable& executable, const LoadedProgram& loaded,
                 exe::DeviceId device, exe::GroupId group, const Meeting::ProcessMembers& part) {
  int64_t max = 0;
  for (const exe::FunctionId f : loaded.functions.ids()) {
    if (executable.functions[f].device != device) continue;
    for (const LoadedStep& step : loaded.functions[f].steps) {
      if (step.collective < 0 || std::get<exe::Collective>(step.step->body).group != group)
        continue;
      const BoundCollective& c = at(loaded.functions[f].collectives, step.collective);
      const ByteRange range = of_members(c.reads, c, part);
      max = std::max(max, range.end - range.begin);
    }
  }
  return max;
}

// Return the number of the group that contains a replica, and its member number there.
int32_t number_of_group(const exe::ReplicaGroup& shape, int32_t replica) {
  return replica / (shape.stride * shape.size) * shape.stride + replica % shape.stride;
}
int32_t member_of_group(const exe::ReplicaGroup& shape, int32_t replica) {
  return replica % (shape.stride * shape.size) / shape.stride;
}

}  // namespace

Meeting::Meeting(std::vector<ProcessMembers> parts, size_t own, int64_t workers)
    : parts_(std::move(parts)), own_(own), strands_(parts_[own].count * workers) {
  const int64_t members = parts_.back().first + parts_.back().count;
  inputs.resize(static_cast<size_t>(members));
  outputs.resize(static_cast<size_t>(members));
}

void Meeting::connect(std::unique_ptr<Messages> messages, std::vector<OpenDevice*> devices,
                      int64_t max) {
  messages_ = std::move(messages);
  devices_ = std::move(devices);
  const auto others = static_cast<int64_t>(inputs.size()) - own().count;
  room_bytes_ = others * round_up(max, kAlignment);
  room_ = devices_.front()->allocate(room_bytes_);
}

void Meeting::reset() {
  arrived_ = 0;
  received_ = 0;
  finished_ = 0;
  stage_ = Stage::kGathering;
}

bool Meeting::poll() {
  const int64_t number = finished_.load(std::memory_order_relaxed);
  switch (stage_) {
    case Stage::kGathering:
      if (!here_came(number)) return false;
      exchange_inputs();
      stage_ = Stage::kInputs;
      [[fallthrough]];
    case Stage::kInputs:
      if (!messages_->done()) return false;
      received_.store(number + 1, std::memory_order_release);
      stage_ = Stage::kShares;
      return true;
    case Stage::kShares:
      if (!here_done(number)) return false;
      exchange_outputs();
      stage_ = Stage::kOutputs;
      [[fallthrough]];
    case Stage::kOutputs:
      if (!messages_->done()) return false;
      copy_outputs();
      stage_ = Stage::kGathering;
      finished_.store(number + 1, std::memory_order_release);
      return true;
  }
  return false;
}

// Returns a range of the operand of a member of this process.
std::span<std::byte> Meeting::bytes_of(int64_t member, DeviceAddress operand,
                                       const ByteRange& range) const {
  OpenDevice& device = *at(devices_, member - own().first);
  return device.host_bytes(operand + range.begin, range.end - range.begin);
}

void Meeting::exchange_inputs() {
  const ByteRange needed = of_members(collective->reads, *collective, own());
  const int64_t bytes = needed.end - needed.begin;
  DeviceAddress room = room_;
  for (const ProcessMembers& other : parts_) {
    if (&other == &own()) continue;
    const ByteRange wanted = of_members(collective->reads, *collective, other);
    for (int64_t m = own().first; m < own().first + own().count; ++m) {
      if (wanted.end > wanted.begin)
        messages_->send(other.process, bytes_of(m, at(inputs, m), wanted));
    }
    for (int64_t m = other.first; m < other.first + other.count; ++m) {
      // The share adds its offset in the whole input, so store the address where that input would
      // begin.
      at(inputs, m) = room - needed.begin;
      if (bytes > 0) messages_->receive(other.process, bytes_of(own().first, room, {0, bytes}));
      room = room + round_up(bytes, kAlignment);
    }
  }
}

void Meeting::exchange_outputs() {
  const auto whole = [&](const ByteRange& range) {
    return bytes_of(own().first, at(outputs, own().first), range);
  };
  const ByteRange made = of_members(collective->writes, *collective, own());
  for (const ProcessMembers& other : parts_) {
    if (&other == &own()) continue;
    const ByteRange theirs = of_members(collective->writes, *collective, other);
    if (made.end > made.begin) messages_->send(other.process, whole(made));
    if (theirs.end > theirs.begin) messages_->receive(other.process, whole(theirs));
  }
}

// Outputs are received for the first member of this process. Copy them to its other members.
void Meeting::copy_outputs() {
  const int64_t first = own().first;
  for (const ProcessMembers& other : parts_) {
    if (&other == &own()) continue;
    const ByteRange range = of_members(collective->writes, *collective, other);
    const auto received = bytes_of(first, at(outputs, first), range);
    for (int64_t m = first + 1; m < first + own().count; ++m) {
      const auto copy = bytes_of(m, at(outputs, m), range);
      std::copy(received.begin(), received.end(), copy.begin());
    }
  }
}

Communicator::Communicator(const exe::Executable& executable, const LoadedProgram& loaded,
                           const std::vector<OpenDevices>& devices, const Placement& placement,
                           std::shared_ptr<ProcessGroup> group)
    : group_(std::move(group)), placement_(placement), memberships_(executable.devices.size()) {
  for (const exe::DeviceId d : executable.devices.ids()) {
    const bool queued = executable.devices[d].queued;
    require(!queued || group_ == nullptr || group_->size() == 1,
            "device {}: devices with queues must run in one process, got {} processes", d,
            group_ == nullptr ? 1 : group_->size());
    for (const exe::GroupId g : executable.groups.ids()) {
      if (queued) {
        add_queue_meetings(executable, d, g);
      } else {
        add_meetings(executable, loaded, devices, d, g);
      }
    }
  }
}

void Communicator::add_meetings(const exe::Executable& executable, const LoadedProgram& loaded,
                                const std::vector<OpenDevices>& devices, exe::DeviceId device,
                                exe::GroupId group) {
  const exe::ReplicaGroup& shape = executable.groups[group];
  const exe::ReplicaRange& here = placement_.here();
  const int rank = group_ == nullptr ? 0 : group_->rank();
  // For each number of the group: its members, by process, and the devices of those in this
  // process.
  std::map<int32_t, std::vector<Meeting::ProcessMembers>> parts_of;
  std::map<int32_t, std::vector<OpenDevice*>> devices_of;
  for (int32_t r = 0; r < executable.replicas; ++r) {
    const int32_t number = number_of_group(shape, r);
    auto& parts = parts_of[number];
    const int process = placement_.process_of(r, device);
    if (process == rank) {
      devices_of[number].push_back(at(devices, r - here.first)[device]);
    }
    if (parts.empty() || parts.back().process != process)
      parts.push_back({process, member_of_group(shape, r), 0});
    ++parts.back().count;
  }
  std::map<int32_t, Meeting*> meeting_of;
  for (const auto& [number, parts] : parts_of) {
    const int own_tag = next_tag_++;
    const auto own = std::find_if(parts.begin(), parts.end(),
                                  [&](const auto& part) { return part.process == rank; });
    if (own == parts.end()) continue;
    auto meeting = std::make_unique<Meeting>(parts, static_cast<size_t>(own - parts.begin()),
                                             executable.devices[device].workers);
    meeting_of[number] = meeting.get();
    if (meeting->has_messages()) {
      meeting->connect(group_->messages(own_tag), std::move(devices_of[number]),
                       max_read(executable, loaded, device, group, *own));
      remote_.push_back(meeting.get());
    }
    group_meetings_.push_back({device, group, std::move(meeting)});
  }
  std::vector<Membership>& memberships = memberships_[device].emplace_back();
  for (int32_t r = here.first; r < here.first + here.count; ++r) {
    Membership& membership = memberships.emplace_back();
    if (placement_.has(r, device))
      membership = {meeting_of.at(number_of_group(shape, r)), nullptr, member_of_group(shape, r)};
  }
}

void Communicator::connect(const exe::Executable& executable, int replica,
                           Ids<exe::ChannelId, ChannelState>& channels) {
  int tag = next_tag_;
  for (int r = 0; r < executable.replicas; ++r) {
    for (const exe::ChannelId c : channels.ids()) {
      const exe::Channel& channel = executable.channels[c];
      const bool sends = placement_.has(r, channel.from);
      if (r == replica && sends != placement_.has(r, channel.to)) {
        channels[c].remote = std::make_unique<RemoteChannel>(
            group_, placement_.process_of(r, sends ? channel.to : channel.from), tag,
            channel.capacity, channel.name);
      }
      tag += static_cast<int>(channel.capacity);
    }
  }
}

void Communicator::add_queue_meetings(const exe::Executable& executable, exe::DeviceId device,
                                      exe::GroupId group) {
  const exe::ReplicaGroup& shape = executable.groups[group];
  std::vector<QueueMeeting*> meetings;
  for (int32_t n = 0; n < executable.replicas / shape.size; ++n)
    meetings.push_back(queued_.emplace_back(std::make_unique<QueueMeeting>(shape.size)).get());
  std::vector<Membership>& memberships = memberships_[device].emplace_back();
  for (int32_t r = 0; r < executable.replicas; ++r)
    memberships.push_back(
        {nullptr, at(meetings, number_of_group(shape, r)), member_of_group(shape, r)});
}

void Communicator::reset() {
  for (const GroupMeeting& group_meeting : group_meetings_) group_meeting.meeting->reset();
  for (const auto& meeting : queued_) meeting->reset();
}

bool Communicator::poll() {
  bool progress = false;
  for (Meeting* const meeting : remote_) progress = meeting->poll() || progress;
  return progress;
}

bool Communicator::is_over() const {
  return std::all_of(remote_.begin(), remote_.end(), [](const Meeting* m) { return m->is_over(); });
}

int64_t Communicator::room() const {
  int64_t bytes = 0;
  for (const Meeting* const meeting : remote_) bytes += meeting->room();
  return bytes;
}

}  // namespace sluice::runtime
