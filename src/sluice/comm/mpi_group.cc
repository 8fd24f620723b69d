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

#include "sluice/base/sys.h"
#include "sluice/comm/launcher.h"

namespace sluice::comm {
namespace {

constexpr size_t kPiece = size_t{1} << 30;  // Counts of MPI are of type int.
constexpr auto kBeat = std::chrono::milliseconds(250);
constexpr auto kHurry = std::chrono::milliseconds(2);  // When all that is left is to leave.
constexpr int kPatience = 20;                          // Beats without a sign of life.
constexpr int kGrace = 8;  // Beats that others have to leave, after a failure.

void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  fail(ErrorKind::kPeerLost, "{}: {}", call,
       std::string_view(text.data(), static_cast<size_t>(length)));
}

class MpiMessages;

// What all messages of a group have in common. Locked, as the watching thread may stop them all.
struct Traffic {
  std::mutex lock;
  std::vector<MpiMessages*> all;
  bool stopped = false;    ///< Nothing is sent or received any more.
  bool abandoned = false;  ///< Some never went.
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
      check_mpi(MPI_Isend(piece.data(), static_cast<int>(piece.size()), MPI_BYTE, to, tag_, comm_,
                          &sends_.emplace_back()),
                "MPI_Isend");
    });
  }
  void receive(int from, std::span<std::byte> bytes) override {
    const std::lock_guard lock(traffic_.lock);
    if (traffic_.stopped) return;
    for_pieces(bytes, [&](std::span<std::byte> piece) {
      check_mpi(MPI_Irecv(piece.data(), static_cast<int>(piece.size()), MPI_BYTE, from, tag_, comm_,
                          &receives_.emplace_back()),
                "MPI_Irecv");
    });
  }
  bool done() override {
    const std::lock_guard lock(traffic_.lock);
    if (traffic_.stopped) return false;
    for (auto* const requests : {&receives_, &sends_}) {
      int all = 0;
      check_mpi(test(*requests, all), "MPI_Testall");
      if (all == 0) return false;
      requests->clear();
    }
    return true;
  }

  /// Those that have not begun never will; those that have, go on until received().
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

// What processes tell each other at every beat.
struct Sign {
  // In the order in which they are told. Who has stopped reads nothing more of what others send, and tells its user nothing
  // that it has not told them before.
  enum class Kind : int32_t { kAlive, kFailed, kStopped, kLeaving };
  Kind kind = Kind::kAlive;
  ErrorKind error = ErrorKind::kInternal;
  std::array<char, 1000> text{};
};

// Cores for each process: what those of one host may use together, shared evenly; the same everywhere, as plans are.
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

