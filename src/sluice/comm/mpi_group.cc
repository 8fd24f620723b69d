#include "sluice/comm/mpi_group.h"

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "sluice/base/ids/ids.h"
#include "sluice/base/sys.h"
#include "sluice/comm/launcher.h"
#include "sluice/runtime/process_group.h"

namespace sluice::comm {
namespace {

constexpr size_t kPiece = size_t{1} << 30;  // Bytes per MPI message: MPI counts have type int.
constexpr auto kBeat = std::chrono::milliseconds(250);  // Interval between signs of life.
constexpr auto kHurry = std::chrono::milliseconds(2);   // Interval while this process ends.
constexpr int kPatience = 20;                           // Silent beats until a process is lost.
constexpr int kGrace = 8;  // Heartbeats to wait until the peers leave after a failure.

void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  fail(ErrorKind::kPeerLost, "{}: {}", call, std::string_view(text.data(), text.data() + length));
}

class MpiMessages;

// State shared by all messages of a group. The watching thread also uses it, to stop them all.
struct Traffic {
  std::mutex lock;
  std::vector<MpiMessages*> all;
  bool stopped = false;    ///< No new send or receive may begin.
  bool abandoned = false;  ///< A transfer was freed or left before its end.
  bool broken = false;     ///< A process is gone: MPI must not touch the transfers with it again.
};

class MpiMessages final : public runtime::Messages {
 public:
  MpiMessages(MPI_Comm comm, int tag, Traffic& traffic)
      : comm_(comm), tag_(tag), traffic_(traffic) {
    const std::lock_guard lock(traffic_.lock);
    traffic_.all.push_back(this);
  }
  ~MpiMessages() override {
    const std::lock_guard lock(traffic_.lock);
    std::erase(traffic_.all, this);
    if (traffic_.broken) {
      traffic_.abandoned = traffic_.abandoned || !receives_.empty() || !sends_.empty();
      return;
    }
    cancel_receives();
    for (auto* const requests : {&receives_, &sends_}) {
      for (MPI_Request& r : *requests) {
        if (r == MPI_REQUEST_NULL) continue;
        traffic_.abandoned = true;
        MPI_Request_free(&r);
      }
    }
  }

  void send(int to, std::span<const std::byte> bytes) override {
    const std::lock_guard lock(traffic_.lock);
    if (traffic_.stopped) return;
    for_pieces(bytes, [&](std::span<const std::byte> piece) {
      check(MPI_Isend(piece.data(), static_cast<int>(piece.size()), MPI_BYTE, to, tag_, comm_,
                      &sends_.emplace_back()),
            "MPI_Isend");
    });
  }
  void receive(int from, std::span<std::byte> bytes) override {
    const std::lock_guard lock(traffic_.lock);
    if (traffic_.stopped) return;
    for_pieces(bytes, [&](std::span<std::byte> piece) {
      check(MPI_Irecv(piece.data(), static_cast<int>(piece.size()), MPI_BYTE, from, tag_, comm_,
                      &receives_.emplace_back()),
            "MPI_Irecv");
    });
  }
  bool done() override {
    const std::lock_guard lock(traffic_.lock);
    if (traffic_.stopped) return false;
    for (auto* const requests : {&receives_, &sends_}) {
      int all = 0;
      check(test(*requests, all), "MPI_Testall");
      if (all == 0) return false;
      requests->clear();
    }
    return true;
  }

  /// Cancels the receives that have not begun. Receives that have begun continue until received()
  /// is true.
  void cancel_receives() {
    for (MPI_Request& r : receives_) {
      if (r != MPI_REQUEST_NULL) MPI_Cancel(&r);
    }
  }
  bool received() {
    int all = 0;
    return test(receives_, all) != MPI_SUCCESS || all != 0;
  }

