#pragma once
// The processes of one training as a group, and what they exchange. Every rank computes the whole loss from
// gathered outputs, so that sums of parameter gradients over the ranks are those of one process.

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "dist/launch.h"

namespace ebclr::dist {

/// What the exchange has cost this rank so far.
struct Traffic {
  double seconds = 0;  ///< spent waiting for it
  double bytes = 0;    ///< of the tensors handed over
  int64_t calls = 0;   ///< exchanges
};

class Group {
 public:
  virtual ~Group() = default;

  virtual int rank() const = 0;
  virtual int world() const = 0;
  /// One line for the log: ranks, hosts, backend.
  virtual std::string describe() const = 0;

  /// In place: the sum over all ranks, the same bytes on each.
  virtual void sum(torch::Tensor& t) = 0;
  /// Rows of all ranks in their order: [n_r, ...] -> [sum of n_r, ...]. n_r is this rank's share of `total`.
  virtual torch::Tensor gather_rows(const torch::Tensor& rows, int64_t total) = 0;
  /// Rows that belong elsewhere: the first send[0] go to rank 0, the next send[1] to rank 1, and so on;
  /// returns receive[0] rows of rank 0, then those of rank 1, and so on.
  virtual torch::Tensor exchange_rows(const torch::Tensor& rows, const std::vector<int64_t>& send,
                                      const std::vector<int64_t>& receive) = 0;
  /// In place: rank 0's values everywhere.
  virtual void broadcast(torch::Tensor& t) = 0;
  /// A text of every rank, in their order.
  virtual std::vector<std::string> gather_text(const std::string& mine) = 0;
  /// Tells the others that this rank ends, and why: they end too, naming it.
  virtual void abandon(const std::string& why) {}
  virtual Traffic traffic() const { return {}; }

  bool alone() const { return world() == 1; }
  /// Rows [first, second) of `count` that this rank has.
  std::pair<int64_t, int64_t> share(int64_t count) const { return share(count, rank()); }
  std::pair<int64_t, int64_t> share(int64_t count, int of_rank) const {
    return {count * of_rank / world(), count * (of_rank + 1) / world()};
  }
  /// The rank that has row `row` of `count`.
  int owner(int64_t row, int64_t count) const {
    // share() begins at floor(count * r / world).
    return static_cast<int>(((row + 1) * world() - 1) / count);
  }
  /// Returns when all ranks have come here.
  void meet() { any(false); }
  /// Whether any rank says so; all ranks get the same answer.
  bool any(bool mine);
  /// Throws Error on every rank, naming the first that differs from rank 0, unless all texts are equal.
  /// `what` names it for the user: "configuration".
  void require_same(const std::string& what, const std::string& mine);
};

/// The group of one process: everything is the identity.
std::shared_ptr<Group> solo();

/// Deadlines of a group, in seconds.
struct Deadlines {
  double join = 60;     ///< for all ranks to come together
  double silence = 15;  ///< a rank from which nothing is heard for so long counts as lost
};

/// The usual ones, or those of EBCLR_JOIN_SECONDS and EBCLR_SILENCE_SECONDS.
Deadlines deadlines_of(const Environment& environment);

/// Meets the other processes; throws Error naming the ranks that did not come.
std::shared_ptr<Group> connect(const Launch& launch, const Deadlines& deadlines = {});

/// Gathered rows with a gradient for this rank's own. Only for losses that every rank computes whole: then
/// the gradient of one's own rows is complete, and nothing is exchanged on the way back.
torch::Tensor gather_for_loss(Group& group, const torch::Tensor& rows, int64_t total);

/// Several outputs [n, D_i] of the same rows in one exchange.
std::vector<torch::Tensor> gather_for_loss(Group& group, const std::vector<torch::Tensor>& parts,
                                           int64_t total);

/// Sums the gradients of these parameters over the ranks, in a few large pieces; undefined ones count as
/// zero.
void sum_gradients(Group& group, const std::vector<torch::Tensor>& parameters);

}  // namespace ebclr::dist
