#include "select/copy_borders.hpp"

#include "base/limits.hpp"

namespace strait {

CopyBorders copy_borders_of(std::uint32_t max_sms) {
  constexpr std::size_t mb = 1 << 20;
  if (max_sms == no_sms) return {16 * mb, 16 * mb, 1, 1};
  if (max_sms == 0 || max_sms > 8) return {};
  return max_sms <= 4 ? CopyBorders{16 * mb, 16 * mb, 16 * mb} : CopyBorders{128 * mb, 64 * mb, 64 * mb};
}

}  // namespace strait
