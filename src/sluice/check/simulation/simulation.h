#pragma once
#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sluice/check/findings.h"
#include "sluice/check/function_facts.h"
#include "sluice/check/simulation/ledger.h"
#include "sluice/check/simulation/memory.h"
#include "sluice/check/simulation/shared_state.h"
#include "sluice/exe/executable.h"

namespace sluice::check {

/// Runs one program of one replica without data; see checker.h.
class Simulation {
 public:
  /// All arguments must outlive the simulation. The executable must have passed exe::validate.
  Simulation(const exe::Executable& executable, const exe::Program& program,
             const FactsOfFunctions& facts, const Options& options, int64_t replica,
             Findings& findings);
  void run();
  /// Ends the run after at most kStepsAfterAFault more steps. The first violation does the same.
  void stop_soon() { last_step_ = std::min(last_step_, steps_ + kStepsAfterAFault); }
  /// Returns the number of steps run so far.
  int64_t steps() const { return steps_; }

 private:
  /// Steps that still run after a fault. A loop may have billions of iterations, so a plan that is
  /// known to be wrong is not simulated to its end.
  static constexpr int64_t kStepsAfterAFault = 100'000;

  using Bindings = std::vector<std::pair<exe::ValueId, Instance>>;
  /// Values that a callee has made, with the arguments that hold them.
  using Results = std::vector<std::pair<exe::ParamId, Instance>>;

  struct Activation;

  /// A transfer that has been issued and may still run.
  struct Flight {
    int32_t queue = 0;
    int32_t token = 0;
    const Activation* owner = nullptr;
    Range memory;
    bool writes = false;
    Range entry;  ///< Bytes of the tier, if the transfer is remote.
    Clock clock;
  };

  /// Messages and entries that an exiting loop has used on one device. Those of a channel: the
  /// number before the loop, and how many the loop has sent or received.
  struct ExitUse {
    exe::DeviceId device{0};
    int64_t trips = 0;
    exe::ValueId found = exe::kNoValue;  ///< Condition before the loop.
    exe::ValueId made = exe::kNoValue;   ///< Condition after it.
    std::map<exe::ChannelId, std::pair<int64_t, int64_t>> sent, received;
    std::map<exe::StreamId, int64_t> entries;  ///< Without entries that are 0.
  };

  /// State at the begin of a loop with a condition: its state if no iteration begins.
  struct ExitRun {
    ExitUse use;
    size_t mark = 0;  ///< The mark of bytes_ at the begin.
    Window window;    ///< Touches at the begin of any iteration.
    std::vector<Flight> flights;
    Clocks clocks;
    RemoteLedger::Contents contents;
    std::set<exe::BufferId> stored;       ///< Remote buffers that the loop has stored to.
    Ids<exe::StreamId, int64_t> streams;  ///< Entries used before the loop.
  };

  /// State of a loop step that is running.
  struct LoopRun {
    int64_t iteration = 0;
    bool joint = false;     ///< Transfers: left early together with other devices (repeats.cc).
    size_t long_depth = 0;  ///< See RemoteLedger::begin_long_loop; 0: the loop is not long.
    /// The values that the next iteration must find, and that the last iteration made.
    Ids<exe::ParamId, Instance> found, made;
    int64_t period = 0;             ///< See loop_period; 0: run every iteration.
    int64_t first_id = 0;           ///< Instances that the loop made have at least this id.
    std::unique_ptr<ExitRun> exit;  ///< Null without a condition.
    bool has_snapshot = false;
    int64_t next_look = 1;  ///< Compare the state with the snapshot before this iteration.
    std::vector<int64_t> snapshot;
  };

  enum class Role : uint8_t { kEntry, kCall, kIteration, kArm };

  struct Activation {
    const exe::Function* function = nullptr;
    Role role = Role::kEntry;
    const exe::Call* call = nullptr;
    Range frame;
    Ids<exe::ParamId, Range> params;
    std::vector<int64_t> numbers;  ///< Values of the index parameters.
    std::unordered_map<exe::ValueId, Instance> values;
    /// (token, queue) of transfers not yet waited for.
    std::vector<std::pair<int32_t, int32_t>> tokens;
    std::unique_ptr<LoopRun> loop;
    size_t step = 0;
    RemoteLedger::Activation path = 0;
    int64_t calls = 0;  ///< Number of calls, loops and branches already run.
  };

