// Tests that two commands without order that touch the same bytes are found.
#include <optional>
#include <random>

#include "opaque_test_util.h"
#include "race_check.h"

namespace sluice::opaque {
namespace {

/// Two queues of device 0 and one of device 1.
class OpaqueRaces : public testing::TestWithParam<Mode> {
 protected:
  void SetUp() override {
    if (!Options{.mode = GetParam()}.checks_races())
      GTEST_SKIP() << "requires a build without the thread sanitizer, which checks threads itself";
  }
  /// The error of an upload of device memory [from, to) by `queue`.
  std::string upload(Queue& queue, int64_t from, int64_t to, int device = 0) {
    return error_of([&] { queue.upload(rig_.memory(device) + from, rig_.host(), to - from); });
  }

  Rig rig_{GetParam(), {.events = 1}};
  std::unique_ptr<Queue> a_ = rig_.queue(), b_ = rig_.queue(), other_ = rig_.queue(1);
};
INSTANTIATE_TEST_SUITE_P(Modes, OpaqueRaces, testing::Values(Mode::kThreads, Mode::kLazy),
                         mode_name);

TEST_P(OpaqueRaces, NamesBothCommands) {
  EXPECT_EQ(upload(*a_, 0, 32), "");
  EXPECT_EQ(upload(*a_, 0, 64), "");
  EXPECT_EQ(upload(*b_, 64, 128), "");
  EXPECT_EQ(upload(*b_, 60, 128),
            "internal error: opaque: command 2 of queue 1 (upload) writes bytes that command 2 of "
            "queue 0 (upload) writes, and nothing orders them: a wait for a mark is missing");
}

TEST_P(OpaqueRaces, LetQueuesReadTogether) {
  for (Queue* q : {a_.get(), b_.get()})
    EXPECT_NO_THROW(q->copy(rig_.memory() + (q == a_.get() ? 64 : 128), rig_.memory(), 64));
}

TEST_P(OpaqueRaces, LetAWaitOrderQueues) {
  EXPECT_EQ(upload(*a_, 0, 64), "");
  b_->wait(*a_, a_->mark());
  EXPECT_EQ(upload(*b_, 0, 64), "");
}

TEST_P(OpaqueRaces, LetWaitsOrderQueuesThroughOthers) {
  EXPECT_EQ(upload(*a_, 0, 64), "");
  other_->wait(*a_, a_->mark());
  b_->wait(*other_, other_->mark());
  EXPECT_EQ(upload(*b_, 0, 64), "");
}

TEST_P(OpaqueRaces, LetAWaitOrderNothingBehindTheMark) {
  const int64_t mark = a_->mark();
  EXPECT_EQ(upload(*a_, 0, 64), "");
  a_->mark();  // Takes the only event, so that the wait is longer in fact.
  b_->wait(*a_, mark);
  EXPECT_NE(upload(*b_, 0, 64).find("nothing orders them"), std::string::npos);
}

TEST_P(OpaqueRaces, LetAMarkThatWasNotMadeOrderNothing) {
  EXPECT_EQ(upload(*a_, 0, 64), "");
  b_->wait(*a_, 1);
  a_->mark();
  EXPECT_NE(upload(*b_, 0, 64).find("nothing orders them"), std::string::npos);
}

TEST_P(OpaqueRaces, LetTheHostOrderQueues) {
  EXPECT_EQ(upload(*a_, 0, 64), "");
  poll(*a_, a_->mark());
  EXPECT_EQ(upload(*b_, 0, 64), "");
  b_->drain();
  EXPECT_EQ(upload(*a_, 0, 64), "");
  a_.reset();
  EXPECT_EQ(upload(*b_, 0, 64), "");
}

TEST_P(OpaqueRaces, SeeOperandsOfKernels) {
  const auto neg = elementwise(rig_.family(), "Neg", 16);
  const DeviceAddress at = rig_.memory();
  launch(*a_, neg, {at, at + 64}, at + 256);
  EXPECT_NO_THROW(b_->copy(at + 128, at, 64));
  const std::string error = error_of([&] { b_->copy(at + 128, at + 64, 64); });
  EXPECT_NE(error.find("command 2 of queue 1 (copy) reads bytes that command 1 of queue 0 "
                       "(launch opaque.elementwise) writes"),
            std::string::npos)
      << error;
}

TEST_P(OpaqueRaces, SeeWorkspaces) {
  const auto neg = elementwise(rig_.family(), "Neg", 4);
  const DeviceAddress at = rig_.memory();
  launch(*a_, neg, {at, at + 64}, at + 256);
  EXPECT_NE(error_of([&] {
              launch(*b_, neg, {at, at + 128}, at + 256);
            }).find("nothing orders"),
            std::string::npos);
}

TEST_P(OpaqueRaces, SeePinnedMemory) {
  a_->download(rig_.host(), rig_.memory(), 64);
  EXPECT_NE(upload(*other_, 0, 64, 1).find("upload) reads bytes"), std::string::npos);
}

TEST_P(OpaqueRaces, SeeBytesOfPeers) {
  other_->copy_from(rig_.device(0), rig_.memory(1), rig_.memory(0), 64);
  EXPECT_NE(upload(*a_, 0, 64).find("(copy from a peer) reads"), std::string::npos);
}

TEST_P(OpaqueRaces, SeeTheHost) {
  const auto access = [&](bool writes, int64_t n) {
    return error_of([&] {
      check_host_access(rig_.family(), {rig_.host() + n, static_cast<size_t>(64)}, writes);
    });
  };
  a_->upload(rig_.memory(), rig_.host(), 64);
  a_->download(rig_.host() + 128, rig_.memory(), 64);
  EXPECT_EQ(access(false, 0), "");
  EXPECT_NE(access(true, 0).find("the host writes bytes that command 1 of queue 0 (upload) reads"),
            std::string::npos);
  EXPECT_EQ(access(true, 64), "");
  EXPECT_NE(access(false, 128).find("(download) writes"), std::string::npos);
  EXPECT_NE(error_of([&] { rig_.read(0, rig_.memory(), 64); }), "");
  poll(*a_, a_->mark());
  EXPECT_EQ(access(true, 0), "");
  EXPECT_EQ(access(false, 128), "");
  EXPECT_EQ(error_of([&] { rig_.read(0, rig_.memory(), 64); }), "");
}

TEST(OpaqueRacesOption, TurnsTheCheckOff) {
  Rig rig(Mode::kLazy, {.check_races = false});
  const auto a = rig.queue(), b = rig.queue();
  a->upload(rig.memory(), rig.host(), 64);
  EXPECT_NO_THROW(b->upload(rig.memory(), rig.host(), 64));
}

TEST(RaceCheck, ForgetsMemoryThatIsGone) {
  RaceCheck races(true);
  const Touch all[] = {{{0, 8}, true}};
  races.add(0, 1, "a", all);
  races.forget({4, 8});
  const Touch gone[] = {{{4, 8}, true}}, kept[] = {{{3, 4}, true}};
  EXPECT_NO_THROW(races.add(1, 1, "b", gone));
  EXPECT_THROW(races.add(1, 2, "c", kept), Error);
}

// A thread waits for a mark while another thread makes it.
TEST(RaceCheck, LetsAMarkThatAWaitHasNotSeenOrderNothing) {
  const Touch all[] = {{{0, 8}, true}};
  for (const int64_t seen : {1, 2}) {
    RaceCheck races(true);
    races.add(0, 1, "a", all);
    races.add_mark(0, 1, 2);
    races.wait(1, 0, 1, seen);
    EXPECT_EQ(error_of([&] { races.add(1, 1, "b", all); }).empty(), seen == 2);
  }
}

/// Keeps the accesses of all commands, and finds their order by search.
class SlowCheck {
 public:
  // The last command of each queue that ended before.
  using Clock = std::vector<int>;

