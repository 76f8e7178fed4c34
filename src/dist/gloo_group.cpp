#include <fmt/format.h>
#include <torch/torch.h>
#include <torch/version.h>

#include "core/error.h"
#include "dist/group.h"

#ifdef USE_C10D_GLOO

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <gloo/context.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

namespace ebclr::dist {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}
milliseconds to_milliseconds(double seconds) {
  return milliseconds(static_cast<int64_t>(1000 * seconds));
}
std::vector<uint8_t> bytes_of(const std::string& text) {
  return {text.begin(), text.end()};
}
std::string text_of(const std::vector<uint8_t>& bytes) {
  return {bytes.begin(), bytes.end()};
}
std::string key(const char* kind, int rank) {
  return fmt::format("{}/{}", kind, rank);
}

/// An IPv4 or IPv6 stream socket's address of a host.
struct Address {
  sockaddr_storage storage = {};
  socklen_t length = 0;
};
std::optional<Address> resolve(const std::string& host, uint16_t port) {
  addrinfo hints{}, *list = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list) != 0) return std::nullopt;
  Address address;
  std::memcpy(&address.storage, list->ai_addr, list->ai_addrlen);
  address.length = list->ai_addrlen;
  ::freeaddrinfo(list);
  return address;
}

/// A socket that listens where the master is to be met; throws Error saying why it cannot.
int listen_at(const Launch& launch) {
  const auto address = resolve(launch.master, launch.port);
  if (!address)
    core::run_error("dist", fmt::format("the master's name '{}' is unknown; set MASTER_ADDR", launch.master));
  const int fd = ::socket(address->storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  if (fd >= 0) ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (fd >= 0 && ::bind(fd, reinterpret_cast<const sockaddr*>(&address->storage), address->length) == 0 &&
      ::listen(fd, 1024) == 0)
    return fd;
  const int why = errno;
  if (fd >= 0) ::close(fd);
  core::run_error(
      "dist",
      fmt::format("rank 0 cannot listen at {}:{} ({}); {}", launch.master, launch.port, std::strerror(why),
                  why == EADDRINUSE ? "choose another MASTER_PORT"
                                    : "MASTER_ADDR must be an address of the host of rank 0"));
}

c10::intrusive_ptr<c10d::Store> open_store(const Launch& launch, double seconds, bool server) {
  c10d::TCPStoreOptions options;
  options.port = launch.port;
  options.isServer = server;
  options.waitWorkers = false;
  options.timeout = to_milliseconds(seconds);
#if TORCH_VERSION_MAJOR >= 2
  // Listens at the master's address alone. (libtorch 1.13 knows no such thing and listens everywhere.)
  options.useLibUV = false;
  if (server) options.masterListenFd = listen_at(launch);
#else
  if (server) ::close(listen_at(launch));  // for our own message when the port is taken
#endif
  return c10::make_intrusive<c10d::PrefixStore>("ebclr/" + launch.job,
                                                c10::make_intrusive<c10d::TCPStore>(launch.master, options));
}

/// The store, with patience: a client may start before its master.
c10::intrusive_ptr<c10d::Store> join_store(const Launch& launch, double seconds, bool server) {
  const auto start = Clock::now();
  for (;;) {
    const double left = seconds - seconds_since(start);
    try {
      return open_store(launch, std::max(left, 1.0), server);
    } catch (const core::Error&) {
      throw;
    } catch (const std::exception&) {
      if (server || seconds_since(start) >= seconds)
        core::run_error("dist", fmt::format("rank {} could not reach rank 0 at {}:{} within {:.0f} s; is it "
                                            "running, and may this host connect to it?",
                                            launch.rank, launch.master, launch.port, seconds));
    }
    std::this_thread::sleep_for(milliseconds(200));
  }
}

/// Tells the others that this rank lives, and finds out when another one does not. Rank 0 looks at all the
/// others, they look at it, since the store may be kept by torchrun and outlive it; who misses one publishes
/// a verdict that all read. So each asks little, whatever the number of ranks.
class Pulse {
 public:
  Pulse(const Launch& launch, const Deadlines& deadlines)
      : launch_(launch),
        deadlines_(deadlines),
        store_(join_store(launch, deadlines.join, false)),
        seen_(static_cast<size_t>(launch.world)),
        thread_([this] { beat(); }) {}
  ~Pulse() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }

  /// Ends it; false when it hangs at a store that does not answer: then it must not be destroyed.
  bool end() {
    stop_ = true;
    for (int i = 0; i < 40 && !ended_; ++i) std::this_thread::sleep_for(milliseconds(50));
    if (!ended_) return false;
    thread_.join();
    return true;
  }

  /// Why the group is broken; empty while it is whole. A question to a store whose host has vanished has no
  /// end, so that silence is judged here, by whoever asks.
  std::string verdict() {
    const std::scoped_lock lock(mutex_);
    if (verdict_.empty() && seconds_since(heard_) > deadlines_.silence)
      verdict_ = fmt::format(
          "rank 0, which keeps the meeting point, has not answered for {:.0f} s (killed, "
          "stopped, or the network is down)",
          deadlines_.silence);
    return verdict_;
  }

 private:
  struct Seen {
    std::string beat;
    Clock::time_point when = Clock::now();
  };

  void judge(const std::string& text) {
    const std::scoped_lock lock(mutex_);
    if (verdict_.empty()) verdict_ = text;
  }

  void beat() {
    store_->setTimeout(to_milliseconds(deadlines_.silence));
    for (int64_t n = 0; !stop_ && verdict().empty(); ++n) {
      try {
        store_->set(key("beat", launch_.rank), bytes_of(std::to_string(n)));
        for (int r = 1; launch_.rank == 0 && r < launch_.world; ++r) look_at(r);
        if (launch_.rank != 0) look_at(0);
        if (store_->check({"verdict"})) judge(text_of(store_->get("verdict")));
        const std::scoped_lock lock(mutex_);
        heard_ = Clock::now();
      } catch (const std::exception&) {
        if (!stop_) judge("rank 0, which keeps the meeting point, is gone");
      }
      for (int i = 0; i < 10 && !stop_; ++i) std::this_thread::sleep_for(milliseconds(50));
    }
    ended_ = true;
  }

  void look_at(int r) {
    Seen& seen = seen_[static_cast<size_t>(r)];
    std::string text;
    if (store_->check({key("left", r)})) {
      seen.when = Clock::now();  // it finished its work; nothing more is expected of it
      return;
    }
    if (store_->check({key("beat", r)})) text = text_of(store_->get(key("beat", r)));
    if (text != seen.beat) seen = {text, Clock::now()};
    if (seconds_since(seen.when) > deadlines_.silence)
      store_->set("verdict", bytes_of(fmt::format("rank {} has not been heard of for {:.0f} s (killed, "
                                                  "stopped, or its network is down)",
                                                  r, deadlines_.silence)));
  }

  Launch launch_;
  Deadlines deadlines_;
  c10::intrusive_ptr<c10d::Store> store_;
  std::vector<Seen> seen_;
  std::mutex mutex_;
  std::string verdict_;
  Clock::time_point heard_ = Clock::now();  // when the store last answered
  std::atomic<bool> stop_ = false, ended_ = false;
  std::thread thread_;
};

