#include "sluice/compiler/pipeline.h"

#include <algorithm>

#include "sluice/base/sys.h"

namespace sluice {

std::vector<PassDoc> compiler_passes() {
  return {
      {"inline",
       "Graphs called from one place only become part of their caller: no copies at the border.",
       true},
      {"dead-code",
       "Values that nobody reads are not computed; first, so that nothing below looks at them.",
       true},
      {"share-work",
       "An activation makes its derivative too and keeps that, not its operand; before fusion, "
       "which makes one kernel of the parts.",
       true},
      {"split",
       "A loss becomes the losses of its samples, their total and their gradient, where the target "
       "joins those with the softmax before; a reduction of many elements to one becomes tasks and "
       "what they come to; before fusion, which joins the parts.",
       true},
      {"fuse",
       "Ops that one kernel of the target can run in one go become one; before layouts, which go "
       "by what the kernels read.",
       true},
      {"layouts",
       "Weights lie in the panels that matrix products read fastest, and so does what updates "
       "them; "
       "after fusion, which decides what a kernel reads.",
       true},
      {"entries",
       "Entries of remote buffers that constants, counters and arguments decide are index "
       "expressions, "
       "and what nothing else reads is not computed; before functions are made, whose parameters "
       "it changes.",
       true},
      {"transfers",
       "Transfers that ask for it run on the io queue, and overlapped ones beside the phase before "
       "or "
       "after; "
       "before placement, which keeps their bytes until they have ended.",
       true},
      {"kernels",
       "The first kernel of the target's list that supports each op; before placement, which needs "
       "to know "
       "what may coincide.",
       false},
      {"aliasing", "An elementwise output takes the bytes of an operand that dies at it.", true},
      {"placement",
       "Which values share bytes: views, updates, results at the caller's address, rings of loops.",
       false},
      {"offsets", "Lifetimes of buffers, then their offsets in the frame.", false},
      {"synchronise",
       "A barrier only before a step that conflicts with one since the last barrier.", false},
  };
}

namespace compiler {

Pipeline::Pipeline(const CompileOptions& options)
    : disabled_(options.disable), print_after_(options.print_after) {
  std::string known;
  for (const PassDoc& pass : compiler_passes()) {
    records_.push_back({pass.name, pass.doc, 0, 0});
    known += (known.empty() ? "" : " ") + pass.name;
  }
  const auto passes = compiler_passes();
  const auto find = [&](const std::string& name) {
    return std::find_if(passes.begin(), passes.end(),
                        [&](const PassDoc& p) { return p.name == name; });
  };
  for (const std::string& name : disabled_) {
    require(find(name) != passes.end(), "disable: there is no pass '{}'; passes: {}", name, known);
    require(find(name)->optional, "disable: pass '{}' is not optional", name);
  }
  require(print_after_.empty() || print_after_ == "all" || find(print_after_) != passes.end(),
          "print-after: there is no pass '{}'; passes: {}", print_after_, known);
}

bool Pipeline::enabled(const std::string& pass) const {
  return std::find(disabled_.begin(), disabled_.end(), pass) == disabled_.end();
}

void Pipeline::record(const std::string& name, double seconds, int64_t changes, const Body& body) {
  for (PassRecord& r : records_) {
    if (r.name != name) continue;
    r.seconds += seconds;
    r.changes += changes;
  }
  if (print_after_ == name || print_after_ == "all") {
    sys::print_stderr("--- after {} ({} changes)\n{}", name, changes, to_string(body));
  }
}

}  // namespace compiler
}  // namespace sluice