  struct DeviceRun {
    exe::DeviceId device{0};
    std::deque<Activation> stack;
    Window window;
    std::vector<Flight> flights;
    Bindings arm;  ///< Values that the last arm made.
  };

  /// Position of all devices between two rounds of run(). The state of the run is everything else.
  struct Position {
    struct Level {
      const exe::Function* function = nullptr;
      size_t step = 0;
      int64_t iteration = -1;  ///< -1 outside of loops.
      bool operator==(const Level&) const = default;
    };
    std::vector<std::vector<Level>> devices;
    Ids<exe::StreamId, int64_t> streams;
    Ids<exe::ChannelId, int64_t> sent, received;
    std::vector<int64_t> collectives;
  };
  /// A position that is compared with later ones. Nested loops have one each, because an inner loop
  /// may be left early in each iteration of an outer one.
  struct Look {
    int64_t rounds = 0;
    int64_t next = 1;  ///< Round after which the state is looked at again.
    int tries = 0;     ///< Comparisons with the state that may still be made.
    Position position;
    RemoteLedger::Progress remote;
    std::vector<int64_t> state;
  };
  /// A loop that has advanced between two positions.
  struct Advance {
    DeviceRun* device = nullptr;
    size_t level = 0;
    int64_t iterations = 0;
  };

  enum class Outcome : uint8_t { kDone, kEntered, kBlocked };

  /// The message or element for which a device waits, and the device that must act.
  struct Awaited {
    exe::DeviceId other{0};
    std::string text;
  };

  // feeds.cc: entries of feeds that are not ready.
  void find_feeds();
  /// Returns the field whose ring makes an entry of a feed wait, if one does.
  const exe::FeedRing* awaited_field(const exe::Issue& i) const;
  Awaited awaited_feed(const DeviceRun& d, const exe::Issue& i) const;
  void feed_queue(DeviceRun& d, const exe::Issue& i);
  void feed_state(std::vector<int64_t>& out) const;

  // deadlock.cc: devices that wait forever.
  std::string path_of(const DeviceRun& d) const;
  Awaited awaited(const DeviceRun& d);
  void report_deadlocks();

  // simulation.cc: programs, calls, loops.
  void start();
  void finish();
  void finish_remote();
  bool advance(DeviceRun& d, size_t depth);
  Outcome step(DeviceRun& d);
  bool enter(DeviceRun& d, const exe::Call& call, Role role, const LoopRun* loop);
  void leave(DeviceRun& d);
  Results results(DeviceRun& d, Activation& a);
  Outcome loop(DeviceRun& d, const exe::Loop& l);
  void end_iteration(Activation& a, const exe::Call& call, const Results& made);
  void check_arguments(DeviceRun& d, const exe::Call& call, const Ids<exe::ParamId, Range>& args,
                       const Range& frame);
  bool resolve(DeviceRun& d, const exe::Address& at, int64_t bytes, Range& out);
  bool evaluate(DeviceRun& d, const exe::IndexExpr& x, int64_t& out) {
    return evaluate(d, d.stack.back(), x, out);
  }
  bool evaluate(DeviceRun& d, const Activation& a, const exe::IndexExpr& x, int64_t& out);
  const Instance* lookup(const Activation& a, exe::ValueId v) const;
  void read(DeviceRun& d, const exe::Operand& o, const Range& r, const Instance* expected,
            const std::string& what);
  Instance make(exe::ValueId name, int64_t bytes, DType dtype, const std::string& layout) {
    return {next_id_++, bytes, name, dtype, &layout};
  }
  std::string name(exe::ValueId v) const;
  std::string where(const DeviceRun& d) const;
  template <typename... Args>
  void bad(const DeviceRun& d, const char* rule, fmt::format_string<Args...> format,
           Args&&... args) {
    findings_.add(rule, "{}: {}", where(d), fmt::format(format, std::forward<Args>(args)...));
    stop_ |= findings_.full();
    stop_soon();
  }

