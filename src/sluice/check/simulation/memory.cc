#include "sluice/check/simulation/memory.h"

#include <fmt/core.h>

#include <algorithm>

namespace sluice::check {

void ByteMap::note(const Range& r) {
  if (marks_ > 0) changes_.push_back({r, pieces(r)});
}

void ByteMap::write(const Range& r, const Instance& i) {
  if (r.begin == r.end) return;
  note(r);
  arenas_[r.arena].assign(r.begin, r.end, {i.id, r.begin, i.name});
}

void ByteMap::forget(const Range& r) {
  if (r.begin == r.end) return;
  note(r);
  arenas_[r.arena].erase(r.begin, r.end);
}

bool ByteMap::holds(const Range& r, const Instance& i) const {
  if (r.end - r.begin != i.bytes) return false;
  int64_t at = r.begin;
  const bool same =
      arenas_[r.arena].visit(r.begin, r.end, [&](int64_t begin, int64_t end, const ByteOrigin& c) {
        if (begin != at || c.id != i.id || c.origin != r.begin) return false;
        at = end;
        return true;
      });
  return same && at == r.end;
}

std::string ByteMap::describe(const Range& r, const exe::Executable& executable) const {
  constexpr size_t max = 3;
  std::string text;
  const auto add = [&](int64_t begin, int64_t end, const std::string& what) {
    text += fmt::format("{}{} in [{}, {})", text.empty() ? "" : ", ", what, begin, end);
  };
  int64_t at = r.begin;
  const Pieces found = pieces(r);
  for (size_t i = 0; i < found.size() && i < max; ++i) {
    const auto& p = found[i];
    if (p.begin > at) add(at, p.begin, "nothing");
    std::string name = "an unnamed value";
    if (p.value.name != exe::kNoValue) {
      const exe::Value& v = executable.values[p.value.name];
      name = fmt::format("%{} '{}' v{}", p.value.name, v.tensor, v.version);
    }
    if (p.value.origin != r.begin) name += fmt::format(" that begins at {}", p.value.origin);
    add(p.begin, p.end, name);
    at = p.end;
  }
  if (found.size() > max) return text + ", …";
  if (at < r.end) add(at, r.end, "nothing");
  return text;
}

size_t ByteMap::mark() {
  ++marks_;
  return changes_.size();
}

std::vector<Range> ByteMap::changed(size_t mark) const {
  std::vector<Range> ranges;
  for (size_t i = mark; i < changes_.size(); ++i) ranges.push_back(changes_[i].range);
  return merged(std::move(ranges));
}

std::vector<Range> ByteMap::merged(std::vector<Range> ranges) {
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) {
    return std::tie(a.arena, a.begin) < std::tie(b.arena, b.begin);
  });
  std::vector<Range> out;
  for (const Range& r : ranges) {
    if (!out.empty() && out.back().arena == r.arena && r.begin <= out.back().end) {
      out.back().end = std::max(out.back().end, r.end);
    } else {
      out.push_back(r);
    }
  }
  return out;
}

void ByteMap::restore(const Range& r, const Pieces& pieces) {
  note(r);
  auto& arena = arenas_[r.arena];
  arena.erase(r.begin, r.end);
  for (const auto& p : pieces) arena.assign(p.begin, p.end, p.value);
}

void ByteMap::roll_back(size_t mark) {
  while (changes_.size() > mark) {
    const Change change = std::move(changes_.back());
    changes_.pop_back();
    auto& arena = arenas_[change.range.arena];
    arena.erase(change.range.begin, change.range.end);
    for (const auto& p : change.before) arena.assign(p.begin, p.end, p.value);
  }
}

void Window::barrier() {
  for (const exe::ArenaId a : used_) arenas_[a].clear();
  used_.clear();
}

bool Window::conflicts(const Range& r, bool writes, const Grid& grid) const {
  const auto clashes = [&](Who who, const Grid& other) {
    if (who == Who::kNobody) return false;
    return who == Who::kSeveral || grid.shared() || !(other == grid);
  };
  return !arenas_[r.arena].visit(r.begin, r.end, [&](int64_t, int64_t, const Touches& t) {
    return !clashes(t.writers, t.writer) && !(writes && clashes(t.readers, t.reader));
  });
}

void Window::join(Who& who, Grid& grid, Who other, const Grid& other_grid) {
  if (other == Who::kNobody || who == Who::kSeveral) return;
  if (who == Who::kNobody && other == Who::kGrid && !other_grid.shared()) {
    who = Who::kGrid;
    grid = other_grid;
  } else if (other == Who::kSeveral || other_grid.shared() || !(grid == other_grid)) {
    who = Who::kSeveral;
    grid = {};
  }
}

void Window::touch(const Range& r, bool writes, const Grid& grid) {
  if (r.begin == r.end) return;
  auto& arena = arenas_[r.arena];
  if (arena.empty()) used_.push_back(r.arena);
  arena.change(r.begin, r.end, [&](Touches& t) {
    if (writes) {
      join(t.writers, t.writer, Who::kGrid, grid);
    } else {
      join(t.readers, t.reader, Who::kGrid, grid);
    }
  });
}

void Window::merge(const Window& other) {
  for (const exe::ArenaId a : other.used_) {
    auto& arena = arenas_[a];
    if (arena.empty()) used_.push_back(a);
    other.arenas_[a].for_each([&](int64_t begin, int64_t end, const Touches& theirs) {
      arena.change(begin, end, [&](Touches& t) {
        join(t.writers, t.writer, theirs.writers, theirs.writer);
        join(t.readers, t.reader, theirs.readers, theirs.reader);
      });
    });
  }
}

void Window::serialise(std::vector<int64_t>& out) const {
  std::vector<exe::ArenaId> used = used_;
  std::sort(used.begin(), used.end());
  for (const exe::ArenaId a : used) {
    arenas_[a].for_each([&](int64_t begin, int64_t end, const Touches& t) {
      out.insert(out.end(), {a, begin, end, static_cast<int64_t>(t.writers), t.writer.tasks,
                             t.writer.stride, t.writer.base, static_cast<int64_t>(t.readers),
                             t.reader.tasks, t.reader.stride, t.reader.base});
    });
  }
}

}  // namespace sluice::check
