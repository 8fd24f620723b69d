// Runs with feeds that end at random moments for any reason. SLUICE_FEED_RUNS sets their number.
#include <gmock/gmock.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <tuple>

#include "feed_programs.h"

namespace sluice::test {
namespace {

using testing::HasSubstr;

constexpr int64_t kLong = 1'000'000;

int number_of_runs() {
  const char* const set = std::getenv("SLUICE_FEED_RUNS");
  return set == nullptr ? 100 : std::atoi(set);
}

/// The reason why a run ends.
enum class End { kStop, kStopInSource, kStopInSink, kData, kSource, kSink };

/// Does one thing, once, when a given element is made.
struct Moment {
  void pass(int64_t element) {
    if (element != at || past) return;
    past = true;
    act();
  }
  int64_t at = -1;
  std::function<void()> act = {};
  bool past = false;
};

struct EndingSource : Counting {
  EndingSource(int64_t max, Moment moment) : Counting(INT64_MAX, max), moment(std::move(moment)) {}
  bool next(std::span<const ArrayView> fields) override {
    moment.pass(made);
    return Counting::next(fields);
  }
  Moment moment;
};

struct EndingSink : Numbers {
  explicit EndingSink(Moment moment) : moment(std::move(moment)) {}
  void take(std::span<const ConstArrayView> fields) override {
    moment.pass(calls++);
    Numbers::take(fields);
  }
  Moment moment;
  int64_t calls = 0;
};

struct Drawn {
  explicit Drawn(std::mt19937& random)
      : end(static_cast<End>(random() % 6)),
        replicas(random() % 2 == 0 ? 1 : 2),
        threads(1 + static_cast<int>(random() % 2)),
        depth(1 + static_cast<int>(random() % 3)),
        at(static_cast<int64_t>(random() % 50)),
        pause(random() % 3000) {}
  std::string text() const {
    return fmt::format("end {}, {} replicas, {} threads, depth {}, element {}, {} us",
                       static_cast<int>(end), replicas, threads, depth, at, pause);
  }
  End end;
  int replicas, threads, depth;
  int64_t at;      ///< Element of the end, several times around the ring.
  uint64_t pause;  ///< Microseconds before a stop.
};

ErrorKind kind_of(End end) {
  if (end == End::kData) return ErrorKind::kUsage;
  if (end == End::kSource) return ErrorKind::kBadFile;
  return end == End::kSink ? ErrorKind::kIo : ErrorKind::kStopped;
}

/// A program with a session, in which runs end one after the other.
struct Subject {
  explicit Subject(const Drawn& drawn)
      : p({kLong, 4}, {4, 4}, drawn.replicas, drawn.depth), session(p.ir, trusted(drawn.threads)) {}
  const Sums p;
  Session session;
};

/// Ends a long run as drawn, then checks that the session continues where it must.
void end_a_run(Subject& subject, const Drawn& drawn) {
  const int64_t replicas = drawn.replicas;
  const Sums& p = subject.p;
  Session& session = subject.session;
  const auto moment = [&](End end, std::function<void()> act) {
    return drawn.end == end ? Moment{drawn.at, std::move(act)} : Moment{};
  };
  const auto stop = [&] { EXPECT_TRUE(session.stop()); };
  Moment making = moment(End::kStopInSource, stop), taking = moment(End::kStopInSink, stop);
  if (drawn.end == End::kSource)
    making = moment(End::kSource, [] { fail(ErrorKind::kBadFile, "the file is bad"); });
  if (drawn.end == End::kSink)
    taking = moment(End::kSink, [] { fail(ErrorKind::kIo, "the disk is full"); });
  const int64_t max = drawn.end == End::kData ? drawn.at : INT64_MAX;
  const auto source = std::make_shared<EndingSource>(max, making);
  const auto sums = std::make_shared<EndingSink>(taking);
  session.bind_feed(p.in, source);
  session.bind_feed(p.out, sums);

  AsyncRun run = session.run_async({}, std::to_string(kLong));
  if (drawn.end == End::kStop) {
    std::this_thread::sleep_for(std::chrono::microseconds(drawn.pause));
    run.stop();
  }
  ASSERT_TRUE(run.wait_for(300)) << "the run hangs";
  const std::string text = error_text(kind_of(drawn.end), [&] { run.wait(); });
  EXPECT_EQ(text.find(" element "), text.rfind(" element ")) << "the error has come twice";
  const int64_t lost = drawn.end == End::kSink ? 1 : 0;
  if (drawn.end == End::kSource) {
    EXPECT_THAT(text, HasSubstr(fmt::format("while making element {} of feed 'x'", drawn.at)));
  }
  if (drawn.end == End::kSink) {
    EXPECT_THAT(text, HasSubstr(fmt::format("while taking element {} of feed 'sums'", drawn.at)));
  }
  const int64_t read = run.progress()[0].second, stored = run.progress()[1].second;
  ASSERT_LE(stored, read);
  ASSERT_LE(read, stored + replicas);  // One replica may be a step ahead.

  if (drawn.end == End::kData) {
    EXPECT_THAT(text, HasSubstr(fmt::format("requested {} elements, produced {}", kLong * replicas,
                                            drawn.at)));
    ASSERT_EQ(read, drawn.at / replicas);
    session.read(p.total);
    EXPECT_THAT(error_text(ErrorKind::kUsage, [&] { session.run({}, "4"); }),
                HasSubstr(fmt::format("requested {} elements, produced {}", (read + 4) * replicas,
                                      drawn.at)));
    return;
  }
  if (drawn.end == End::kSource) {
    ASSERT_EQ(read, drawn.at / replicas);
  }
  p.reset(session);
  session.run({}, "4");
  float v = 0;
  for (int64_t k = 0; k < 4; ++k) {
    float sum = 0;
    for (int64_t r = 0; r < replicas; ++r) sum += v + static_cast<float>((read + k) * replicas + r);
    v = sum;
  }
  EXPECT_EQ(p.value(session), v);
  EXPECT_EQ(static_cast<int64_t>(sums->taken.size()), (stored + 4) * replicas - lost);
  EXPECT_EQ(sums->field(0).back(), v);
  ASSERT_LE(source->made, (read + 4 + drawn.depth) * replicas);
}

TEST(FeedEnds, AtAnyMoment) {
  std::mt19937 random(7);
  std::map<std::tuple<int, int, int>, std::unique_ptr<Subject>> subjects;
  for (int i = 0; i < number_of_runs() && !testing::Test::HasFatalFailure(); ++i) {
    const Drawn drawn(random);
    SCOPED_TRACE(fmt::format("run {}: {}", i, drawn.text()));
    auto& subject = subjects[{drawn.replicas, drawn.threads, drawn.depth}];
    if (subject == nullptr) subject = std::make_unique<Subject>(drawn);
    end_a_run(*subject, drawn);
  }
}

// Sessions end while their feeds and runs are at any point. A source calls the session to its end.
TEST(FeedEnds, OfASessionAtAnyMoment) {
  std::mt19937 random(11);
  const Sums p({kLong});
  for (int i = 0; i < number_of_runs() / 4; ++i) {
    struct Calling : Blocking {
      Calling(int64_t from, Session& session) : Blocking(from), session(session) {}
      bool next(std::span<const ArrayView> fields) override {
        const bool more = Blocking::next(fields);
        if (made > from) session.stop();
        return more;
      }
      Session& session;
    };
    std::optional<AsyncRun> run;
    {
      Session session(p.ir, trusted(1 + i % 2));
      const auto from = static_cast<int64_t>(random() % 50);
      session.bind_feed(p.in, std::make_shared<Calling>(from, session));
      session.bind_feed(p.out, std::make_shared<Numbers>());
      run = session.run_async({}, std::to_string(kLong));
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 1000));
    }
    error_text(ErrorKind::kStopped, [&] { run->wait(); });
    EXPECT_TRUE(run->progress().empty());
  }
}

}  // namespace
}  // namespace sluice::test
