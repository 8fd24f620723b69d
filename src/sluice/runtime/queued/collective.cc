#include "sluice/runtime/queued/collective.h"

#include <algorithm>

namespace sluice::runtime {
namespace {

using Stage = QueueMeeting::Stage;

/// Calls f(peer) for the other members. Each member begins with the next one, so that not all of
/// them copy from the same device at a time.
template <typename F>
void for_each_peer(const QueueMeeting& meeting, int32_t member, F&& f) {
  for (int32_t i = 1; i < meeting.members(); ++i) f((member + i) % meeting.members());
}

}  // namespace

QueuedCollective::QueuedCollective(const RunState& run, exe::DeviceId device, QueuedDevice& open,
                                   Commands& commands, DeviceAddress workspace)
    : run_(run),
      device_(device),
      open_(open),
      commands_(commands),
      workspace_(workspace),
      operands_(static_cast<size_t>(2 * run.executable->replicas)) {}

// No member writes bytes that a peer may still read: a peer has copied what it reads of the input
// before kMade, and its part of the output before kTaken.
bool QueuedCollective::advance(const BoundCollective& bound, DeviceAddress input,
                               DeviceAddress output, int64_t number, const exe::Step* step) {
  const auto group = std::get<exe::Collective>(step->body).group;
  const Membership own = run_.communicator->membership(device_, group, run_.replica);
  QueueMeeting& meeting = *own.queued;
  const Share share{bound, meeting, own.member, step};
  const auto arrive = [&](Stage stage) {
    meeting.arrive(own.member, number, stage, commands_.mark());
    arrived_ = stage;
  };
  const bool has_output = any_bytes(bound, bound.writes, meeting.members());
  if (!arrived_) {
    QueueMeeting::MemberQueue& member_queue = meeting.member_queue(own.member);
    if (member_queue.commands == nullptr) member_queue = {&open_, &commands_};
    meeting.operands(own.member) = {input, output};
    if (meeting.members() == 1 ||
        (!has_output && !any_bytes(bound, bound.reads, meeting.members()))) {
      run(share);
      return true;
    }
    arrive(Stage::kReady);
  }
  if (arrived_ == Stage::kReady) {
    if (!meeting.all_arrived(number, Stage::kReady)) return false;
    run(share);
    arrive(Stage::kMade);
  }
  if (arrived_ == Stage::kMade && has_output) {
    if (!meeting.all_arrived(number, Stage::kMade)) return false;
    take_outputs(share);
    arrive(Stage::kTaken);
  }
  if (!meeting.all_arrived(number, *arrived_)) return false;
  wait_for_peers(share, *arrived_);
  arrived_.reset();
  return true;
}

// Copies the part of the other members' inputs that the share reads into the room, and launches the
// share. It writes to the member's own output alone.
void QueuedCollective::run(const Share& share) {
  const int32_t members = share.meeting.members();
  const void* const state = share.bound.state.get();
  const ByteRange range = share.bound.reads(state, share.member);
  const std::span operands(operands_.data(), static_cast<size_t>(2 * members));
  std::fill(operands.begin(), operands.end(), DeviceAddress{});
  at(operands, share.member) = share.meeting.operands(share.member).input;
  at(operands, members + share.member) = share.meeting.operands(share.member).output;
  DeviceAddress room = workspace_;
  for_each_peer(share.meeting, share.member, [&](int32_t peer) {
    if (range.begin == range.end) return;
    wait_for(share, peer, Stage::kReady);
    copy(share, peer, room, share.meeting.operands(peer).input + range.begin,
         range.end - range.begin);
    // The share adds its offset in the whole input, so pass the address where that would begin.
    at(operands, peer) = room - range.begin;
    room = room + room_of(range);
  });
  int64_t member = share.member;
  commands_.add(share.step, [&](Queue& q) { q.launch({state, operands, {}, {&member, 1}}); });
}

// Copies the outputs of the other shares. If the output is the input, the copy from a peer
// overwrites what this peer alone has read of it.
void QueuedCollective::take_outputs(const Share& share) {
  const DeviceAddress output = share.meeting.operands(share.member).output;
  for_each_peer(share.meeting, share.member, [&](int32_t peer) {
    wait_for(share, peer, Stage::kMade);
    const ByteRange range = share.bound.writes(share.bound.state.get(), peer);
    if (range.begin == range.end) return;
    copy(share, peer, output + range.begin, share.meeting.operands(peer).output + range.begin,
         range.end - range.begin);
  });
}

void QueuedCollective::copy(const Share& share, int32_t peer, DeviceAddress to, DeviceAddress from,
                            int64_t bytes) {
  commands_.add(share.step, [&](Queue& q) {
    q.copy_from(*share.meeting.member_queue(peer).device, to, from, bytes);
  });
}

void QueuedCollective::wait_for(const Share& share, int32_t peer, Stage stage) {
  commands_.wait(*share.meeting.member_queue(peer).commands, share.meeting.mark(peer, stage));
}

void QueuedCollective::wait_for_peers(const Share& share, Stage stage) {
  for_each_peer(share.meeting, share.member, [&](int32_t peer) { wait_for(share, peer, stage); });
}

}  // namespace sluice::runtime
