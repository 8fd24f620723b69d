#pragma once
#include <utility>

#include "sluice/exe/executable.h"

namespace sluice::exe {

/// One callable from several lambdas, for std::visit.
template <typename... T>
struct Overloaded : T... {
  using T::operator()...;
};
template <typename... T>
Overloaded(T...) -> Overloaded<T...>;

/// Calls f(Call&) for each call of a step: one for a call or a loop, two for a branch. Step may be
/// const.
template <typename StepType, typename F>
void for_each_call(StepType& step, F&& f) {
  if (auto* c = std::get_if<Call>(&step.body)) f(*c);
  if (auto* l = std::get_if<Loop>(&step.body)) f(l->body);
  if (auto* b = std::get_if<Branch>(&step.body)) {
    f(b->then_call);
    f(b->else_call);
  }
}

/// Calls f(Operand&) for each operand of a step, except the arguments of calls. Step may be const.
template <typename StepType, typename F>
void for_each_operand(StepType& step, F&& f) {
  if (auto* k = std::get_if<Kernel>(&step.body)) {
    for (auto& o : k->operands) f(o);
  } else if (auto* b = std::get_if<Branch>(&step.body)) {
    f(b->condition);
  } else if (auto* i = std::get_if<Issue>(&step.body)) {
    f(i->memory);
    if (i->entry_from) f(*i->entry_from);
  } else if (auto* s = std::get_if<Send>(&step.body)) {
    f(s->operand);
  } else if (auto* r = std::get_if<Receive>(&step.body)) {
    f(r->operand);
  } else if (auto* c = std::get_if<Collective>(&step.body)) {
    for (auto& o : c->operands) f(o);
  }
}

}  // namespace sluice::exe