/// This host's address on the way to the master; nullopt when that leads nowhere else.
std::optional<std::string> own_address(const Launch& launch) {
  const auto master = resolve(launch.master, launch.port);
  if (!master) return std::nullopt;
  // Connecting a datagram socket sends nothing: it only chooses the way.
  const int fd = ::socket(master->storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return std::nullopt;
  Address own;
  own.length = sizeof own.storage;
  char text[NI_MAXHOST] = "";
  const bool found =
      ::connect(fd, reinterpret_cast<const sockaddr*>(&master->storage), master->length) == 0 &&
      ::getsockname(fd, reinterpret_cast<sockaddr*>(&own.storage), &own.length) == 0 &&
      ::getnameinfo(reinterpret_cast<const sockaddr*>(&own.storage), own.length, text, sizeof text, nullptr,
                    0, NI_NUMERICHOST) == 0;
  ::close(fd);
  if (!found || std::string_view(text).starts_with("127.") || std::string_view(text) == "::1")
    return std::nullopt;
  return text;
}

/// Tells hosts apart, and network namespaces of one host, which do not share their loopback.
std::string host_identity() {
  char name[256] = "", space[64] = "";
  ::gethostname(name, sizeof name - 1);
  if (::readlink("/proc/self/ns/net", space, sizeof space - 1) < 0) space[0] = '\0';
  return fmt::format("{} {}", name, space);
}

std::shared_ptr<gloo::transport::Device> device_for(const Launch& launch, bool one_host) {
  if (const char* interface = std::getenv("GLOO_SOCKET_IFNAME"); interface != nullptr && *interface != '\0') {
    try {
      return c10d::ProcessGroupGloo::createDeviceForInterface(interface);
    } catch (const std::exception&) {
      core::usage_error("dist",
                        fmt::format("GLOO_SOCKET_IFNAME names '{}', which cannot be used here; see `ip "
                                    "address`",
                                    interface));
    }
  }
  // All ranks on one host need no network.
  if (one_host) return c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1");
  // Gloo's default is the address of the host's own name, which on Debian is 127.0.1.1.
  if (const auto address = own_address(launch))
    return c10d::ProcessGroupGloo::createDeviceForHostname(*address);
  return c10d::ProcessGroupGloo::createDefaultDevice();
}

/// Gloo has one time-out for meeting and for every exchange after it. The first should be short; exchanges
/// may wait long for a rank that writes or judges, because the pulse tells who is lost.
class PatientGloo : public c10d::ProcessGroupGloo {
 public:
  using ProcessGroupGloo::ProcessGroupGloo;
  void wait_long() {
    for (const auto& context : contexts_) context->setTimeout(std::chrono::hours(24));
  }
};

class GlooGroup : public Group {
 public:
  GlooGroup(const Launch& launch, const Deadlines& deadlines)
      : launch_(launch),
        deadlines_(deadlines),
        store_(join_store(launch, deadlines.join, launch.rank == 0 && !launch.agent_store)) {
    hosts_ = roll_call();
    pulse_ = std::make_unique<Pulse>(launch_, deadlines_);
    auto options = c10d::ProcessGroupGloo::Options::create(to_milliseconds(deadlines_.join));
    options->devices.push_back(device_for(launch, hosts_.size() == 1));
    options->threads = 2;
    try {
      gloo_ = c10::make_intrusive<PatientGloo>(store_, launch.rank, launch.world, options);
      gloo_->wait_long();
    } catch (const std::exception&) {
      core::run_error(
          "dist",
          fmt::format("rank {} could not connect to the others within {:.0f} s; they must reach each other "
                      "directly: name the interface with GLOO_SOCKET_IFNAME",
                      launch.rank, deadlines_.join));
    }
  }

  ~GlooGroup() override {
    if (!pulse_->end()) (void)pulse_.release();
    if (broken_) {
      // Something may still be under way in it that will never end; its destructor would wait for it.
      (void)gloo_.release();
      return;
    }
    try {
      store_->set(key("left", rank()), bytes_of("1"));
      if (rank() != 0) return;
      // The meeting point goes with rank 0: it leaves last.
      store_->setTimeout(to_milliseconds(5));
      for (int r = 1; r < world(); ++r) store_->wait({key("left", r)}, to_milliseconds(5));
    } catch (const std::exception&) {
    }
  }

  int rank() const override { return launch_.rank; }
  int world() const override { return launch_.world; }
  std::string describe() const override {
    return fmt::format("{} ranks on {} host{} ({}), started by {}, Gloo, meeting at {}:{}", launch_.world,
                       hosts_.size(), hosts_.size() == 1 ? "" : "s", fmt::join(hosts_, ", "),
                       launch_.launcher, launch_.master, launch_.port);
  }

  void sum(torch::Tensor& t) override {
    std::vector<torch::Tensor> list = {t.contiguous()};
    finish("a sum", gloo_->allreduce(list), t.nbytes());
    if (!list[0].is_same(t)) t.copy_(list[0]);
  }

  torch::Tensor gather_rows(const torch::Tensor& rows, int64_t total) override {
    torch::NoGradGuard no_grad;
    // Shares differ by one row at most; Gloo wants them equal.
    int64_t most = 0;
    for (int r = 0; r < world(); ++r) most = std::max(most, share(total, r).second - share(total, r).first);
    auto sizes = rows.sizes().vec();
    sizes[0] = most;
    auto mine = torch::zeros(sizes, rows.options().requires_grad(false));
    mine.narrow(0, 0, rows.size(0)).copy_(rows);
    std::vector<torch::Tensor> in = {mine};
    std::vector<std::vector<torch::Tensor>> out(1);
    for (int r = 0; r < world(); ++r) out[0].push_back(torch::empty_like(mine));
    finish("a gathering", gloo_->allgather(out, in), static_cast<size_t>(world()) * mine.nbytes());
    std::vector<torch::Tensor> parts;
    for (int r = 0; r < world(); ++r) {
      const auto [begin, end] = share(total, r);
      parts.push_back(out[0][static_cast<size_t>(r)].narrow(0, 0, end - begin));
    }
    return torch::cat(parts);
  }

  torch::Tensor exchange_rows(const torch::Tensor& rows, const std::vector<int64_t>& send,
                              const std::vector<int64_t>& receive) override {
    torch::NoGradGuard no_grad;
    auto sizes = rows.sizes().vec();
    sizes[0] = std::accumulate(receive.begin(), receive.end(), int64_t{0});
    auto in = rows.contiguous(), out = torch::empty(sizes, rows.options().requires_grad(false));
    auto to = send, from = receive;
    finish("an exchange", gloo_->alltoall_base(out, in, from, to), in.nbytes());
    return out;
  }

  void broadcast(torch::Tensor& t) override {
    std::vector<torch::Tensor> list = {t.contiguous()};
    finish("a broadcast", gloo_->broadcast(list), t.nbytes());
    if (!list[0].is_same(t)) t.copy_(list[0]);
  }

  // Not through the store: a question to a store whose host has vanished has no end.
  std::vector<std::string> gather_text(const std::string& mine) override {
    const auto lengths =
        gather_rows(torch::full({1}, static_cast<int64_t>(mine.size()), torch::kInt64), world());
    auto row = torch::zeros({1, lengths.max().item<int64_t>() + 1}, torch::kUInt8);
    std::memcpy(row.data_ptr(), mine.data(), mine.size());
    const auto rows = gather_rows(row, world()).contiguous();
    std::vector<std::string> all;
    for (int r = 0; r < world(); ++r)
      all.emplace_back(reinterpret_cast<const char*>(rows[r].data_ptr<uint8_t>()),
                       lengths[r].item<int64_t>());
    return all;
  }

  void abandon(const std::string& why) override {
    if (std::exchange(broken_, true)) return;
    try {
      store_->setTimeout(to_milliseconds(2));
      if (!store_->check({"verdict"}))
        store_->set("verdict", bytes_of(fmt::format("rank {} ended: {}", rank(), why)));
      linger();
    } catch (const std::exception&) {
    }
  }

  Traffic traffic() const override { return traffic_; }

 private:
  /// Every rank reports; throws Error naming those that did not. Returns the hosts' names.
  std::vector<std::string> roll_call() {
    const auto start = Clock::now();
    std::set<std::string> hosts;
    std::vector<int> missing;
    try {
      store_->set(key("host", rank()), bytes_of(host_identity()));
      for (int r = 0; r < world(); ++r) {
        while (!store_->check({key("host", r)}) && seconds_since(start) < deadlines_.join)
          std::this_thread::sleep_for(milliseconds(20));
        if (store_->check({key("host", r)}))
          hosts.insert(text_of(store_->get(key("host", r))));
        else
          missing.push_back(r);
      }
    } catch (const std::exception&) {
      core::run_error("dist", fmt::format("rank {} lost rank 0 at {}:{} while waiting for the others", rank(),
                                          launch_.master, launch_.port));
    }
    if (!missing.empty())
      core::run_error("dist",
                      fmt::format("rank {} of {} did not come within {:.0f} s; start all ranks with the same "
                                  "MASTER_ADDR, MASTER_PORT and WORLD_SIZE",
                                  fmt::join(missing, ", "), world(), deadlines_.join));
    std::vector<std::string> names;
    for (const auto& host : hosts) names.push_back(host.substr(0, host.find(' ')));
    return names;
  }

  /// The verdict is kept by rank 0: it must be there long enough for the others to read it.
  void linger() const {
    if (rank() == 0 && !launch_.agent_store) std::this_thread::sleep_for(milliseconds(2000));
  }

  void give_up_if_broken(const char* what) {
    const std::string verdict = pulse_->verdict();
    if (!verdict.empty()) lost(what, verdict);
  }

  [[noreturn]] void lost(const char* what, const std::string& why) {
    broken_ = true;
    linger();
    core::run_error("dist",
                    fmt::format("rank {} gave up in the middle of {}: {}; continue from the last checkpoint "
                                "with --resume",
                                rank(), what, why));
  }

  /// A failed exchange: somebody is gone. Who, the pulse knows a little later.
  [[noreturn]] void fail(const char* what, const std::string& detail) {
    const auto start = Clock::now();
    while (seconds_since(start) < deadlines_.silence + 3) {
      const std::string verdict = pulse_->verdict();
      if (!verdict.empty()) lost(what, verdict);
      std::this_thread::sleep_for(milliseconds(100));
    }
    lost(what, "the connection broke: " + detail.substr(0, detail.find('\n')));
  }

  void finish(const char* what, const c10::intrusive_ptr<c10d::Work>& work, size_t bytes) {
    const auto start = Clock::now();
    // Asleep: who spins here takes the core from Gloo's threads, which move the bytes.
    while (!work->isCompleted()) {
      try {
        work->wait(milliseconds(500));
      } catch (const std::exception&) {  // not yet, or failed: told apart below
        if (!work->isCompleted()) give_up_if_broken(what);
      }
    }
    try {
      work->wait();
    } catch (const std::exception& e) {
      fail(what, e.what());
    }
    traffic_.seconds += seconds_since(start);
    traffic_.bytes += static_cast<double>(bytes);
    ++traffic_.calls;
  }

  Launch launch_;
  Deadlines deadlines_;
  c10::intrusive_ptr<c10d::Store> store_;
  std::vector<std::string> hosts_;
  std::unique_ptr<Pulse> pulse_;
  c10::intrusive_ptr<PatientGloo> gloo_;
  Traffic traffic_;
  bool broken_ = false;
};

}  // namespace

std::shared_ptr<Group> connect(const Launch& launch, const Deadlines& deadlines) {
  return std::make_shared<GlooGroup>(launch, deadlines);
}

}  // namespace ebclr::dist

#else

namespace ebclr::dist {

std::shared_ptr<Group> connect(const Launch& launch, const Deadlines&) {
  core::usage_error("dist",
                    fmt::format("{} asks for {} ranks, and this build has no Gloo; install libgloo-dev and "
                                "build again",
                                launch.launcher, launch.world));
}

}  // namespace ebclr::dist

#endif