  static constexpr int kQueues = 3;
  struct Command {
    int queue;
    std::vector<Touch> touches;
    std::vector<size_t> after;  // Commands that end before it begins, not through others.
  };

  bool races(int queue, const std::vector<Touch>& touches) {
    Command command{queue, touches, known_};
    for (const size_t c : waited_[static_cast<size_t>(queue)]) command.after.push_back(c);
    if (const auto last = last_of(queue)) command.after.push_back(*last);
    commands_.push_back(command);
    std::vector<bool> before(commands_.size(), false);
    mark_all_before(commands_.size() - 1, before);
    for (size_t c = 0; c + 1 < commands_.size(); ++c) {
      if (before[c]) continue;
      for (const Touch& x : commands_[c].touches) {
        for (const Touch& y : touches) {
          const bool meet = x.range.begin < y.range.end && y.range.begin < x.range.end;
          if (meet && (x.writes || y.writes)) return true;
        }
      }
    }
    return false;
  }
  void mark(int queue) { marks_[static_cast<size_t>(queue)].push_back(what_precedes(queue)); }
  void wait(int queue, int other, size_t mark) {
    const auto& past = marks_[static_cast<size_t>(other)][mark - 1];
    auto& waited = waited_[static_cast<size_t>(queue)];
    waited.insert(waited.end(), past.begin(), past.end());
  }
  void know(int queue) {
    const auto past = what_precedes(queue);
    known_.insert(known_.end(), past.begin(), past.end());
  }
  size_t marks(int queue) const { return marks_[static_cast<size_t>(queue)].size(); }