 private:
  // Requires the lock of the traffic.
  void check(int code, const char* call) {
    traffic_.broken = traffic_.broken || code != MPI_SUCCESS;
    check_mpi(code, call);
  }
  static int test(std::vector<MPI_Request>& requests, int& all) {
    return MPI_Testall(static_cast<int>(requests.size()), requests.data(), &all,
                       MPI_STATUSES_IGNORE);
  }
  template <typename Bytes, typename F>
  static void for_pieces(Bytes bytes, F&& f) {
    for (; !bytes.empty(); bytes = bytes.subspan(std::min(kPiece, bytes.size())))
      f(bytes.first(std::min(kPiece, bytes.size())));
  }

  MPI_Comm comm_;
  int tag_;
  Traffic& traffic_;
  std::vector<MPI_Request> sends_;
  std::vector<MPI_Request> receives_;
};

// A heartbeat: the message that a process sends to each peer at every beat.
struct Sign {
  // In the order in which a process sends them. After kStopped it receives no more data, and it
  // reports no error of its own that it has not sent in kFailed.
  enum class State : int32_t { kAlive, kFailed, kStopped, kLeaving };
  State kind = State::kAlive;
  ErrorKind error = ErrorKind::kInternal;
  std::array<char, 1000> text{};
};

// Returns the number of cores for each process. The processes of one host share evenly the cores
// that any of them may use. The result is the minimum over all hosts, because all processes must
// make the same plan.
int share_of_cores() {
  MPI_Comm host = MPI_COMM_NULL;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
  int processes = 1;
  MPI_Comm_size(host, &processes);
  cpu_set_t own;
  CPU_ZERO(&own);
  sched_getaffinity(0, sizeof own, &own);
  std::vector<cpu_set_t> sets(static_cast<size_t>(processes));
  MPI_Allgather(&own, sizeof own, MPI_BYTE, sets.data(), sizeof own, MPI_BYTE, host);
  MPI_Comm_free(&host);
  cpu_set_t all;
  CPU_ZERO(&all);
  for (const cpu_set_t& s : sets) CPU_OR(&all, &all, &s);
  int cores = CPU_COUNT(&all);
  const bool has_quota = sys::usable_cores() < CPU_COUNT(&own);
  if (has_quota) cores = std::min(cores, sys::usable_cores());
  int share = std::max(1, cores / processes);
  MPI_Allreduce(MPI_IN_PLACE, &share, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  return share;
}

// The processes of MPI_COMM_WORLD. A separate thread sends and receives heartbeats. So a process
// that computes for a long time counts as alive, and a suspended process as lost.
class MpiGroup final : public runtime::ProcessGroup {
 public:
  MpiGroup() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
    cores_ = share_of_cores();
    for (MPI_Comm* const comm : {&data_, &signs_}) {
      MPI_Comm_dup(MPI_COMM_WORLD, comm);
      MPI_Comm_set_errhandler(*comm, MPI_ERRORS_RETURN);
    }
    peers_ = std::vector<Peer>(static_cast<size_t>(size_));
    for (int p = 0; p < size_; ++p) {
      if (p != rank_) listen(p);
    }
    watch_ = std::thread([this] { watch(); });
  }

  ~MpiGroup() override {
    {
      const std::lock_guard lock(lock_);
      leaving_ = true;
    }
    wake_.notify_one();
    watch_.join();
    const bool orderly = all_left_ && !traffic_.abandoned;
    if (troubled_ && !orderly) MPI_Abort(MPI_COMM_WORLD, trouble().exit_code());
    MPI_Finalize();
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int usable_cores() const override { return cores_; }
  std::unique_ptr<runtime::Messages> messages(int tag) override {
    return std::make_unique<MpiMessages>(data_, tag, traffic_);
  }
  void check() const override {
    if (!troubled_.load(std::memory_order_acquire)) return;
    const std::lock_guard lock(lock_);
    throw Error(trouble());
  }
  bool fail(const Error& error) override {
    std::unique_lock lock(lock_);
    if (!own_ && !others_) own_ = error;
    troubled_.store(true, std::memory_order_release);
    wake_.notify_one();
    heard_.wait_for(lock, kBeat * (kPatience + kGrace), [&] { return quiet_; });
    return own_ && !lower_failed_;
  }

 private:
  struct Peer {
    MPI_Request in = MPI_REQUEST_NULL;
    MPI_Request out = MPI_REQUEST_NULL;
    Sign received;
    Sign sent;
    int silent = 0;                          ///< Beats since its last sign.
    Sign::State told = Sign::State::kAlive;  ///< Latest kind sent to it.
    bool stopped = false;
    bool left = false;
    bool lost() const { return silent > kPatience && !left; }
  };

  void listen(int p) {
    Peer& peer = at(peers_, p);
    MPI_Irecv(&peer.received, sizeof peer.received, MPI_BYTE, p, 0, signs_, &peer.in);
  }

  // Runs on the watching thread: exchanges signs at every beat, and at once after a change of
  // state.
  void watch() {
    auto last_beat = std::chrono::steady_clock::now();
    for (int grace = kGrace; grace > 0;) {
      bool leaving = false;
      std::optional<Error> own;
      bool ends = false;
      {
        std::unique_lock lock(lock_);
        ends = own_ || others_;
        wake_.wait_for(lock, leaving_ || (ends && !quiet_) ? kHurry : kBeat);
        leaving = leaving_;
        own = own_;
        ends = own_ || others_;
      }
      // A long pause counts as one beat. If this process was suspended, the peers may have been
      // too.
      const auto now = std::chrono::steady_clock::now();
      const bool beat = now - last_beat >= kBeat;
      if (beat) last_beat = now;
      if (beat && leaving && troubled_) --grace;
      const bool stopped = ends && stop_traffic();
      bool all_stopped = stopped;
      bool all_left = leaving, others_left = leaving;
      for (int p = 0; p < size_; ++p) {
        if (p == rank_) continue;
        Peer& peer = at(peers_, p);
        hear(p, beat);
        if (own && peer.told < Sign::State::kFailed) {
          tell(p, failure(*own));
        } else if (stopped && peer.told < Sign::State::kStopped) {
          tell(p, Sign{.kind = Sign::State::kStopped});
        } else if (leaving) {
          tell(p, Sign{.kind = Sign::State::kLeaving});
        } else if (beat) {
          tell(p, Sign{});
        }
        all_stopped = all_stopped && (peer.stopped || peer.lost());
        const bool left = peer.left && peer.told == Sign::State::kLeaving && is_sent(peer);
        all_left = all_left && left;
        others_left = others_left && (left || peer.lost());
      }
      if (all_stopped) be_quiet();
      all_left_ = all_left;
      if (others_left) return;  // Do not wait for lost processes.
    }
  }

  // Stops all messages of this process. Returns whether peers may drop their messages to it: every
  // receive has ended or is cancelled, or a process is lost.
  bool stop_traffic() {
    const std::lock_guard lock(traffic_.lock);
    if (std::ranges::any_of(peers_, [](const Peer& p) { return p.lost(); })) traffic_.broken = true;
    if (!traffic_.stopped && !traffic_.broken) {
      for (MpiMessages* const m : traffic_.all) m->cancel_receives();
    }
    traffic_.stopped = true;
    return traffic_.broken ||
           std::ranges::all_of(traffic_.all, [](MpiMessages* m) { return m->received(); });
  }

  void be_quiet() {
    {
      const std::lock_guard lock(lock_);
      quiet_ = true;
    }
    heard_.notify_all();
  }

  static Sign failure(const Error& error) {
    Sign sign{.kind = Sign::State::kFailed, .error = error.kind()};
    const std::string_view text(error.what());
    std::copy_n(text.begin(), std::min(text.size(), sign.text.size() - 1), sign.text.begin());
    return sign;
  }

  static bool is_sent(Peer& peer) {
    int done = 1;
    if (peer.out != MPI_REQUEST_NULL) MPI_Test(&peer.out, &done, MPI_STATUS_IGNORE);
    return done != 0;
  }

  // Sends a sign to process p, unless the previous sign has not been received yet. Thus signs to a
  // suspended process do not pile up.
  void tell(int p, const Sign& sign) {
    Peer& peer = at(peers_, p);
    if (peer.told == Sign::State::kLeaving || !is_sent(peer)) return;
    peer.sent = sign;
    peer.told = std::max(peer.told, sign.kind);
    MPI_Isend(&peer.sent, sizeof peer.sent, MPI_BYTE, p, 0, signs_, &peer.out);
  }

  void hear(int p, bool beat) {
    Peer& peer = at(peers_, p);
    if (peer.left) return;
    if (beat) ++peer.silent;
    for (int heard = 1; !peer.left;) {
      MPI_Test(&peer.in, &heard, MPI_STATUS_IGNORE);
      if (heard == 0) break;
      peer.silent = 0;
      const Sign& sign = peer.received;
      peer.stopped = peer.stopped || sign.kind >= Sign::State::kStopped;
      peer.left = sign.kind == Sign::State::kLeaving;
      if (sign.kind == Sign::State::kFailed) {
        set_trouble(others_, Error(sign.error, fmt::format("process {}: {}", p, sign.text.data())));
        lower_failed_ = lower_failed_ || p < rank_;
      }
      if (!peer.left) listen(p);
    }
    if (peer.lost()) {
      const auto silence = std::chrono::duration_cast<std::chrono::seconds>(kPatience * kBeat);
      set_trouble(lost_, Error(ErrorKind::kPeerLost,
                               fmt::format("process {} has given no sign of life for {} s", p,
                                           silence.count())));
    }
  }

  void set_trouble(std::optional<Error>& which, const Error& error) {
    const std::lock_guard lock(lock_);
    if (!which) which = error;
    troubled_.store(true, std::memory_order_release);
  }

  // Requires `troubled_`.
  const Error& trouble() const { return own_ ? *own_ : others_ ? *others_ : *lost_; }

  int rank_ = 0;
  int size_ = 1;
  int cores_ = 1;
  MPI_Comm data_ = MPI_COMM_NULL;
  MPI_Comm signs_ = MPI_COMM_NULL;
  /// Indexed by rank; after construction only the watching thread uses them.
  std::vector<Peer> peers_;
  mutable std::mutex lock_;
  std::condition_variable wake_;
  bool leaving_ = false;
  std::optional<Error> own_;     ///< Error of this process, unless another one failed before it.
  std::optional<Error> others_;  ///< First error received from another process.
  std::optional<Error> lost_;    ///< First peer whose heartbeat timed out.
  std::atomic<bool> lower_failed_{false};  ///< A process of lower rank has failed.
  bool quiet_ = false;             ///< No process accesses the bytes of any message any more.
  std::condition_variable heard_;  ///< Notified when `quiet_` becomes true.
  bool all_left_ = false;          ///< Set by watch(): every process has left, none is lost.
  Traffic traffic_;
  std::atomic<bool> troubled_{false};  ///< At least one of own_, others_ and lost_ is set.
  std::thread watch_;
};

}  // namespace

std::string mpi_version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  const std::string_view all(text.data(), text.data() + length);
  return std::string(all.substr(0, all.find_first_of(",\n")));
}

std::shared_ptr<runtime::ProcessGroup> join_mpi() {
  const Launch launched = launch();
  if (launched.processes == 1) return nullptr;
  int provided = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
  require(provided == MPI_THREAD_MULTIPLE,
          "MPI must support MPI_THREAD_MULTIPLE, got {}, which does not; use an MPI built for "
          "threads",
          mpi_version());
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (launched.is_exact ? size != launched.processes : size == 1) {
    MPI_Finalize();
    fail(ErrorKind::kUsage,
         "the launcher started {} processes but {} sees {}; start the program with the mpirun of "
         "{}, or run each process by itself with --single-process ({})",
         launched.processes, mpi_version(), size, mpi_version(), launched.variable);
  }
  return std::make_shared<MpiGroup>();
}

}  // namespace sluice::comm
