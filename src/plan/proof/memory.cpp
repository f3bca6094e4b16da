#include "plan/proof/memory.hpp"

#include <algorithm>

namespace strait::proof {

void merge(VectorClock& into, const VectorClock& from) {
  for (std::size_t i = 0; i < into.size(); ++i) into[i] = std::max(into[i], from[i]);
}

Memory::Memory(const Operation& operation, std::uint32_t index, Expressions& expressions)
    : operation_(operation), owners_(operation.ranks()) {
  for (std::uint32_t owner = 0; owner < operation.ranks(); ++owner) {
    const std::uint32_t inputs = operation.chunks(owner, Buffer::input);
    const std::uint32_t outputs = operation.chunks(owner, Buffer::output);
    const std::uint32_t slices = operation.options().slices;
    owners_[owner].cells.resize((inputs + outputs) * slices + operation.chunks(owner, Buffer::scratch));
    for (std::uint32_t chunk = 0; chunk < inputs; ++chunk)
      for (std::uint32_t slice = 0; slice < slices; ++slice)
        owners_[owner].cells[index_of(owner, Buffer::input, chunk, slice)].content = {
            .value = expressions.contribution({index, owner, chunk, slice}),
            .length = operation.length(owner, Buffer::input, chunk)};
  }
}

std::size_t Memory::index_of(std::uint32_t owner, Buffer buffer, std::uint32_t chunk, std::uint32_t slice) const {
  const auto [place, at] = operation_.place(owner, buffer, chunk);
  const std::size_t slices = operation_.options().slices;
  const std::size_t inputs = operation_.chunks(owner, Buffer::input);
  if (place == Buffer::input) return at * slices + slice;
  if (place == Buffer::output) return (inputs + at) * slices + slice;
  return (inputs + operation_.chunks(owner, Buffer::output)) * slices + at;
}

std::string Memory::text(const Access& access) const {
  return operation_.where(access.rank, access.rank_lane, access.step) + " in slice " + std::to_string(access.slice);
}

Memory::Cell& Memory::touch(std::uint32_t owner, const Operand& operand, const Access& access) {
  if (access.rank != owner) owners_[owner].peer_accesses[access.lane] = access;
  return owners_[owner].cells[index_of(owner, operand.buffer, operand.chunk, access.slice)];
}

Status Memory::order(const Cell& cell, const Access& access, const VectorClock& clock, std::string_view what) const {
  if (cell.written && !cell.writer.before(clock))
    return fail(Code::internal_error, text(access) + " " + std::string(what) + " what " + text(cell.writer) +
                                          " writes, and nothing orders the two");
  return {};
}

Result<Content> Memory::read(std::uint32_t owner, const Operand& operand, const Access& access,
                             const VectorClock& clock) {
  Cell& cell = touch(owner, operand, access);
  STRAIT_TRY(order(cell, access, clock, "reads"));
  if (cell.content.value == Expressions::unwritten)
    return fail(Code::internal_error, text(access) + " reads a chunk that nobody has written");
  const auto same_lane = std::find_if(cell.readers.begin(), cell.readers.end(),
                                      [&](const Access& reader) { return reader.lane == access.lane; });
  if (same_lane == cell.readers.end())
    cell.readers.push_back(access);
  else
    *same_lane = access;
  return cell.content;
}

Status Memory::write(std::uint32_t owner, const Operand& operand, const Content& content, const Access& access,
                     const VectorClock& clock) {
  Cell& cell = touch(owner, operand, access);
  STRAIT_TRY(order(cell, access, clock, "overwrites"));
  for (const Access& reader : cell.readers)
    if (!reader.before(clock))
      return fail(Code::internal_error, text(access) + " overwrites what " + text(reader) +
                                            " may still be reading: an acknowledgement is missing");
  cell.readers.clear();
  cell.content = content;
  cell.writer = access;
  cell.written = true;
  return {};
}

const Content& Memory::result(std::uint32_t owner, Buffer buffer, std::uint32_t chunk, std::uint32_t slice) const {
  return owners_[owner].cells[index_of(owner, buffer, chunk, slice)].content;
}

}  // namespace strait::proof