 private:
  std::optional<size_t> last_of(int queue) const {
    for (size_t c = commands_.size(); c-- > 0;) {
      if (commands_[c].queue == queue) return c;
    }
    return std::nullopt;
  }
  // Commands that end before a mark that the queue makes now passes.
  std::vector<size_t> what_precedes(int queue) const {
    std::vector<size_t> all = waited_[static_cast<size_t>(queue)];
    if (const auto last = last_of(queue)) all.push_back(*last);
    return all;
  }
  void mark_all_before(size_t command, std::vector<bool>& before) const {
    for (const size_t c : commands_[command].after) {
      if (before[c]) continue;
      before[c] = true;
      mark_all_before(c, before);
    }
  }

  std::vector<Command> commands_;
  std::vector<size_t> known_;
  std::vector<size_t> waited_[kQueues];
  std::vector<std::vector<size_t>> marks_[kQueues];
};

TEST(RaceCheck, AgreesWithASearchOnRandomPrograms) {
  int found = 0, without = 0;
  for (uint32_t seed = 0; seed < 2000; ++seed) {
    std::mt19937 random(seed);
    const auto any = [&](int n) { return static_cast<int>(random() % static_cast<uint32_t>(n)); };
    RaceCheck races(true);
    SlowCheck slow;
    int64_t number[SlowCheck::kQueues] = {};
    bool raced = false;
    const int steps = 5 + any(60);
    for (int step = 0; step < steps && !raced; ++step) {
      const int q = any(SlowCheck::kQueues), other = any(SlowCheck::kQueues);
      const auto made = static_cast<int>(slow.marks(other));
      const auto at = [&](int of) { return static_cast<int64_t>(slow.marks(of)); };
      switch (any(6)) {
        case 0:
          slow.mark(q);
          races.add_mark(q, at(q), at(q));
          break;
        case 1:
        case 2:
          if (made == 0) break;
          {
            const int64_t mark = 1 + (any(3) == 0 ? any(made) : made - 1);
            slow.wait(q, other, static_cast<size_t>(mark));
            races.wait(q, other, mark, at(other));
          }
          break;
        case 3:
          if (any(4) != 0) break;
          slow.know(q);
          races.know_all(q);
          break;
        default: {
          std::vector<Touch> touches;
          for (int t = any(3); t >= 0; --t) {
            const auto begin = static_cast<uint64_t>(any(100));
            touches.push_back({{begin, begin + 1 + static_cast<uint64_t>(any(6))}, any(3) == 0});
          }
          const bool expected = slow.races(q, touches);
          raced = !error_of([&] { races.add(q, ++number[q], "x", touches); }).empty();
          ASSERT_EQ(raced, expected) << "seed " << seed << " step " << step;
        }
      }
    }
    ++(raced ? found : without);
  }
  EXPECT_GT(found, 200);
  EXPECT_GT(without, 20);
}

}  // namespace
}  // namespace sluice::opaque