  // simulation_steps.cc: steps that touch bytes.
  struct Touched {
    const exe::Operand* operand;
    Range range;
    Grid grid;
  };
  void touch(DeviceRun& d, std::span<const Touched> all, int32_t queue);
  void align(DeviceRun& d, std::span<const Touched> all);
  Outcome kernel(DeviceRun& d, const exe::Kernel& k);
  void overlaps(DeviceRun& d, std::span<const std::pair<int32_t, int32_t>> may_coincide,
                std::span<const Touched> all);
  Outcome collective(DeviceRun& d, const exe::Collective& c);
  Outcome issue(DeviceRun& d, const exe::Issue& i);
  void stream_entry(DeviceRun& d, const exe::Issue& i);
  bool remote_entry(DeviceRun& d, const exe::Issue& i, Range& entry);
  void entry_in_flight(DeviceRun& d, const exe::Issue& i, const Range& entry);
  Outcome wait(DeviceRun& d, const exe::Wait& w);
  Outcome send(DeviceRun& d, const exe::Send& s);
  Outcome receive(DeviceRun& d, const exe::Receive& r);
  void write(DeviceRun& d, const exe::Operand& o, const Range& r);

  // simulation_paths.cc: both arms of a branch; loops left early.
  Outcome branch(DeviceRun& d, const exe::Branch& b);
  bool run_arm(DeviceRun& d, const exe::Call& call, int64_t arm);
  static void join_flights(std::vector<Flight>& mine, const std::vector<Flight>& other);
  void join_arms(Activation& a, const Bindings& then_made, const Bindings& else_made, size_t mark,
                 const std::vector<Range>& then_ranges,
                 const std::vector<ByteMap::Pieces>& then_pieces);
  void leave_early(DeviceRun& d, const exe::Loop& l, LoopRun& run);
  std::vector<int64_t> state_of(const DeviceRun& d, const LoopRun& run) const;

  // exits.cc: loops with a condition.
  void begin_exits(DeviceRun& d, const exe::Loop& l, LoopRun& run);
  void read_condition(DeviceRun& d, const exe::Loop& l, LoopRun& run);
  void join_exits(DeviceRun& d, const exe::Loop& l, LoopRun& run);
  void forget_changes(const DeviceRun& d, const ExitRun& exit);
  void check_exits();
  void check_channels(const std::vector<ExitUse>& uses, const std::string& loop);
  void check_feeds(const std::vector<ExitUse>& uses, const std::string& loop);

  // repeats.cc: loops of several devices left early.
  void leave_early_together();
  Position position() const;
  bool find_advances(const Position& before, const Position& now, size_t nesting,
                     std::vector<Advance>& advances);
  std::vector<int64_t> joint_state() const;
  static int64_t left_periods(const std::vector<Advance>& advances);
  static std::vector<RemoteLedger::Advance> remote_advances(const std::vector<Advance>& advances);
  void skip(const Position& before, const Position& now, const std::vector<Advance>& advances,
            int64_t periods);

  const exe::Executable& e_;
  const exe::Program& program_;
  const FactsOfFunctions& facts_;
  const Options& options_;
  const int64_t replica_;
  Findings& findings_;

  ByteMap bytes_;
  Clocks clocks_;
  TierUses tiers_;
  Ids<exe::ChannelId, ChannelState> channels_;
  Ids<exe::StreamId, StreamState> streams_;
  Ids<exe::StreamId, exe::FeedId> feed_of_;    ///< Invalid: a stream without feed.
  Ids<exe::StreamId, exe::DeviceId> user_of_;  ///< Invalid: no device uses the stream.
  /// Number of collectives run so far, by device and group.
  std::map<std::pair<exe::DeviceId, exe::GroupId>, int64_t> collectives_;
  RemoteLedger remote_;
  /// For each exit number and device: the uses of its loops, in the order of their ends.
  std::map<int32_t, std::map<exe::DeviceId, std::vector<ExitUse>>> exits_;
  std::deque<DeviceRun> devices_;
  std::unordered_map<exe::ValueId, Instance> constants_;
  Ids<exe::VariableId, Instance> variables_;
  /// Values of the entry functions at their ends.
  std::unordered_map<exe::ValueId, Instance> ends_;
  const std::string row_ = "row";
  std::vector<Look> looks_;  ///< Indexed by the number of enclosing loops that exit together.
  int64_t next_id_ = 0;
  int64_t steps_ = 0;
  int64_t last_step_;
  bool stop_ = false;
};

}  // namespace sluice::check