// A thread of its own sends and receives signs of life, whatever the others do: a process that computes for long is alive, a
// stopped one is not.
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
    int silent = 0;  ///< Beats since it was heard.
    Sign::Kind told = Sign::Kind::kAlive;
    bool stopped = false;
    bool left = false;
    bool lost() const { return silent > kPatience && !left; }
  };

  void listen(int p) {
    Peer& peer = peers_[static_cast<size_t>(p)];
    MPI_Irecv(&peer.received, sizeof peer.received, MPI_BYTE, p, 0, signs_, &peer.in);
  }

  // At each beat, and when there is news.
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
      // After a stop of this process too it is but one: others may have been stopped with it.
      const auto now = std::chrono::steady_clock::now();
      const bool beat = now - last_beat >= kBeat;
      if (beat) last_beat = now;
      if (beat && leaving && troubled_) --grace;
      const bool stopped = ends && stop_traffic();
      bool all_stopped = stopped;
      bool all_left = leaving, others_left = leaving;
      for (int p = 0; p < size_; ++p) {
        if (p == rank_) continue;
        Peer& peer = peers_[static_cast<size_t>(p)];
        hear(p, beat);
        if (own && peer.told < Sign::Kind::kFailed) {
          tell(p, failure(*own));
        } else if (stopped && peer.told < Sign::Kind::kStopped) {
          tell(p, Sign{.kind = Sign::Kind::kStopped});
        } else if (leaving) {
          tell(p, Sign{.kind = Sign::Kind::kLeaving});
        } else if (beat) {
          tell(p, Sign{});
        }
        all_stopped = all_stopped && (peer.stopped || peer.lost());
        const bool left = peer.left && peer.told == Sign::Kind::kLeaving && is_sent(peer);
        all_left = all_left && left;
        others_left = others_left && (left || peer.lost());
      }
      if (all_stopped) be_quiet();
      all_left_ = all_left;
      if (others_left) return;  // Nobody waits for who is lost.
    }
  }

  // Whether the others may give up what they send: what this process receives of it has come, or is cancelled.
  bool stop_traffic() {
    const std::lock_guard lock(traffic_.lock);
    if (!traffic_.stopped) {
      for (MpiMessages* const m : traffic_.all) m->cancel_receives();
    }
    traffic_.stopped = true;
    return std::ranges::all_of(traffic_.all, [](MpiMessages* m) { return m->received(); }) ||
           std::ranges::any_of(peers_, [](const Peer& p) { return p.lost(); });
  }

  void be_quiet() {
    {
      const std::lock_guard lock(lock_);
      quiet_ = true;
    }
    heard_.notify_all();
  }

  static Sign failure(const Error& error) {
    Sign sign{.kind = Sign::Kind::kFailed, .error = error.kind()};
    const std::string_view text(error.what());
    std::copy_n(text.begin(), std::min(text.size(), sign.text.size() - 1), sign.text.begin());
    return sign;
  }

  static bool is_sent(Peer& peer) {
    int done = 1;
    if (peer.out != MPI_REQUEST_NULL) MPI_Test(&peer.out, &done, MPI_STATUS_IGNORE);
    return done != 0;
  }

  // Nothing if the last sign has not gone yet, so that what a stopped process does not take does not pile up.
  void tell(int p, const Sign& sign) {
    Peer& peer = peers_[static_cast<size_t>(p)];
    if (peer.told == Sign::Kind::kLeaving || !is_sent(peer)) return;
    peer.sent = sign;
    peer.told = std::max(peer.told, sign.kind);
    MPI_Isend(&peer.sent, sizeof peer.sent, MPI_BYTE, p, 0, signs_, &peer.out);
  }

  void hear(int p, bool beat) {
    Peer& peer = peers_[static_cast<size_t>(p)];
    if (peer.left) return;
    if (beat) ++peer.silent;
    for (int heard = 1; !peer.left;) {
      MPI_Test(&peer.in, &heard, MPI_STATUS_IGNORE);
      if (heard == 0) break;
      peer.silent = 0;
      const Sign& sign = peer.received;
      peer.stopped = peer.stopped || sign.kind >= Sign::Kind::kStopped;
      peer.left = sign.kind == Sign::Kind::kLeaving;
      if (sign.kind == Sign::Kind::kFailed) {
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

  // If there is any.
  const Error& trouble() const { return own_ ? *own_ : others_ ? *others_ : *lost_; }

  int rank_ = 0;
  int size_ = 1;
  int cores_ = 1;
  MPI_Comm data_ = MPI_COMM_NULL;
  MPI_Comm signs_ = MPI_COMM_NULL;
  std::vector<Peer> peers_;  ///< By rank; used by the watching thread alone.
  mutable std::mutex lock_;
  std::condition_variable wake_;
  bool leaving_ = false;
  std::optional<Error> own_;     ///< What this process failed with before it heard of another,
  std::optional<Error> others_;  ///< what another one did first,
  std::optional<Error> lost_;    ///< and who is gone, as far as this one sees.
  std::atomic<bool> lower_failed_{false};  ///< So did a process before this one.
  bool quiet_ = false;  ///< Neither this process nor another touches what it gave to messages.
  std::condition_variable heard_;  ///< It is.
  bool all_left_ = false;          ///< At the end of watch(): nobody is left behind.
  Traffic traffic_;
  std::atomic<bool> troubled_{false};  ///< There is one of own_, others_ and lost_.
  std::thread watch_;
};

}  // namespace

std::string mpi_version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  MPI_Get_library_version(text.data(), &length);
  const std::string_view all(text.data(), static_cast<size_t>(length));
  return std::string(all.substr(0, all.find_first_of(",\n")));
}

std::shared_ptr<runtime::ProcessGroup> join_mpi() {
  if (launched_processes() == 1) return nullptr;
  int provided = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
  require(provided == MPI_THREAD_MULTIPLE,
          "this MPI ({}) does not let several threads call it, which signs of life need",
          mpi_version());
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size != launched_processes()) {
    MPI_Finalize();
    fail(ErrorKind::kUsage,
         "the launcher started {} processes, and {}, which this build has, finds {} of them; the "
         "right launcher is its own",
         launched_processes(), mpi_version(), size);
  }
  return std::make_shared<MpiGroup>();
}

}  // namespace sluice::comm
