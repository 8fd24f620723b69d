#include "mutations.h"

namespace sluice::property {
namespace {

/// The common fields of a Send and a Receive.
struct Message {
  ChannelId* channel = nullptr;
  IndexExpr* number = nullptr;
  Operand* operand = nullptr;
  bool sent = false;
};

std::optional<Message> message_of(Step& step) {
  if (auto* s = std::get_if<Send>(&step.body))
    return Message{&s->channel, &s->message, &s->operand, true};
  if (auto* r = std::get_if<Receive>(&step.body))
    return Message{&r->channel, &r->message, &r->operand, false};
  return std::nullopt;
}

bool is_message(const Step& step) {
  return std::holds_alternative<Send>(step.body) || std::holds_alternative<Receive>(step.body);
}

bool same_kind(const Step& a, const Step& b) { return a.body.index() == b.body.index(); }

template <typename F>
void for_each_message(const Executable& e, F&& visit) {
  for_each_step(e, [&](size_t f, size_t s, const Step& step) {
    if (is_message(step)) visit(f, s, step);
  });
}

/// Whether the function or a callee sends or receives.
bool has_messages(const Executable& e, const Function& f) {
  for (const Step& step : f.steps) {
    bool found = is_message(step);
    for_each_call(
        step, [&](const Call& c) { found = found || has_messages(e, e.functions[c.function]); });
    if (found) return true;
  }
  return false;
}

using Change = std::function<IndexExpr(const IndexExpr&)>;

std::vector<Candidate> numbers_changed(const Executable& e, const std::vector<Change>& changes) {
  std::vector<Candidate> out;
  for_each_step(e, [&](size_t f, size_t s, const Step& step) {
    for (const Change& change : changes) {
      if (is_message(step)) {
        out.push_back({step_name(e, f, s), [f, s, change](Executable& m) {
                         IndexExpr& number = *message_of(step_of(m, f, s))->number;
                         number = change(number);
                         return std::string();
                       }});
      }
      size_t n = 0;
      for_each_call(step, [&](const Call& c) {
        const Function& callee = e.functions[c.function];
        for (size_t a = 0; a < c.index_args.size(); ++a, ++n) {
          if (!has_messages(e, callee) || is_data(e, callee, static_cast<int64_t>(a))) continue;
          out.push_back({step_name(e, f, s), [f, s, n, change](Executable& m) {
                           size_t at = 0;
                           for_each_call(step_of(m, f, s), [&](Call& call) {
                             for (IndexExpr& x : call.index_args) {
                               if (at++ == n) x = change(x);
                             }
                           });
                           return std::string();
                         }});
        }
      });
    }
  });
  return out;
}

}  // namespace

std::vector<Candidate> message_dropped(const Executable& e) { return steps_dropped(e, is_message); }

std::vector<Candidate> message_repeated(const Executable& e) {
  std::vector<Candidate> out;
  for_each_message(e, [&](size_t f, size_t s, const Step&) {
    out.push_back({step_name(e, f, s), [f, s](Executable& m) {
                     auto& steps = m.functions[exe::FunctionId(f)].steps;
                     const Step again = steps[s];
                     steps.insert(steps.begin() + static_cast<int64_t>(s) + 1, again);
                     return std::string();
                   }});
  });
  return out;
}

std::vector<Candidate> message_swapped(const Executable& e) {
  return numbers_changed(e, {[](const IndexExpr& x) { return x + IndexExpr(1); },
                             [](const IndexExpr& x) { return x - IndexExpr(1); }});
}

/// Changes the coefficient of a counter or of the caller's number, also to 0.
std::vector<Candidate> message_counted_differently(const Executable& e) {
  return numbers_changed(
      e, {[](const IndexExpr& x) { return x + x; }, [](const IndexExpr&) { return IndexExpr(0); },
          [](const IndexExpr& x) { return x + IndexExpr::iteration(); }});
}

/// Exchanges the operands of two sends, or of two receives, of one function.
std::vector<Candidate> messages_exchanged(const Executable& e) {
  std::vector<Candidate> out;
  for_each_message(e, [&](size_t f, size_t s, const Step& step) {
    const auto& steps = e.functions[exe::FunctionId(f)].steps;
    for (size_t t = s + 1; t < steps.size(); ++t) {
      if (!is_message(steps[t]) || !same_kind(step, steps[t])) continue;
      out.push_back({step_name(e, f, s), [f, s, t](Executable& m) {
                       std::swap(*message_of(step_of(m, f, s))->operand,
                                 *message_of(step_of(m, f, t))->operand);
                       return std::string();
                     }});
    }
  });
  return out;
}

std::vector<Candidate> message_of_other_channel(const Executable& e) {
  std::vector<Candidate> out;
  for_each_message(e, [&](size_t f, size_t s, const Step& step) {
    Step own = step;
    for (const ChannelId c : e.channels.ids()) {
      if (c == *message_of(own)->channel) continue;
      out.push_back({step_name(e, f, s), [f, s, c](Executable& m) {
                       *message_of(step_of(m, f, s))->channel = c;
                       return std::string();
                     }});
    }
  });
  return out;
}

/// A message carries another value of equal size from another address.
std::vector<Candidate> message_of_other_value(const Executable& e) {
  std::vector<Candidate> out;
  for_each_message(e, [&](size_t f, size_t s, const Step& step) {
    Step own = step;
    const Operand was = *message_of(own)->operand;
    if (was.bytes == 0) return;
    for (const Step& other : e.functions[exe::FunctionId(f)].steps) {
      every_operand(other, [&](const Operand& o) {
        const bool same = o.value == was.value || same_place(o.at, was.at);
        if (o.bytes != was.bytes || o.at.depth != 0 || same) return;
        out.push_back({step_name(e, f, s), [f, s, o](Executable& m) {
                         const Message message = *message_of(step_of(m, f, s));
                         message.operand->at = o.at;
                         if (message.sent) message.operand->value = o.value;
                         return std::string();
                       }});
      });
    }
  });
  return out;
}

/// A message moves to another position in its function.
std::vector<Candidate> message_moved(const Executable& e) {
  std::vector<Candidate> out;
  for_each_message(e, [&](size_t f, size_t s, const Step&) {
    const size_t last = e.functions[exe::FunctionId(f)].steps.size() - 1;
    for (const size_t to : {size_t{0}, s == 0 ? s : s - 1, std::min(s + 1, last), last}) {
      if (to == s) continue;
      out.push_back({step_name(e, f, s), [f, s, to](Executable& m) {
                       move_step(m.functions[exe::FunctionId(f)], s, to);
                       return std::string();
                     }});
    }
  });
  return out;
}

/// The channel has one slot less. Its bytes stay, so that later ranges of the arena do not move.
std::vector<Candidate> channel_short(const Executable& e) {
  std::vector<Candidate> out;
  for (size_t c = 0; c < e.channels.size(); ++c) {
    if (e.channels[exe::ChannelId(c)].capacity < 2) continue;
    out.push_back({e.channels[exe::ChannelId(c)].name, [c](Executable& m) {
                     --m.channels[exe::ChannelId(c)].capacity;
                     return std::string();
                   }});
  }
  return out;
}

}  // namespace sluice::property
